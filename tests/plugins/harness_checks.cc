// The checks of a call that the host makes, for the harness: by the host's own functions, which
// libopdock does not export.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>

#include "call/call.h"
#include "harness.h"
#include "opdock/types.hpp"

namespace opdock_test {

struct Op::Host {
  explicit Host(const opdock_op* op)
      : function("test", *opdock::parse_schema(op->schema, nullptr), nullptr) {
    target.op = op;
    const std::vector<std::string> shapes(op->shape_rules, op->shape_rules + op->num_shape_rules);
    opdock::Reason error{};
    if (!read_tensor_rules(*op, *parse_shape_rules(shapes, function.schema(), &error),
                           &target.tensor_rules, &error)) {
      std::fprintf(stderr, "%s\n", opdock::to_text(error).c_str());
      std::abort();
    }
  }
  const opdock::TensorRules* rules() const { return target.tensor_rules.get(); }

  opdock_function function;
  opdock::Target target;
};

std::shared_ptr<const Op::Host> Op::host_of(const opdock_op* op) {
  return std::make_shared<const Host>(op);
}

void Op::check_arguments(const std::vector<opdock_value>& args, Result* result) const {
  if (host_->rules() == nullptr) return;
  // pass() and check() are both asked, as pass() must accept no argument that check() refuses.
  const bool has_passed = host_->rules()->pass(args.data());
  try {
    host_->rules()->check(args.data());
  } catch (const opdock::Error& broken) {
    result->status = broken.status();
    result->text = has_passed ? "found arguments that passed, wanted none" : broken.what();
  }
}

void Op::check_outputs(const std::vector<opdock_value>& args, const std::vector<Array*>& outputs,
                       Result* result) const {
  std::vector<opdock_tensor*> tensors;
  for (Array* output : outputs) tensors.push_back(output->tensor());
  const uint32_t count = static_cast<uint32_t>(tensors.size());
  try {
    for (uint32_t i = 0; host_->rules() != nullptr && i < count; ++i)
      host_->rules()->check_result(i, i, tensors[i]);
  } catch (const opdock::Error& broken) {
    result->status = broken.status();
    result->text = broken.what();
    return;
  }
  char error[1024] = "";
  result->status = opdock::check_sharing(host_->function, host_->target, args.data(),
                                         tensors.data(), count, {error, sizeof error});
  result->text = error;
}

}  // namespace opdock_test
