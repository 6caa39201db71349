// What stands between products: the gate, and on the CPU what finishes sums.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "arguments.h"

namespace linear {

// What is made of a product of two halves: hidden * activation(gate).
struct Gate {
  uint32_t activation;  // OPDOCK_GEMM_RELU, …; not OPDOCK_GEMM_NONE
  bool first;           // the gate is the first half
};
// Throws an Error that names the argument.
Gate gate_of(std::string_view activation, bool first);

// What kernels call the activation OPDOCK_GEMM_NONE, …: an activation::Activation.
int kernel_activation(uint32_t activation);

// halves: [..., 2 L]; out: [..., L], also the first half's elements.
void apply_gate(const Call& call, const Gate& gate, Tensor halves, Tensor out);

// On the CPU, of float32: out = activation(out + bias) + residual.
void finish_sums(const Call& call, Tensor out, const OptionalTensor& bias, uint32_t activation,
                 const OptionalTensor& residual);

}  // namespace linear
