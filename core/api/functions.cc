// The functions of opdock.h that find ops, describe them and bind their arguments; call/call.cc has
// those that call them.
// SPDX-License-Identifier: Apache-2.0
#include <mutex>

#include "api/resolver.h"
#include "api/runtime.h"
#include "base/mutex.h"
#include "call/call.h"
#include "call/guarded.h"
#include "opdock/opdock.h"

namespace {

using opdock::ErrorBuffer;
using opdock::FunctionTable;
using opdock::guarded;
using opdock::missing;

opdock::Mutex& making_tables = *new opdock::Mutex;

}  // namespace

FunctionTable& opdock::function_table(opdock_runtime* runtime) {
  const std::lock_guard lock(making_tables);
  if (runtime->functions == nullptr) {
    runtime->functions = std::make_shared<FunctionTable>(runtime);
  }
  return *static_cast<FunctionTable*>(runtime->functions.get());
}

extern "C" {

opdock_status opdock_get_function(opdock_runtime* runtime, const char* name, opdock_function** out,
                                  char* error, uint32_t error_size) {
  ErrorBuffer buffer{error, error_size};
  if (runtime == nullptr || name == nullptr || out == nullptr) {
    return missing(buffer, "a runtime, a name and a place for the function");
  }
  *out = nullptr;
  if (const opdock_status status = opdock::check_settings(*runtime, error, error_size);
      status != OPDOCK_OK) {
    return status;
  }
  return guarded(buffer, [&] {
    std::string problem;
    opdock_status status = opdock::function_table(runtime).get(name, out, &problem);
    if (status != OPDOCK_OK) buffer.write(problem);
    return status;
  });
}

const char* opdock_function_schema(const opdock_function* function) {
  return function == nullptr ? "" : function->schema_text();
}

const char* opdock_function_doc(const opdock_function* function) {
  if (function == nullptr) return "";
  try {
    return function->doc();
  } catch (const std::exception&) {
    return "";
  }
}

const opdock_param* opdock_function_params(const opdock_function* function, uint32_t* count) {
  if (count != nullptr) {
    *count = function == nullptr ? 0 : static_cast<uint32_t>(function->params().size());
  }
  return function == nullptr ? nullptr : function->params().data();
}

void opdock_function_results(const opdock_function* function, uint32_t* fresh, uint32_t* all) {
  if (fresh != nullptr) *fresh = function == nullptr ? 0 : function->fresh();
  if (all != nullptr) *all = function == nullptr ? 0 : function->all();
}

int32_t opdock_function_may_block(const opdock_function* function) {
  return function != nullptr && function->may_block ? 1 : 0;
}

void opdock_tensor_free(opdock_tensor* tensor) {
  opdock::free_output(tensor);
}

opdock_status opdock_bind(const opdock_function* function, const opdock_value* positional,
                          uint32_t num_positional, const char* const* names,
                          const opdock_value* named, uint32_t num_named, opdock_value* bound,
                          char* error, uint32_t error_size) {
  ErrorBuffer buffer{error, error_size};
  if (function == nullptr || (positional == nullptr && num_positional != 0) ||
      ((names == nullptr || named == nullptr) && num_named != 0) ||
      (bound == nullptr && !function->params().empty())) {
    return missing(buffer, "a function, the arguments it is told of, and room for bound ones");
  }
  return guarded(buffer, [&] {
    return opdock::bind(*function, positional, num_positional, names, named, num_named, bound,
                        buffer);
  });
}

}  // extern "C"
