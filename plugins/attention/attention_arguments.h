// The arguments that the forms of attention have in common, their checks, and the kernels'
// parameters that are made from them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "attention_checks.h"
#include "device/attention_params.cuh"

namespace attention {

// Weights that become 0 at random. A forward pass draws from the generator, and leaves what it drew
// in `seed`; gradients read it there. Both are empty while planning.
struct DropArguments {
  double probability;
  OptionalTensor seed = {};
  const opdock_generator* generator = nullptr;
};

struct Arguments {
  Tensor q, k, v;
  OptionalTensor lengths, mask, bias, slopes, k_scale, v_scale;
  std::optional<double> scale;
  bool causal;
  int64_t window;
  // Where sequences begin among the tokens of q, and of k and v, which then have a batch of 1; both
  // or none.
  OptionalTensor q_starts = {}, k_starts = {};
  std::optional<DropArguments> drop = {};
};

// Throws an Error that names the argument which is wrong. Reads no tensor's elements.
void check_arguments(const Plan& plan, const Arguments& of);
double scale_of(const Arguments& of);
// Fills in everything except p.out and p.lse, which do not exist while planning, and what the
// launch decides.
Params make_params(const Arguments& of);
// Describe a tensor [batch, token, head, element], and numbers [batch, head, query], to kernels.
Heads heads_of(Tensor x, const Arguments& of);
RowNumbers row_numbers_of(Tensor x, const Arguments& of);
// Returns how many random numbers a forward pass draws.
uint64_t random_numbers_of(const Arguments& of);
// Throws an Error for a length that is not from 0 to p.keys, or for a sequence that does not lie
// within the tensors. The lengths and the places must be on the CPU.
void check_lengths(const Params& p, int64_t batch);

}  // namespace attention
