// The forward pass of attention and the pass of its gradients, for the ops over batches and those
// over sequences: what each plans and runs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention_arguments.h"
#include "attention_cpu.h"
#include "attention_service.h"

namespace attention {

struct BackwardArguments : Gradient {
  Arguments of;
};

// Check the arguments and plan workspace and state; the op describes its results.
void plan_forward_pass(Plan& plan, const Arguments& of, bool wants_lse);
void plan_gradient_pass(Plan& plan, const BackwardArguments& a);
// Shared by the gradients of q, k and v and those of what is added to the scores: the arguments
// from an op's; checks of them; their parameters, except the results, which do not exist while
// planning; and the bytes of BackwardParams::rows on the CPU.
BackwardArguments gathered(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor result,
                           OptionalTensor lse, OptionalTensor grad_lse, OptionalTensor lengths,
                           OptionalTensor mask, OptionalTensor bias, OptionalTensor slopes,
                           std::optional<double> scale, bool causal, int64_t window);
void check_gradient(const Plan& plan, const BackwardArguments& a);
BackwardParams make_backward_params(const BackwardArguments& a);
uint64_t row_bytes_on_cpu(Tensor q);
// out, grad_q, grad_k, grad_v: [batch, token, head, element]; lse: [batch, head, query], if wanted.
void run_forward_pass(opdock::Call& call, Tensor out, const OptionalTensor& lse,
                      const Arguments& of);
void run_gradient_pass(opdock::Call& call, const BackwardArguments& a, Tensor grad_q, Tensor grad_k,
                       Tensor grad_v);

// Returns the dtype of the logarithms of q's sums. dtype: the caller's; throws an Error for another
// than float32, or float64 for q of float64.
opdock::Dtype dtype_of_logarithms(Tensor q, std::optional<opdock::Dtype> dtype);

// The passes over sequences on the CPU, by the kernels for batches, for each of which a sequence is
// a batch of its own.
void attend_sequences(opdock::Call& call, opdock_dtype dtype, const Params& p, double scale,
                      void (*attend)(const Job&, int64_t, int64_t));
void differentiate_sequences(opdock::Call& call, opdock_dtype dtype, const BackwardParams& b,
                             double scale, void (*queries)(const BackwardJob&, int64_t, int64_t),
                             void (*keys)(const BackwardJob&, int64_t, int64_t));

}  // namespace attention
