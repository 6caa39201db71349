// An op's schema: what it takes and what it returns. docs/reference/abi.md has the grammar, a
// subset of PyTorch's.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/reason.h"
#include "opdock/plugin.h"

namespace opdock {

// Limits that let a call keep its bookkeeping on the stack.
inline constexpr size_t kMaxParams = 64;
inline constexpr size_t kMaxReturns = 32;

// A type. `tag` is OPDOCK_TAG_TENSOR, OPDOCK_TAG_FLOAT, …; for a list it is that of the elements.
struct SchemaType {
  uint32_t tag = 0;
  bool list = false;
  bool optional_element = false;  // Tensor?[]: an element may be None
  bool optional = false;          // Tensor?, int[]?: None is accepted
  char alias = 0;                 // 'a' in Tensor(a!); 0: none. An aliased tensor is written.
  std::string object;             // "aio_handle" in Object(aio_handle)
};

// A default value. `tag` is OPDOCK_TAG_NONE, _BOOL, _INT, _FLOAT, _COMPLEX (real part only),
// _STRING or _LIST; the member of that type holds it.
struct SchemaDefault {
  uint32_t tag = 0;
  int64_t integer = 0;  // bools too
  double real = 0;      // the real part of a complex number too
  std::string text;
  std::vector<SchemaDefault> items;
};

struct SchemaParam {
  std::string name;
  SchemaType type;
  bool keyword_only = false;
  std::optional<SchemaDefault> fallback;
};

struct SchemaReturn {
  SchemaType type;
  int param = -1;  // index of the parameter that is returned (the one with this alias); -1: none

  // Returns whether the call makes the result: a Tensor, Tensor? or Tensor[]. Each of them has a
  // shape rule.
  bool is_fresh_tensor() const { return type.tag == OPDOCK_TAG_TENSOR && type.alias == 0; }
};

struct Schema {
  std::string name;
  std::vector<SchemaParam> params;
  std::vector<SchemaReturn> returns;

  // Returns the canonical text: one spelling for one meaning, so that its digest identifies the
  // schema.
  std::string text() const;
  // Returns the SHA-256 of text(), 64 hexadecimal digits.
  std::string digest() const;
  // Returns the number of results with is_fresh_tensor().
  size_t fresh_results() const;
  // Returns whether one of those results is optional or a list, so that only the arguments tell how
  // many tensors there are.
  bool is_variable() const;
  // Returns the index of the parameter, or -1.
  int find(std::string_view param) const;
  // Returns the index of the first parameter of type Tensor, Tensor? or a list of them, or -1.
  int first_tensor() const;
};

// Parses a schema. On failure returns nullopt, sets *error (Code::kSchemaInvalid) to what is at
// which position (in bytes, from 0) and what is allowed there, and sets *at, if given, to that
// position.
std::optional<Schema> parse_schema(std::string_view text, Reason* error, size_t* at = nullptr);

// Returns the spelling of a type: "Tensor?[]", "ScalarType", "Tensor(a!)".
std::string to_text(const SchemaType& type);

}  // namespace opdock
