// The functions of opdock.h that find ops, describe them and bind their arguments; call.cc has
// those that call them.
// SPDX-License-Identifier: Apache-2.0
#include "base/guarded.h"
#include "call/call.h"
#include "call/infer.h"
#include "call/results.h"
#include "chain/function_table.h"
#include "chain/runtime.h"
#include "opdock/opdock.h"

namespace {

using opdock::ErrorBuffer;
using opdock::guarded;
using opdock::missing;

}  // namespace

extern "C" {

opdock_status opdock_get_function(opdock_runtime* runtime, const char* name, opdock_function** out,
                                  char* error, uint32_t error_size) {
  ErrorBuffer buffer{error, error_size};
  if (runtime == nullptr || name == nullptr || out == nullptr) {
    return missing(buffer, "a runtime, a name and room for the function");
  }
  *out = nullptr;
  return guarded(buffer, [&] {
    opdock::check_settings(*runtime);
    return opdock::function_table(runtime).get(name, out);
  });
}

const opdock_function_info* opdock_describe(const opdock_function* function) {
  return function == nullptr ? nullptr : &function->info();
}

const char* opdock_function_doc(const opdock_function* function) {
  const char* doc = "";
  guarded({}, [&] {
    if (function != nullptr) doc = function->doc();
    return OPDOCK_OK;
  });
  return doc;
}

opdock_status opdock_count_results(const opdock_function* function, const opdock_value* args,
                                   uint32_t num_args, uint32_t* counts, char* error,
                                   uint32_t error_size) {
  ErrorBuffer buffer{error, error_size};
  if (function == nullptr || counts == nullptr || (args == nullptr && num_args != 0)) {
    return missing(buffer, "a function, its arguments and room for a count of each result");
  }
  return guarded(
      buffer, [&] { return opdock::count_tensors(*function, {args, num_args}, counts, buffer); });
}

opdock_status opdock_infer_results(const opdock_function* function, const opdock_value* args,
                                   uint32_t num_args, opdock_output* outputs, uint32_t room,
                                   char* error, uint32_t error_size) {
  ErrorBuffer buffer{error, error_size};
  if (function == nullptr || (args == nullptr && num_args != 0) ||
      (outputs == nullptr && room != 0)) {
    return missing(buffer, "a function, its arguments and room for as many outputs as `room` says");
  }
  return guarded(
      buffer, [&] { return opdock::infer(*function, {args, num_args}, {outputs, room}, buffer); });
}

opdock_status opdock_manual_seed(opdock_runtime* runtime, uint64_t seed, char* error,
                                 uint32_t error_size) {
  ErrorBuffer buffer{error, error_size};
  if (runtime == nullptr) return missing(buffer, "a runtime");
  return guarded(buffer, [&] {
    opdock::function_table(runtime).seed(seed);
    return OPDOCK_OK;
  });
}

void opdock_value_free(opdock_value* value) {
  opdock::free_value(value);
}

opdock_status opdock_bind(const opdock_function* function, const opdock_value* positional,
                          uint32_t num_positional, const char* const* names,
                          const opdock_value* named, uint32_t num_named, opdock_value* bound,
                          char* error, uint32_t error_size) {
  ErrorBuffer buffer{error, error_size};
  if (function == nullptr || (positional == nullptr && num_positional != 0) ||
      ((names == nullptr || named == nullptr) && num_named != 0) ||
      (bound == nullptr && function->num_params() != 0)) {
    return missing(
        buffer,
        "a function, as many arguments and names as are counted, and room for the bound arguments");
  }
  return guarded(buffer, [&] {
    return opdock::bind(*function, positional, num_positional, names, named, num_named, bound,
                        buffer);
  });
}

}  // extern "C"
