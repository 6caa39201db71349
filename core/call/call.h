// The call path: check, plan, prepare, run. opdock.h says what each function promises.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "call/error_text.h"
#include "call/function.h"
#include "opdock/opdock.h"

namespace opdock {

// opdock_plan_call.
opdock_status plan_call(const opdock_function& function, const opdock_call_options* options,
                        const opdock_value* args, uint32_t num_args, opdock_plan* plan,
                        const ErrorBuffer& error);
// opdock_run_planned.
opdock_status run_planned(const opdock_function& function, const opdock_call_options* options,
                          const opdock_plan* plan, const opdock_value* args, uint32_t num_args,
                          opdock_tensor* const* outputs, uint32_t num_outputs,
                          const ErrorBuffer& error);
// opdock_invoke.
opdock_status invoke(const opdock_function& function, const opdock_call_options* options,
                     const opdock_value* args, uint32_t num_args, opdock_tensor** outputs,
                     uint32_t num_outputs, const ErrorBuffer& error);
// opdock_prepare.
opdock_status prepare(const opdock_function& function, opdock_device device,
                      const ErrorBuffer& error);

// ---- parts of it, each in a file of its own

// What opdock_call_options says, whatever its struct_size.
struct CallOptions {
  uint32_t flags = 0;
  void* stream = nullptr;
  const opdock_generator* generator = nullptr;
  void* workspace = nullptr;
  uint64_t workspace_bytes = 0;
};

// Checks every argument by itself and against the others, and finds the op's target on their
// device. NULL, a status and a text if something is wrong. Shapes without data will do only for
// planning. (arguments.cc)
Target* check_arguments(const opdock_function& function, const opdock_value* args,
                        uint32_t num_args, bool planning, opdock_status* status,
                        const ErrorBuffer& error);

// The same for arguments that were checked when the call was planned: looks only at what a plan
// over shapes without data could not see. (arguments.cc)
Target* recheck_arguments(const opdock_function& function, const opdock_value* args,
                          uint32_t num_args, opdock_status* status, const ErrorBuffer& error);

// The text for a plan that breaks the interface, or "". (outputs.cc)
std::string plan_problem(const opdock_plan& plan);

// Checks the outputs against the plan, themselves, each other and the inputs. (outputs.cc)
opdock_status check_outputs(const opdock_function& function, const Target& target,
                            const opdock_plan& plan, const opdock_value* args,
                            opdock_tensor* const* outputs, uint32_t num_outputs,
                            const ErrorBuffer& error);

// An output as planned, in memory of the host's. (allocate.cc)
opdock_status allocate_output(const Target& target, void* stream, const opdock_output& layout,
                              opdock_tensor** out, std::string* problem);
void free_output(opdock_tensor* tensor);

}  // namespace opdock
