// Example calls of the plugins' ops, for tests that go through every op. Each plugin provides its
// own in test_examples.cc of its folder:
//
//   const ExamplesOf softmax_examples([](Examples& examples) {
//     const opdock_value rows = examples.array({4, 6});
//     examples.add({"softmax", "softmax", {rows, number(1), …}, {examples.gapped({4, 6})}, {…}});
//   });
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "harness.h"

namespace opdock_test {

// A valid call. `invalid_args` holds copies of its arguments with one wrong argument each; run
// could not survive any of them.
struct Example {
  std::string plugin, op;
  std::vector<opdock_value> args;
  std::vector<Array*> outputs;  // as planned; with gaps between the rows if the op allows it
  std::vector<std::vector<opdock_value>> invalid_args;
  bool launches = true;              // whether it launches a kernel of the plugin on a GPU
  bool drives = false;               // whether run calls the driver directly on a GPU
  std::vector<Array*> written = {};  // arguments that run overwrites completely
  // Whether these depend on sums over many elements, which devices add up in other orders. The
  // others are equal on all devices.
  bool writes_by_sums = false;
};

// A copy of arguments in which change(parameter, &tensor, &value) has modified every tensor,
// including those in lists.
class ChangedTensors {
 public:
  using Change = std::function<void(size_t, opdock_tensor*, opdock_value*)>;
  ChangedTensors(const std::vector<opdock_value>& args, const Change& change);
  ChangedTensors(const ChangedTensors&) = delete;
  std::vector<opdock_value> args;

 private:
  void change_one(size_t param, opdock_value* value, const Change& change);
  std::deque<opdock_tensor> tensors_;
  std::deque<std::vector<opdock_value>> items_;
  std::deque<opdock_list> lists_;
};

// The examples of all plugins, and the memory that they use.
class Examples {
 public:
  Examples();
  ~Examples();
  Examples(const Examples&) = delete;
  const std::vector<Example>& all() const { return all_; }

  void add(Example example) { all_.push_back(std::move(example)); }
  // A tensor of random numbers (for bools, positive numbers become true). Contiguous if `strides`
  // is empty.
  opdock_value array(std::vector<int64_t> shape, std::vector<int64_t> strides = {},
                     Type type = Type::kFloat32);
  // A float32 tensor at a misaligned address.
  opdock_value misaligned(std::vector<int64_t> shape);
  // An output tensor for an op to write.
  Array* output(std::vector<int64_t> shape, std::vector<int64_t> strides = {},
                Type type = Type::kFloat32);
  // An output with gaps between its rows.
  Array* gapped(int64_t rows, int64_t length);
  // A random number generator as an argument.
  opdock_value generator();
  opdock_value list(std::vector<opdock_value> items);
  opdock_value text(std::string text);
  // Calls the op on the CPU and returns its result, a number or an object.
  opdock_value result(const std::string& plugin, const std::string& op,
                      const std::vector<opdock_value>& args);

 private:
  std::deque<Array> arrays_;
  std::deque<opdock_generator> generators_;
  std::deque<std::vector<opdock_value>> items_;
  std::deque<opdock_list> lists_;
  std::deque<std::string> texts_;
  std::deque<opdock_string> text_values_;
  std::vector<opdock_object*> objects_;
  std::vector<Example> all_;
};

struct ExamplesOf {
  explicit ExamplesOf(void (*make)(Examples& examples));
};

}  // namespace opdock_test
