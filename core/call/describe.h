// Declarations of an op, in the form of the structs that opdock_describe hands out.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "opdock/opdock.h"
#include "schema/gradient.h"
#include "schema/schema.h"
#include "schema/shape_rule.h"

namespace opdock {

// Declarations of an op in addition to its schema, from the first plugin that provides the op.
struct Declared {
  struct Device {
    int32_t type;  // OPDOCK_CPU, …
    std::vector<opdock_dtype> dtypes;
  };
  uint32_t flags = 0;  // OPDOCK_OP_…
  uint32_t device_arg = 0;
  // One OPDOCK_ON_… per parameter. Empty: all parameters are on the op's device.
  std::vector<uint8_t> arg_devices;
  std::vector<ShapeRule> rules;  // one for each result with fresh tensors, or none
  std::vector<Gradient> gradients;
  std::vector<Device> devices;
};

// Owns everything that info() points to. Not copyable, because the structs point into it.
class Description {
 public:
  // The schema must outlive this object.
  Description(const Schema& schema, Declared declared);
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;

  const opdock_function_info& info() const { return info_; }
  const Declared& declared() const { return declared_; }

 private:
  opdock_value constant(const SchemaDefault& from);
  void add_params(const Schema& schema);
  void add_results(const Schema& schema);
  void add_gradients();

  Declared declared_;
  std::string schema_text_;
  opdock_function_info info_{};
  std::vector<opdock_param> params_;
  std::vector<opdock_result> results_;
  std::vector<opdock_device_support> devices_;
  std::vector<opdock_gradient> gradients_;
  // The objects that values point to; deques do not move their elements.
  std::deque<std::vector<opdock_gradient_arg>> gradient_args_;
  std::deque<opdock_string> strings_;
  std::deque<std::array<double, 2>> complexes_;
  std::deque<std::vector<opdock_value>> items_;
  std::deque<opdock_list> lists_;
};

}  // namespace opdock
