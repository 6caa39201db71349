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
  Gate gate;  // its activation counts without a gate too

  int64_t inner() const { return first.outputs() / (gated ? 2 : 1); }

  // In plan, of an op whose arguments have the names of mlp's; all but x.
  void check_arguments(Tensor x) const;
  uint64_t workspace_bytes(const CallBase& call, Tensor x) const;
  void run(Call& call, Tensor x, Tensor out) const;

 private:
  Product first_product(Tensor x) const;
  uint64_t products_bytes(const CallBase& call, Tensor x) const;
};

// In plan: that `activation` is one, and what it is.
Gate mlp_gate(std::string_view activation, bool gated, bool gate_first);

// What a weight of two halves gives: each one's outputs. Throws an Error that names the argument.
int64_t check_halves(const Weight& weight, const char* name);

}  // namespace linear
