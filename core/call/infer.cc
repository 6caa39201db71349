// SPDX-License-Identifier: Apache-2.0
#include "call/infer.h"

#include "base/quantity.h"
#include "call/tensor_arguments.h"
#include "call/tensor_check.h"

namespace opdock {
namespace {

opdock_status unfit(const opdock_function& function, const ErrorBuffer& error,
                    const std::string& text) {
  error.write(function.schema().name, ": ", text);
  return OPDOCK_INVALID_ARGUMENT;
}

// Checks that the arguments fit the schema, that their tensors have valid shapes, and that there is
// one rule for each result with fresh tensors.
opdock_status check(const opdock_function& function, std::span<const opdock_value> args,
                    const ErrorBuffer& error) {
  if (args.size() != function.num_params()) {
    return unfit(function, error,
                 "found " + quantity(args.size(), "argument") + ", wanted all " +
                     std::to_string(function.num_params()) +
                     " of the schema; opdock_bind fills in defaults");
  }
  for (size_t i = 0; i < args.size(); ++i) {
    const opdock_param& param = function.params()[i];
    if (fits(args[i], param)) continue;
    return unfit(function, error,
                 "argument '" + std::string(param.name) +
                     "': " + misfit(args[i], param, function.schema().params[i].type));
  }
  std::string problem;
  each_tensor(function, args.data(), [&](ArgumentPlace place, const opdock_value& value) {
    const opdock_tensor* x = value.as.tensor;
    // OPDOCK_VALUE_NO_DATA, because no rule looks at data.
    const TensorProblem found = check_tensor(x, OPDOCK_VALUE_NO_DATA);
    if (found == TensorProblem::kNone) return true;
    problem = name_of(function, place) + ": " + describe(found, x);
    return false;
  });
  if (!problem.empty()) return unfit(function, error, problem);
  if (function.rules().size() == function.fresh()) return OPDOCK_OK;
  return unfit(function, error,
               "found " + quantity(function.rules().size(), "shape rule") + ", wanted " +
                   std::to_string(function.fresh()) +
                   "; the plugin that provides the op must declare them");
}

}  // namespace

opdock_status count_tensors(const opdock_function& function, std::span<const opdock_value> args,
                            uint32_t* counts, const ErrorBuffer& error) {
  const opdock_status status = check(function, args, error);
  if (status != OPDOCK_OK) return status;
  size_t rule = 0;
  for (uint32_t i = 0; i < function.num_results(); ++i) {
    counts[i] = 0;
    if (!function.schema().returns[i].is_fresh_tensor()) continue;
    std::string problem;
    if (!count_tensors(function.rules()[rule++], function.schema(), args, &counts[i], &problem)) {
      return unfit(function, error, problem);
    }
  }
  return OPDOCK_OK;
}

opdock_status infer(const opdock_function& function, std::span<const opdock_value> args,
                    std::span<opdock_output> outputs, const ErrorBuffer& error) {
  const opdock_status status = check(function, args, error);
  if (status != OPDOCK_OK) return status;
  size_t needed = 0;
  for (const ShapeRule& rule : function.rules()) {
    uint32_t count = 0;
    std::string problem;
    bool is_good = count_tensors(rule, function.schema(), args, &count, &problem);
    for (uint32_t k = 0; is_good && k < count && needed + k < outputs.size(); ++k) {
      is_good = evaluate(rule, function.schema(), args, k, &outputs[needed + k], &problem);
    }
    if (!is_good) return unfit(function, error, problem);
    needed += count;
  }
  if (needed == outputs.size()) return OPDOCK_OK;
  return unfit(function, error,
               "found room for " + quantity(outputs.size(), "output") + ", wanted " +
                   std::to_string(needed) + "; ask opdock_count_results");
}

}  // namespace opdock
