// Makes the arguments of `opdock run` from text, by the schema's parameter.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "arrays.h"
#include "opdock/opdock.h"

namespace opdock::cli {

// Makes values and owns what they point at.
class ValueMaker {
 public:
  // Tensors go to this device: CPU, or the GPU that gpu_open() has opened.
  ValueMaker(opdock_device device, uint64_t seed) : device_(device), seed_(seed) {}

  // Makes a parameter's value from text. Throws Usage, which names the parameter.
  opdock_value make(const opdock_param& param, std::string_view text);

  // Returns the array behind a tensor value, updated from the device's memory.
  const Array& read_back(const opdock_value& value);
  // Returns a copy, in host memory, of a tensor that the host allocated.
  static std::unique_ptr<Array> copy(const opdock_tensor& tensor);

 private:
  opdock_value make_one(uint32_t tag, std::string_view text);
  opdock_value make_list(uint32_t tag, std::string_view text);
  opdock_value make_tensor(std::string_view text);

  opdock_device device_;
  uint64_t seed_;
  std::deque<std::unique_ptr<Array>> arrays_;
  std::deque<std::string> texts_;
  std::deque<opdock_string> strings_;
  std::deque<std::vector<opdock_value>> elements_;
  std::deque<opdock_list> lists_;
};

// Parses "cpu", "cuda", "cuda:1" or "rocm:0"; throws Usage.
opdock_device parse_device_name(std::string_view text);

}  // namespace opdock::cli
