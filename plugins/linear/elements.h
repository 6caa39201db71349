// The elementwise steps between products: the gate, and on the CPU the bias, activation and
// residual.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "arguments.h"

namespace linear {

// Describes how a product of two halves is combined: hidden * activation(gate).
struct Gate {
  uint32_t activation;  // OPDOCK_GEMM_RELU, …, but never OPDOCK_GEMM_NONE
  bool first;           // the gate is the first half
};
// Returns the gate of that activation. Throws an Error that names the argument.
Gate gate_of(std::string_view activation, bool first);

// Converts OPDOCK_GEMM_NONE, …, to the kernels' activation::Activation.
int kernel_activation(uint32_t activation);

// Applies the gate. halves: [..., 2 L]; out: [..., L], which may be the first half's elements.
void apply_gate(const Call& call, const Gate& gate, Tensor halves, Tensor out);

// On the CPU, for float32: out = activation(out + bias) + residual.
void finish_sums(const Call& call, Tensor out, const OptionalTensor& bias, uint32_t activation,
                 const OptionalTensor& residual);

}  // namespace linear
