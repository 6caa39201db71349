// An op that is made of a formula while the program runs, without a plugin: its plan and its run
// work for any formula.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "formula/formula.h"
#include "formula/gradient.h"
#include "fused/fused_instance.h"
#include "opdock/plugin.h"
#include "schema/schema.h"

namespace opdock {

// Lives until the process ends, as targets do. Usable from any thread.
struct FusedOp {
  // An op whose results are the formula's. Throws formula::Error if the formula does not fit the
  // schema.
  FusedOp(Schema schema, formula::Formula formula);
  // An op whose results are the gradients of parameters of the formula, by their numbers, each of
  // its parameter's shape. The first parameters of `schema` are the gradients of the formula's
  // results, and the formula's own ones follow (gradient_schema() in chain/formula_functions.cc).
  FusedOp(Schema schema, formula::Formula formula, std::vector<size_t> gradients_of);
  FusedOp(const FusedOp&) = delete;
  FusedOp& operator=(const FusedOp&) = delete;

  // The first member, so that plan and run find the rest from its address.
  opdock_op op{};
  // A plugin's own plan, which is asked first and may refuse arguments; or NULL.
  decltype(opdock_op::plan) own_plan = nullptr;
  // A plugin's compiled code for CPUs (opdock_op.cpu_code), or NULL.
  decltype(opdock_op::cpu_code) own_code = nullptr;
  // Whether evaluate() computes the results, on the CPU alone, with float64 for all floats.
  bool is_evaluated = false;
  const Schema schema;
  const formula::Formula formula;
  const std::string schema_text, doc;
  const std::vector<size_t> gradients_of;  // empty: the op computes the formula
  const uint64_t number;                   // of no other op in this process

  // Returns the op that a target calls if it is made of a formula, else NULL.
  static FusedOp* of(const opdock_op& op);
  // Returns how many kinds of calls, by dtypes, ranks and choices, each way has computed on the
  // CPU when it last did: by CpuWay.
  std::array<size_t, 4> cpu_ways();

  // Returns the instance for these arguments, which is made once for each combination of types and
  // ranks. Throws formula::Error, or Error for an argument that formulas do not take.
  FusedInstance& instance(const opdock_value* args, uint32_t num_args);

 private:
  // The formula for arguments of certain types and ranks, whose results or gradients instances
  // compute.
  struct Forward {
    formula::Graph graph;
    std::vector<uint32_t> tensors;  // the op's parameter of each input
  };
  // The gradient that a result of an instance's graph is: of a tensor or a part of one.
  struct GradientOf {
    formula::Wanted wanted;
    uint32_t result = 0;  // of the op
  };

  void fill_in();
  Forward make_forward(const std::vector<formula::Argument>& arguments) const;
  // Returns what is kept by the key, which is made if there is none.
  const Forward& forward(const std::string& key, const std::vector<formula::Argument>& arguments);
  // Returns the gradients that the op computes of these arguments. A tensor that is not there has
  // none.
  std::vector<GradientOf> wanted(const Forward& forward,
                                 const std::vector<formula::Argument>& arguments,
                                 const opdock_value* args) const;
  std::unique_ptr<FusedInstance> make(const std::vector<formula::Argument>& arguments,
                                      const Forward& forward, const std::vector<GradientOf>& wanted,
                                      const opdock_value* args) const;
  // How many parameters come before those of the formula.
  size_t num_grads() const { return gradients_of.empty() ? 0 : formula.num_results(); }

  Mutex mutex_;  // guards what follows
  std::map<std::string, std::unique_ptr<FusedInstance>> instances_;
  std::map<std::string, Forward> forwards_;  // of gradients
};

}  // namespace opdock
