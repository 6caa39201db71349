// Binds positional and named arguments to the parameters, in the schema's order.
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstring>

#include "base/quantity.h"
#include "call/function.h"
#include "schema/dtype.h"

namespace opdock {
namespace {

bool pointer_missing(const opdock_value& value) {
  switch (value.tag) {
    case OPDOCK_TAG_COMPLEX:
      return value.as.c128 == nullptr;
    case OPDOCK_TAG_STRING:
      return value.as.str == nullptr || (value.as.str->data == nullptr && value.as.str->size != 0);
    case OPDOCK_TAG_TENSOR:
      return value.as.tensor == nullptr;
    case OPDOCK_TAG_OBJECT:
      return value.as.object == nullptr;
    case OPDOCK_TAG_GENERATOR:
      return value.as.generator == nullptr;
    case OPDOCK_TAG_LIST:
      return value.as.list == nullptr ||
             (value.as.list->data == nullptr && value.as.list->count != 0);
    default:
      return false;
  }
}

bool is_bad_bool(const opdock_value& value) {
  return value.tag == OPDOCK_TAG_BOOL && value.as.i64 != 0 && value.as.i64 != 1;
}

bool is_short_object(const opdock_value& value) {
  return value.tag == OPDOCK_TAG_OBJECT && !is_whole(*value.as.object);
}

// Returns whether the value is an object whose struct is too short, or whose type is not the
// schema's.
bool is_bad_object(const opdock_value& value, const opdock_param& param) {
  if (value.tag != OPDOCK_TAG_OBJECT || param.tag != OPDOCK_TAG_OBJECT) return false;
  if (is_short_object(value)) return true;
  const char* type = value.as.object->type_id;
  return type == nullptr || std::strcmp(type, param.object_type) != 0;
}

// Returns the index of the first element that does not fit, or -1.
int64_t misfit_element(const opdock_value& value, const opdock_param& param) {
  const opdock_list& list = *value.as.list;
  for (uint64_t i = 0; i < list.count; ++i) {
    const opdock_value& element = list.data[i];
    bool none =
        element.tag == OPDOCK_TAG_NONE && (param.flags & OPDOCK_PARAM_OPTIONAL_ELEMENTS) != 0;
    if (!none && (element.tag != param.tag || pointer_missing(element) || is_bad_bool(element) ||
                  is_bad_object(element, param))) {
      return static_cast<int64_t>(i);
    }
  }
  return -1;
}

// Lists the names of the op's parameters, for a message.
std::string names_of(const opdock_function& function) {
  std::string text;
  for (uint32_t i = 0; i < function.num_params(); ++i) {
    text += text.empty() ? "" : ", ";
    text += function.params()[i].name;
  }
  return text.empty() ? "none" : text;
}

opdock_status refuse_argument(const opdock_function& function, const ErrorBuffer& error,
                              const std::string& text) {
  error.write(function.schema().name, ": ", text);
  return OPDOCK_INVALID_ARGUMENT;
}

// Stores one argument. Converts an int to a float where a float is wanted, as in Python; everything
// else must fit.
opdock_status place(const opdock_function& function, size_t index, const opdock_value& value,
                    opdock_value* bound, const ErrorBuffer& error) {
  const opdock_param& param = function.params()[index];
  *bound = value;
  if (param.tag == OPDOCK_TAG_FLOAT && value.tag == OPDOCK_TAG_INT &&
      (param.flags & OPDOCK_PARAM_LIST) == 0) {
    bound->tag = OPDOCK_TAG_FLOAT;
    bound->as.f64 = static_cast<double>(value.as.i64);
    return OPDOCK_OK;
  }
  if (fits(value, param)) return OPDOCK_OK;
  return refuse_argument(function, error,
                         "argument '" + std::string(param.name) +
                             "': " + misfit(value, param, function.schema().params[index].type));
}

}  // namespace

bool fits(const opdock_value& value, const opdock_param& param) {
  if (value.tag == OPDOCK_TAG_NONE) return (param.flags & OPDOCK_PARAM_OPTIONAL) != 0;
  if (pointer_missing(value) || is_bad_bool(value) || is_bad_object(value, param)) return false;
  if ((param.flags & OPDOCK_PARAM_LIST) == 0) return value.tag == param.tag;
  return value.tag == OPDOCK_TAG_LIST && misfit_element(value, param) < 0;
}

std::string name_of(const opdock_value& value) {
  if (value.tag != OPDOCK_TAG_OBJECT || value.as.object == nullptr) {
    return std::string(tag_text(value.tag));
  }
  if (is_short_object(value)) {
    return "an object of struct_size " + std::to_string(value.as.object->struct_size);
  }
  const char* type = value.as.object->type_id;
  return "an object of type " + std::string(type == nullptr ? "NULL" : type);
}

std::string misfit(const opdock_value& value, const opdock_param& param, const SchemaType& type) {
  const opdock_value* at_fault = &value;
  std::string where;
  if ((param.flags & OPDOCK_PARAM_LIST) != 0 && value.tag == OPDOCK_TAG_LIST &&
      !pointer_missing(value)) {
    const int64_t at = misfit_element(value, param);
    at_fault = &value.as.list->data[at];
    where = " as element " + std::to_string(at);
  }
  const std::string wanted = where + ", wanted " + to_text(type);
  if (pointer_missing(*at_fault)) {
    return "found " + std::string(tag_text(at_fault->tag)) + " behind a NULL pointer" + wanted +
           "; fill it in";
  }
  if (is_bad_bool(*at_fault)) {
    return "found a bool of value " + std::to_string(at_fault->as.i64) + where +
           ", wanted 0 or 1; correct it";
  }
  if (is_short_object(*at_fault)) {
    return "found " + name_of(*at_fault) + where + ", wanted at least " +
           std::to_string(offsetof(opdock_object, release) + sizeof at_fault->as.object->release) +
           ", through release; report it to its plugin's author";
  }
  const bool binds = at_fault == &value && value.tag == OPDOCK_TAG_INT &&
                     param.tag == OPDOCK_TAG_FLOAT && (param.flags & OPDOCK_PARAM_LIST) == 0;
  return "found " + name_of(*at_fault) + wanted +
         (binds ? "; opdock_bind converts it" : "; convert it");
}

opdock_status bind(const opdock_function& function, const opdock_value* positional,
                   uint32_t num_positional, const char* const* names, const opdock_value* named,
                   uint32_t num_named, opdock_value* bound, const ErrorBuffer& error) {
  const opdock_param* params = function.params();
  const size_t count = function.num_params();
  uint64_t given = 0;  // one bit per parameter; kMaxParams is 64
  if (num_positional > count) {
    return refuse_argument(function, error,
                           "found " + quantity(num_positional, "positional argument") +
                               ", wanted at most " + std::to_string(count) + " (" +
                               names_of(function) + "); remove some");
  }
  for (uint32_t i = 0; i < num_positional; ++i) {
    if ((params[i].flags & OPDOCK_PARAM_KEYWORD_ONLY) != 0) {
      return refuse_argument(function, error,
                             "argument '" + std::string(params[i].name) +
                                 "': found it given by position, wanted by name; write " +
                                 params[i].name + "=…");
    }
    opdock_status status = place(function, i, positional[i], &bound[i], error);
    if (status != OPDOCK_OK) return status;
    given |= uint64_t{1} << i;
  }
  for (uint32_t k = 0; k < num_named; ++k) {
    size_t at = 0;
    // Fast path: the caller passes the pointer to the parameter's own name.
    while (at < count && params[at].name != names[k]) ++at;
    if (at == count) {
      at = 0;
      while (at < count && std::strcmp(params[at].name, names[k]) != 0) ++at;
    }
    if (at == count) {
      return refuse_argument(function, error,
                             "argument '" + std::string(names[k]) +
                                 "': found an unexpected name, wanted one of " +
                                 names_of(function) + "; correct or remove it");
    }
    if ((given >> at & 1) != 0) {
      return refuse_argument(function, error,
                             "argument '" + std::string(names[k]) + "': found it given twice" +
                                 (at < num_positional ? ", by position and by name" : "") +
                                 ", wanted once; remove one");
    }
    opdock_status status = place(function, at, named[k], &bound[at], error);
    if (status != OPDOCK_OK) return status;
    given |= uint64_t{1} << at;
  }
  for (size_t i = 0; i < count; ++i) {
    if ((given >> i & 1) != 0) continue;
    if ((params[i].flags & OPDOCK_PARAM_HAS_DEFAULT) == 0) {
      return refuse_argument(function, error,
                             "argument '" + std::string(params[i].name) +
                                 "': found nothing, wanted " +
                                 to_text(function.schema().params[i].type) + "; pass it");
    }
    bound[i] = params[i].fallback;
  }
  return OPDOCK_OK;
}

}  // namespace opdock
