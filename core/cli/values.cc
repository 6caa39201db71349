// SPDX-License-Identifier: Apache-2.0
#include "values.h"

#include <charconv>
#include <cstring>
#include <stdexcept>

#include "fmt/format.h"
#include "gpu_memory.h"
#include "usage.h"

namespace opdock::cli {
namespace {

Usage unfit(std::string_view text, const char* wanted) {
  return {fmt::format("\"{}\"", text), wanted, "", "", ""};
}

template <typename Number>
Number parse_number(std::string_view text, const char* wanted) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [next, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || next != end) throw unfit(text, wanted);
  return number;
}

// Returns the elements of "[a, b, [c, d]]" at the top level, as text.
std::vector<std::string_view> split_elements(std::string_view text) {
  if (!text.starts_with('[') || !text.ends_with(']')) throw unfit(text, "a list, such as [1, 2]");
  text = text.substr(1, text.size() - 2);
  std::vector<std::string_view> elements;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size()) {
      depth += text[i] == '[' || text[i] == '(';
      depth -= text[i] == ']' || text[i] == ')';
      if (text[i] != ',' || depth != 0) continue;
    }
    std::string_view element = text.substr(begin, i - begin);
    begin = i + 1;
    while (element.starts_with(' ')) element.remove_prefix(1);
    while (element.ends_with(' ')) element.remove_suffix(1);
    if (!element.empty()) elements.push_back(element);
  }
  return elements;
}

}  // namespace

opdock_device parse_device_name(std::string_view text) {
  if (text == "cpu") return {OPDOCK_CPU, 0};
  for (const auto& [name, type] :
       {std::pair("cuda", OPDOCK_CUDA), std::pair("rocm", OPDOCK_ROCM)}) {
    if (text.substr(0, 4) != name) continue;
    if (text.size() == 4) return {type, 0};
    if (text[4] != ':') break;
    return {type, parse_number<int32_t>(text.substr(5), "a device number after the colon")};
  }
  throw unfit(text, "cpu, cuda:N or rocm:N");
}

opdock_value ValueMaker::make_tensor(std::string_view text) {
  arrays_.push_back(parse_array(text, seed_++));
  Array& array = *arrays_.back();
  if (device_.type != OPDOCK_CPU) {
    array.tensor.device = device_;
    array.tensor.data = gpu_allocate(array.bytes.size());
    gpu_copy_in(array.tensor.data, array.bytes.data(), array.bytes.size());
  }
  opdock_value value{};
  value.tag = OPDOCK_TAG_TENSOR;
  value.as.tensor = &array.tensor;
  return value;
}

opdock_value ValueMaker::make_one(uint32_t tag, std::string_view text) {
  opdock_value value{};
  if (text == "None") return value;
  value.tag = tag;
  switch (tag) {
    case OPDOCK_TAG_TENSOR:
      return make_tensor(text);
    case OPDOCK_TAG_BOOL:
      if (text != "True" && text != "False") throw unfit(text, "True or False");
      value.as.i64 = text == "True";
      return value;
    case OPDOCK_TAG_INT:
      value.as.i64 = parse_number<int64_t>(text, "an int");
      return value;
    case OPDOCK_TAG_FLOAT:
      value.as.f64 = parse_number<double>(text, "a float");
      return value;
    case OPDOCK_TAG_DTYPE:
      value.as.dtype = parse_dtype_name(text);
      return value;
    case OPDOCK_TAG_DEVICE:
      value.as.device = parse_device_name(text);
      return value;
    case OPDOCK_TAG_STRING:
      texts_.emplace_back(text);
      strings_.push_back({texts_.back().data(), texts_.back().size()});
      value.as.str = &strings_.back();
      return value;
    default:
      throw unfit(text, "an argument of a type that the command line can express");
  }
}

opdock_value ValueMaker::make_list(uint32_t tag, std::string_view text) {
  std::vector<opdock_value> elements;
  for (std::string_view element : split_elements(text)) elements.push_back(make_one(tag, element));
  elements_.push_back(std::move(elements));
  lists_.push_back({elements_.back().data(), elements_.back().size()});
  opdock_value value{};
  value.tag = OPDOCK_TAG_LIST;
  value.as.list = &lists_.back();
  return value;
}

opdock_value ValueMaker::make(const opdock_param& param, std::string_view text) {
  try {
    const bool is_list = (param.flags & OPDOCK_PARAM_LIST) != 0 && text != "None";
    return is_list ? make_list(param.tag, text) : make_one(param.tag, text);
  } catch (Usage& usage) {
    usage.where = param.name;
    throw;
  }
}

const Array& ValueMaker::read_back(const opdock_value& value) {
  for (const std::unique_ptr<Array>& array : arrays_) {
    if (&array->tensor != value.as.tensor) continue;
    if (device_.type != OPDOCK_CPU) {
      gpu_copy_out(array->bytes.data(), array->tensor.data, array->bytes.size());
    }
    return *array;
  }
  throw std::logic_error("a tensor that was not made here");
}

std::unique_ptr<Array> ValueMaker::copy(const opdock_tensor& tensor) {
  std::vector<int64_t> shape(tensor.shape, tensor.shape + tensor.ndim);
  std::unique_ptr<Array> array = std::make_unique<Array>(tensor.dtype, shape);
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] > 1 && tensor.strides[i] != array->strides[i] && array->size() != 0) {
      throw std::runtime_error(
          "found a result with gaps between its elements, which the command "
          "cannot print; use the Python package");
    }
  }
  const std::byte* data = static_cast<const std::byte*>(tensor.data) + tensor.byte_offset;
  if (tensor.device.type != OPDOCK_CPU) {
    gpu_copy_out(array->bytes.data(), data, array->bytes.size());
  } else if (!array->bytes.empty()) {
    std::memcpy(array->bytes.data(), data, array->bytes.size());
  }
  return array;
}

}  // namespace opdock::cli
