// SPDX-License-Identifier: Apache-2.0
#include "schema.h"

#include <charconv>
#include <cmath>
#include <string_view>

namespace opdock::torch {

namespace {

const char* type_name(uint32_t tag) {
  switch (tag) {
    case OPDOCK_TAG_BOOL:
      return "bool";
    case OPDOCK_TAG_INT:
      return "SymInt";
    case OPDOCK_TAG_FLOAT:
      return "float";
    case OPDOCK_TAG_STRING:
      return "str";
    case OPDOCK_TAG_DTYPE:
      return "ScalarType";
    case OPDOCK_TAG_DEVICE:
      return "Device";
    default:
      return "Tensor";
  }
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

// Writes a number as Python's repr() does: with an exponent below 0.0001 and from 1e16 on.
std::string number(double value) {
  char room[32];
  const double size = std::abs(value);
  const bool is_plain = size == 0 || (size >= 1e-4 && size < 1e16);
  const std::to_chars_result done =
      std::to_chars(room, room + sizeof room, value,
                    is_plain ? std::chars_format::fixed : std::chars_format::scientific);
  std::string text(room, done.ptr);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

// Returns false for a default that torch's schemas cannot have.
bool add_constant(const opdock_value& value, std::string* out) {
  switch (value.tag) {
    case OPDOCK_TAG_NONE:
      *out += "None";
      return true;
    case OPDOCK_TAG_BOOL:
      *out += value.as.i64 != 0 ? "True" : "False";
      return true;
    case OPDOCK_TAG_INT:
      *out += std::to_string(value.as.i64);
      return true;
    case OPDOCK_TAG_FLOAT:
      *out += number(value.as.f64);
      return std::isfinite(value.as.f64);
    case OPDOCK_TAG_STRING:
      *out += quoted({value.as.str->data, value.as.str->size});
      return true;
    case OPDOCK_TAG_LIST: {
      *out += '[';
      for (uint64_t i = 0; i < value.as.list->count; ++i) {
        if (i != 0) *out += ", ";
        if (!add_constant(value.as.list->data[i], out)) return false;
      }
      *out += ']';
      return true;
    }
    default:
      return false;
  }
}

std::string type_of(const Parameter& parameter, char alias) {
  std::string text = type_name(parameter.tag);
  if (parameter.is_written) text += std::string("(") + alias + "!)";
  if (parameter.is_list) text += parameter.has_optional_elements ? "?[]" : "[]";
  if (parameter.is_optional) text += '?';
  return text;
}

}  // namespace

std::string schema(const Operator& op) {
  std::string inside;
  bool has_default = false;
  bool has_star = false;
  char alias = 'a';
  for (const Parameter& parameter : op.parameters) {
    const opdock_param& declared = op.info->params[parameter.index];
    const bool is_default = (declared.flags & OPDOCK_PARAM_HAS_DEFAULT) != 0;
    if (parameter.is_written && alias > 'z') return "";
    if (!inside.empty()) inside += ", ";
    if (!is_default && has_default && !has_star) {
      inside += "*, ";  // what has no default cannot follow what has one
      has_star = true;
    }
    inside += type_of(parameter, alias) + ' ' + declared.name;
    if (parameter.is_written) ++alias;
    if (!is_default) continue;
    has_default = true;
    inside += '=';
    if (!add_constant(declared.fallback, &inside)) return "";
  }
  std::string results;
  for (const Result& result : op.results) {
    if (!results.empty()) results += ", ";
    results += "Tensor";
    if (result.is_list) results += "[]";
    if (result.is_optional) results += '?';
  }
  if (op.results.size() != 1) results = '(' + results + ')';
  return op.name + '(' + inside + ") -> " + results;
}

}  // namespace opdock::torch
