// The function of formula.h.
// SPDX-License-Identifier: Apache-2.0
#include "opdock/formula.h"

#include "base/guarded.h"
#include "chain/formula_functions.h"
#include "chain/runtime.h"

opdock_status opdock_make_function(opdock_runtime* runtime, const char* schema, const char* formula,
                                   opdock_function** out, char* error, uint32_t error_size) {
  const opdock::ErrorBuffer buffer{error, error_size};
  if (runtime == nullptr || formula == nullptr || out == nullptr) {
    return opdock::missing(buffer, "a runtime, a formula and room for the function");
  }
  *out = nullptr;
  return opdock::guarded(buffer, [&] {
    opdock::check_settings(*runtime);
    return opdock::formula_function(runtime, schema == nullptr ? "" : schema, formula, "", out);
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
    return opdock::formula_function(runtime, schema == nullptr ? "" : schema, formula, params, out);
  });
}
