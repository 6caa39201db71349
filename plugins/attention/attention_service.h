// Prompts that the host's attention service computes, and their gradients (opdock/attention.h).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention_arguments.h"

namespace attention {

// Returns whether the service computes the prompt, and in *bytes the workspace that it needs.
bool plan_service(const Plan& plan, const Arguments& of, bool wants_lse, uint64_t* bytes);
// Returns whether the service has enqueued the prompt. The results may not suit it although it has
// planned the prompt: then the plugin's own kernels have to serve.
bool run_service(Call& call, const Arguments& of, Tensor out, const OptionalTensor& lse);

// The tensors besides the prompt from which its gradients are computed.
struct Gradient {
  Tensor grad, result;
  OptionalTensor lse, grad_lse;
};
bool plan_service(const Plan& plan, const Arguments& of, const Gradient& from, uint64_t* bytes);
bool run_service(Call& call, const Arguments& of, const Gradient& from, Tensor grad_q,
                 Tensor grad_k, Tensor grad_v);

}  // namespace attention
