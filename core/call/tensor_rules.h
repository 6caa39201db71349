// The checks of a call's tensors that the host makes before plan, as the op declares (plugin.toml:
// rows, contiguous, like, broadcast, in-place), so that plan need not.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "opdock/plugin.h"
#include "schema/schema.h"
#include "schema/shape_rule.h"
#include "schema/tensor_rule.h"

namespace opdock {

// The rules of one op. Immutable, so any thread may use it.
class TensorRules {
 public:
  // shapes: the op's shape rules, one for each result of the schema with fresh tensors.
  TensorRules(std::vector<TensorRule> rules, const Schema& schema,
              std::span<const ShapeRule> shapes);

  // Returns true if the arguments keep all rules. False says that check() has to look: it passes,
  // for instance, a tensor without elements whatever its strides. The arguments fit the schema.
  bool pass(const opdock_value* args) const;
  // Throws an Error that names the argument that breaks a rule, if there is one.
  void check(const opdock_value* args) const;

  // A fresh result that is "like" a parameter keeps that one's rule "rows", "contiguous" or
  // "broadcast" too.
  bool binds_results() const { return binds_results_; }
  // Checks a tensor that is passed for result `result`. output: its number among all fresh
  // tensors, for the Error.
  void check_result(uint32_t result, uint32_t output, const opdock_tensor* tensor) const;

  // Returns whether no result may be the tensor of this parameter.
  bool is_apart(uint32_t param) const { return (apart_ >> param & 1) != 0; }

 private:
  std::vector<TensorRule> rules_;   // without those of kInPlace
  std::vector<std::string> names_;  // of all parameters
  struct ResultRule {
    uint32_t result;
    TensorRule::Kind kind;
  };
  std::vector<ResultRule> results_;
  bool binds_results_ = false;
  uint64_t apart_ = 0;  // bits of parameters
};

// Makes the rules that an op's descriptor has; *rules stays NULL if it has none. shapes: the op's
// shape rules. Returns false, and *error, if a rule is wrong.
bool read_tensor_rules(const opdock_op& op, std::span<const ShapeRule> shapes,
                       std::unique_ptr<const TensorRules>* rules, Reason* error);

}  // namespace opdock
