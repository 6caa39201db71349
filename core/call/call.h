// The parts of the call path that check arguments and outputs and that allocate outputs.
// opdock_plan_call, opdock_run_planned and opdock_invoke (core/api/call.cc) combine them with the
// phases (phases.h).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/guarded.h"
#include "call/function.h"
#include "opdock/opdock.h"

namespace opdock {

// Computes the strides of a fresh tensor: contiguous, row-major. The strides of an empty tensor do
// not matter, nor do the strides of a shape too large for any memory. `strides` has room for all
// dimensions. (call_outputs.cc)
void set_strides(const opdock_output& output, int64_t* strides);

// Checks every argument by itself and against the others, and finds the op's target on their
// device. Returns NULL with a status and a text if something is wrong. Accepts shapes without data
// only when planning. Does not check whether the arguments share memory: check_sharing() does.
// (call_arguments.cc)
Target* check_arguments(const opdock_function& function, const opdock_value* args,
                        uint32_t num_args, bool planning, opdock_status* status,
                        const ErrorBuffer& error);

// Does what check_arguments() does for arguments that were already checked when the call was
// planned: checks only what a plan over shapes without data could not see. (call_arguments.cc)
Target* recheck_arguments(const opdock_function& function, const opdock_value* args,
                          uint32_t num_args, opdock_status* status, const ErrorBuffer& error);

// Describes how a plan breaks the interface; "" if it does not. (call_outputs.cc)
std::string plan_problem(const opdock_plan& plan);

// Checks the caller's outputs by themselves and against the plan. may_lack: the host allocates an
// output that is NULL. (call_outputs.cc)
opdock_status check_outputs(const opdock_function& function, const Target& target,
                            const opdock_plan& plan, opdock_tensor* const* outputs,
                            uint32_t num_outputs, bool may_lack, const ErrorBuffer& error);

// Checks that outputs (unless NULL) and written arguments do not share memory with any other tensor
// of the call. All of them have already been checked by themselves. (call_sharing.cc)
opdock_status check_sharing(const opdock_function& function, const Target& target,
                            const opdock_value* args, opdock_tensor* const* outputs,
                            uint32_t num_outputs, const ErrorBuffer& error);

// Allocates an output as planned, in memory that the host owns. (call_allocate.cc)
Status allocate_output(const Target& target, void* stream, const opdock_output& layout,
                       opdock_tensor** out);
void free_output(opdock_tensor* tensor);

}  // namespace opdock
