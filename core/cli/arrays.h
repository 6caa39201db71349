// Small tensors for `opdock run`: made from text, printed as text.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "opdock/opdock.h"

namespace opdock::cli {

// A contiguous tensor in host memory. `tensor` points into the other members: not copyable.
struct Array {
  std::vector<std::byte> bytes;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
  opdock_tensor tensor{};

  Array(opdock_dtype dtype, std::vector<int64_t> shape);
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  int64_t size() const;  // number of elements
  double get(int64_t index) const;
  void set(int64_t index, double value);
};

// Convert between dtypes and the names that NumPy and PyTorch use. parse_dtype_name() throws Usage
// for other names.
opdock_dtype parse_dtype_name(std::string_view name);
std::string dtype_name(opdock_dtype dtype);

// Makes an array from "randn(4,8):float16", "zeros(2)", "ones(3,3)", "arange(10):int64" or
// "[[1,2],[3,4]]"; float32 without a suffix. Throws Usage.
std::unique_ptr<Array> parse_array(std::string_view text, uint64_t seed);

// Returns "float32 (2, 3)" and the numbers in nested brackets, with long rows shortened in the
// middle.
std::string to_text(const Array& array);

// Returns all numbers of a contiguous array, flat.
std::vector<double> values_of(const Array& array);

}  // namespace opdock::cli
