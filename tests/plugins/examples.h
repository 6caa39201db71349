// Calls of the plugins' ops, for tests that go through every op. A plugin brings its own, in
// test_examples.cc of its folder:
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

// A call that is right; `spoilt` are the same with one argument that is wrong, each in a way that
// run could not survive.
struct Example {
  std::string plugin, op;
  std::vector<opdock_value> args;
  std::vector<Array*> outputs;  // as planned; with gaps between their rows if the op allows it
  std::vector<std::vector<opdock_value>> spoilt;
  bool launches = true;              // a kernel of the plugin's, on a GPU
  bool drives = false;               // run calls the driver itself, on a GPU
  std::vector<Array*> written = {};  // arguments that run writes all of
};

// A copy of arguments in which each tensor, those in lists too, has been changed by
// change(parameter, &tensor, &value).
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

// All plugins' examples, and their memory.
class Examples {
 public:
  Examples();
  ~Examples();
  Examples(const Examples&) = delete;
  const std::vector<Example>& all() const { return all_; }

  void add(Example example) { all_.push_back(std::move(example)); }
  // Random numbers, of bools those above 0 true; contiguous without strides.
  opdock_value array(std::vector<int64_t> shape, std::vector<int64_t> strides = {},
                     Type type = Type::kFloat32);
  // float32, at an address that is not aligned for it.
  opdock_value misaligned(std::vector<int64_t> shape);
  // To be written.
  Array* output(std::vector<int64_t> shape, std::vector<int64_t> strides = {},
                Type type = Type::kFloat32);
  // An output with gaps between its rows.
  Array* gapped(int64_t rows, int64_t length);
  // Of random numbers.
  opdock_value generator();
  opdock_value list(std::vector<opdock_value> items);
  opdock_value text(std::string text);
  // What an op on the CPU returns for these arguments, a number or an object.
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
