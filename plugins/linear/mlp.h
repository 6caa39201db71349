// Two products with an activation, or a gate, between them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "elements.h"
#include "product.h"

namespace linear {

// activation(x W1 + bias1) W2 + bias2, or with a gate (hidden * activation(gate)) W2 + bias2.
struct Mlp {
  Weight first, second;
  OptionalTensor first_bias, second_bias;
  bool gated;
  Gate gate;  // its activation also applies without a gate

  int64_t inner() const { return first.outputs() / (gated ? 2 : 1); }

  // Checks all arguments but x. Called in plan, by an op whose arguments are named like mlp's.
  void check_arguments(Tensor x) const;
  uint64_t workspace_bytes(const CallBase& call, Tensor x) const;
  void run(Call& call, Tensor x, Tensor out) const;

 private:
  Product first_product(Tensor x) const;
  uint64_t products_bytes(const CallBase& call, Tensor x) const;
};

// Returns the mlp of an op whose arguments are named like mlp's; checks those that are no tensors.
Mlp make_mlp(Tensor weight1, Tensor weight2, const OptionalTensor& bias1,
             const OptionalTensor& bias2, const OptionalTensor& weight1_scale,
             const OptionalTensor& weight2_scale, std::string_view activation, bool gated,
             bool gate_first, bool transposed);

// Returns how many outputs each half of a weight has. Throws an Error that names the argument.
int64_t check_halves(const Weight& weight, const char* name);

}  // namespace linear
