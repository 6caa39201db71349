// The parts of the call path that check and allocate; opdock_plan_call, opdock_run_planned and
// opdock_invoke (core/api/call.cc) put them together with the phases (phases.h).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/guarded.h"
#include "call/function.h"
#include "opdock/opdock.h"

namespace opdock {

// The strides of a fresh tensor: contiguous, row-major. Those of an empty one do not matter, nor do
// those of shapes that no memory has. `strides` has room for all dimensions. (call_outputs.cc)
void set_strides(const opdock_output& output, int64_t* strides);

// Checks every argument by itself and against the others, and finds the op's target on their
// device. NULL, a status and a text if something is wrong. Shapes without data will do only for
// planning. What they share with others is not looked at: check_sharing(). (call_arguments.cc)
Target* check_arguments(const opdock_function& function, const opdock_value* args,
                        uint32_t num_args, bool planning, opdock_status* status,
                        const ErrorBuffer& error);

// The same for arguments that were checked when the call was planned: looks only at what a plan
// over shapes without data could not see. (call_arguments.cc)
Target* recheck_arguments(const opdock_function& function, const opdock_value* args,
                          uint32_t num_args, opdock_status* status, const ErrorBuffer& error);

// The text for a plan that breaks the interface, or "". (call_outputs.cc)
std::string plan_problem(const opdock_plan& plan);

// Checks the caller's outputs against the plan and by themselves. may_lack: one that is NULL is the
// host's to allocate. (call_outputs.cc)
opdock_status check_outputs(const opdock_function& function, const Target& target,
                            const opdock_plan& plan, opdock_tensor* const* outputs,
                            uint32_t num_outputs, bool may_lack, const ErrorBuffer& error);

// Checks, once they are checked by themselves, that outputs (those that are not NULL) and written
// arguments share memory with nothing else of the call. (call_sharing.cc)
opdock_status check_sharing(const opdock_function& function, const Target& target,
                            const opdock_value* args, opdock_tensor* const* outputs,
                            uint32_t num_outputs, const ErrorBuffer& error);

// An output as planned, in memory of the host's. (call_allocate.cc)
Status allocate_output(const Target& target, void* stream, const opdock_output& layout,
                       opdock_tensor** out);
void free_output(opdock_tensor* tensor);

}  // namespace opdock
