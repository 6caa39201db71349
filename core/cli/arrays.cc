// SPDX-License-Identifier: Apache-2.0
#include "arrays.h"

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "nlohmann/json.hpp"
#include "opdock/types.hpp"
#include "schema/dtype.h"
#include "usage.h"

namespace opdock::cli {
namespace {

// The dtypes that get() and set() know.
constexpr Dtype kDtypes[] = {
    dtype_of<float>(),   dtype_of<double>(),  dtype_of<half>(),    dtype_of<bfloat16>(),
    dtype_of<int64_t>(), dtype_of<int32_t>(), dtype_of<int16_t>(), dtype_of<int8_t>(),
    dtype_of<uint8_t>(), dtype_of<bool>(),
};

constexpr int64_t kMaxElements = 1 << 24;  // the command is for small inputs

// Converts to IEEE 754 binary16, rounded to nearest even.
uint16_t to_half(double value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double size = std::fabs(value);
  if (std::isnan(value)) return 0x7E00;
  if (size >= 65520) return sign | 0x7C00;
  int exponent = 0;
  std::frexp(size, &exponent);
  // The last bit's weight is 2^last: 2^-24 for subnormal numbers.
  const int last = std::max(exponent - 11, -24);
  const double units = std::nearbyint(std::ldexp(size, -last));
  if (last == -24) return sign | static_cast<uint16_t>(units);
  return sign | static_cast<uint16_t>(static_cast<int>(units) + ((last + 24) << 10));
}

template <typename T>
double load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return static_cast<double>(value);
}

template <typename T>
void store(std::byte* at, double number) {
  const T value = static_cast<T>(number);
  std::memcpy(at, &value, sizeof value);
}

[[noreturn]] void refuse(std::string_view text, const char* wanted) {
  throw Usage{fmt::format("\"{}\"", text), wanted, "", "", ""};
}

std::vector<int64_t> parse_shape(std::string_view text) {
  std::vector<int64_t> shape;
  int64_t elements = 1;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string part(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
    size_t used = 0;
    int64_t size = -1;
    try {
      size = std::stoll(part, &used);
    } catch (const std::exception&) {
    }
    if (size < 0 || part.find_first_not_of(' ', used) != std::string::npos) {
      refuse(part, "a size, such as 4");
    }
    if (size != 0 && elements > kMaxElements / size) refuse(part, "at most 16 Mi elements");
    elements *= size;
    shape.push_back(size);
  }
  if (shape.size() > OPDOCK_MAX_NDIM) refuse("too many sizes", "at most 16");
  return shape;
}

void flatten(const nlohmann::json& list, size_t depth, std::vector<int64_t>* shape,
             std::vector<double>* numbers) {
  if (depth == shape->size()) {
    if (!list.is_number() && !list.is_boolean()) refuse(list.dump(), "a number");
    numbers->push_back(list.is_boolean() ? list.get<bool>() : list.get<double>());
    return;
  }
  if (!list.is_array() || static_cast<int64_t>(list.size()) != (*shape)[depth]) {
    refuse(list.dump(), "rows of one length");
  }
  for (const nlohmann::json& item : list) flatten(item, depth + 1, shape, numbers);
}

std::unique_ptr<Array> parse_literal(std::string_view text, opdock_dtype dtype) {
  const nlohmann::json list = nlohmann::json::parse(text, nullptr, false);
  if (!list.is_array()) refuse(text, "a list of numbers, such as [[1, 2], [3, 4]]");
  std::vector<int64_t> shape;
  for (const nlohmann::json* at = &list; at->is_array();) {
    shape.push_back(static_cast<int64_t>(at->size()));
    if (at->empty()) break;
    at = &(*at)[0];
  }
  if (shape.size() > OPDOCK_MAX_NDIM) refuse(text, "at most 16 dimensions");
  std::vector<double> numbers;
  flatten(list, 0, &shape, &numbers);
  std::unique_ptr<Array> array = std::make_unique<Array>(dtype, shape);
  for (size_t i = 0; i < numbers.size(); ++i) array->set(static_cast<int64_t>(i), numbers[i]);
  return array;
}

std::string number_text(const Array& array, int64_t index) {
  const double value = array.get(index);
  const uint8_t code = array.tensor.dtype.code;
  if (code == OPDOCK_DTYPE_BOOL) return value != 0 ? "True" : "False";
  if (code == OPDOCK_DTYPE_INT || code == OPDOCK_DTYPE_UINT) {
    return fmt::format("{}", static_cast<int64_t>(value));
  }
  return fmt::format("{:.6g}", value);
}

std::string nested(const Array& array, size_t depth, int64_t offset) {
  constexpr int64_t kShown = 8, kEdge = 3;
  if (depth == array.shape.size()) return number_text(array, offset);
  const int64_t size = array.shape[depth];
  const bool is_last = depth + 1 == array.shape.size();
  const std::string between = is_last ? ", " : ",\n" + std::string(depth + 1, ' ');
  std::string text = "[";
  for (int64_t i = 0; i < size; ++i) {
    if (i > 0) text += between;
    if (size > kShown && i == kEdge) {
      text += "...";
      i = size - kEdge - 1;
      continue;
    }
    text += nested(array, depth + 1, offset + i * array.strides[depth]);
  }
  return text + "]";
}

}  // namespace

Array::Array(opdock_dtype dtype, std::vector<int64_t> sizes) : shape(std::move(sizes)) {
  strides.resize(shape.size());
  int64_t elements = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = elements;
    elements *= shape[i];
  }
  bytes.resize(static_cast<size_t>(elements) * ((dtype.bits + 7) / 8));
  tensor = {bytes.data(),
            {OPDOCK_CPU, 0},
            static_cast<int32_t>(shape.size()),
            dtype,
            shape.data(),
            strides.data(),
            0};
}

int64_t Array::size() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

double Array::get(int64_t index) const {
  const opdock_dtype dtype = tensor.dtype;
  const std::byte* at = bytes.data() + index * ((dtype.bits + 7) / 8);
  switch (dtype.code << 8 | dtype.bits) {
    case OPDOCK_DTYPE_FLOAT << 8 | 32:
      return load<float>(at);
    case OPDOCK_DTYPE_FLOAT << 8 | 64:
      return load<double>(at);
    case OPDOCK_DTYPE_FLOAT << 8 | 16:
      return load<half>(at);
    case OPDOCK_DTYPE_BFLOAT << 8 | 16:
      return load<bfloat16>(at);
    case OPDOCK_DTYPE_INT << 8 | 64:
      return load<int64_t>(at);
    case OPDOCK_DTYPE_INT << 8 | 32:
      return load<int32_t>(at);
    case OPDOCK_DTYPE_INT << 8 | 16:
      return load<int16_t>(at);
    case OPDOCK_DTYPE_INT << 8 | 8:
      return load<int8_t>(at);
    default:
      return load<uint8_t>(at);
  }
}

void Array::set(int64_t index, double value) {
  const opdock_dtype dtype = tensor.dtype;
  std::byte* at = bytes.data() + index * ((dtype.bits + 7) / 8);
  switch (dtype.code << 8 | dtype.bits) {
    case OPDOCK_DTYPE_FLOAT << 8 | 32:
      return store<float>(at, value);
    case OPDOCK_DTYPE_FLOAT << 8 | 64:
      return store<double>(at, value);
    case OPDOCK_DTYPE_FLOAT << 8 | 16:
      return store<uint16_t>(at, to_half(value));
    case OPDOCK_DTYPE_BFLOAT << 8 | 16:
      return store<uint16_t>(at, bfloat16(static_cast<float>(value)).bits);
    case OPDOCK_DTYPE_INT << 8 | 64:
      return store<int64_t>(at, value);
    case OPDOCK_DTYPE_INT << 8 | 32:
      return store<int32_t>(at, value);
    case OPDOCK_DTYPE_INT << 8 | 16:
      return store<int16_t>(at, value);
    case OPDOCK_DTYPE_INT << 8 | 8:
      return store<int8_t>(at, value);
    case OPDOCK_DTYPE_BOOL << 8 | 8:
      return store<uint8_t>(at, value != 0 ? 1 : 0);
    default:
      return store<uint8_t>(at, value);
  }
}

opdock_dtype parse_dtype_name(std::string_view name) {
  std::string known;
  for (const Dtype dtype : kDtypes) {
    if (name == dtype.name()) return dtype;
    known += (known.empty() ? "" : ", ") + dtype.name();
  }
  const std::string meant = meant_dtype(name);
  throw Usage{fmt::format("dtype \"{}\"", name), "one of " + known,
              meant.empty() ? "" : fmt::format("did you mean {}?", meant), "", ""};
}

std::string dtype_name(opdock_dtype dtype) {
  for (const Dtype known : kDtypes) {
    if (known == dtype) return known.name();
  }
  return fmt::format("dtype code {} of {} bits", dtype.code, dtype.bits);
}

std::unique_ptr<Array> parse_array(std::string_view text, uint64_t seed) {
  opdock_dtype dtype{OPDOCK_DTYPE_FLOAT, 32, 1};
  const size_t colon = text.rfind(':');
  if (colon != std::string_view::npos) {
    dtype = parse_dtype_name(text.substr(colon + 1));
    text = text.substr(0, colon);
  }
  if (text.starts_with("[")) return parse_literal(text, dtype);
  const size_t open = text.find('(');
  if (open == std::string_view::npos || !text.ends_with(")")) {
    refuse(text, "randn(4,8), zeros(…), ones(…), arange(10) or [1,2,3], each maybe with :DTYPE");
  }
  const std::string_view maker = text.substr(0, open);
  std::unique_ptr<Array> array =
      std::make_unique<Array>(dtype, parse_shape(text.substr(open + 1, text.size() - open - 2)));
  std::mt19937_64 generator(seed);
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < array->size(); ++i) {
    if (maker == "randn") {
      array->set(i, normal(generator));
    } else if (maker == "ones") {
      array->set(i, 1);
    } else if (maker == "arange") {
      array->set(i, static_cast<double>(i));
    } else if (maker != "zeros") {
      refuse(maker, "randn, zeros, ones or arange");
    }
  }
  return array;
}

std::vector<double> values_of(const Array& array) {
  std::vector<double> values;
  for (int64_t i = 0; i < array.size(); ++i) values.push_back(array.get(i));
  return values;
}

std::string to_text(const Array& array) {
  return fmt::format("{} ({})\n{}\n", dtype_name(array.tensor.dtype), fmt::join(array.shape, ", "),
                     nested(array, 0, 0));
}

}  // namespace opdock::cli
