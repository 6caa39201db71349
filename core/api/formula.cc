// The functions of formula.h.
// SPDX-License-Identifier: Apache-2.0
#include "opdock/formula.h"

#include <cstring>
#include <new>
#include <optional>

#include "base/guarded.h"
#include "call/function.h"
#include "chain/formula_functions.h"
#include "chain/runtime.h"
#include "fused/kernel_source.h"
#include "manifest/formula_parameters.h"
#include "opdock/types.hpp"

opdock_status opdock_make_function(opdock_runtime* runtime, const char* schema, const char* formula,
                                   opdock_function** out, char* error, uint32_t error_size) {
  const opdock::ErrorBuffer buffer{error, error_size};
  if (runtime == nullptr || formula == nullptr || out == nullptr) {
    return opdock::missing(buffer, "a runtime, a formula and room for the function");
  }
  *out = nullptr;
  return opdock::guarded(buffer, [&] {
    opdock::check_settings(*runtime);
    return opdock::formula_function(runtime, schema == nullptr ? "" : schema, formula, "", false,
                                    out);
  });
}

opdock_status opdock_make_evaluator(opdock_runtime* runtime, const char* schema,
                                    const char* formula, opdock_function** out, char* error,
                                    uint32_t error_size) {
  const opdock::ErrorBuffer buffer{error, error_size};
  if (runtime == nullptr || formula == nullptr || out == nullptr) {
    return opdock::missing(buffer, "a runtime, a formula and room for the function");
  }
  *out = nullptr;
  return opdock::guarded(buffer, [&] {
    opdock::check_settings(*runtime);
    return opdock::formula_function(runtime, schema == nullptr ? "" : schema, formula, "", true,
                                    out);
  });
}

opdock_status opdock_make_gradient(opdock_runtime* runtime, const char* schema, const char* formula,
                                   const char* params, opdock_function** out, char* error,
                                   uint32_t error_size) {
  const opdock::ErrorBuffer buffer{error, error_size};
  if (runtime == nullptr || formula == nullptr || params == nullptr || out == nullptr) {
    return opdock::missing(buffer, "a runtime, a formula, parameters and room for the function");
  }
  *out = nullptr;
  return opdock::guarded(buffer, [&] {
    opdock::check_settings(*runtime);
    return opdock::formula_function(runtime, schema == nullptr ? "" : schema, formula, params,
                                    false, out);
  });
}

const char* opdock_function_formula(const opdock_function* function) {
  const char* formula = "";
  opdock::guarded({}, [&] {
    if (function != nullptr) formula = function->formula();
    return OPDOCK_OK;
  });
  return formula;
}

static std::string source_of(const opdock_function& function, const char* dtype) {
  const opdock::Schema& schema = function.schema();
  const std::string text = function.formula();
  if (text.empty())
    throw opdock::Error(OPDOCK_NOT_FOUND,
                        "op '" + schema.name +
                            "': found no formula that can be loaded, wanted an op that is one; "
                            "`opdock explain " +
                            schema.name + "` says what provides it");
  const std::optional<opdock::formula::Type> type = opdock::formula::find_type(dtype);
  if (!type)
    throw opdock::Error(OPDOCK_INVALID_ARGUMENT,
                        "found the dtype \"" + std::string(dtype) +
                            "\", wanted bool, uint8, int8 to int64, float16, bfloat16, float32 or "
                            "float64");
  try {
    const opdock::formula::Formula formula(text, opdock::formula_parameters(schema));
    return opdock::kernel_source(schema, formula, *type);
  } catch (const opdock::formula::Error& problem) {
    throw opdock::Error(OPDOCK_INVALID_ARGUMENT,
                        "op '" + schema.name + "' for " + dtype + ": formula: " + problem.what());
  }
}

opdock_status opdock_formula_source(const opdock_function* function, const char* dtype, char** out,
                                    char* error, uint32_t error_size) {
  const opdock::ErrorBuffer buffer{error, error_size};
  if (function == nullptr || dtype == nullptr || out == nullptr) {
    return opdock::missing(buffer, "a function, a dtype and room for the text");
  }
  *out = nullptr;
  return opdock::guarded(buffer, [&] {
    *out = strdup(source_of(*function, dtype).c_str());
    if (*out == nullptr) throw std::bad_alloc();
    return OPDOCK_OK;
  });
}
