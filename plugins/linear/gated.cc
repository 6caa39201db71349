// Implements gated_linear: checks its arguments, computes one product, and multiplies its halves.
// SPDX-License-Identifier: Apache-2.0
#include "mlp.h"

namespace linear {
namespace {

void plan_gated(Plan& plan, Tensor x, Tensor weight, OptionalTensor bias,
                OptionalTensor weight_scale, std::string_view activation, bool gate_first,
                bool transposed) {
  const Weight of = {weight, transposed, weight_scale};
  gate_of(activation, gate_first);
  check_input(x, "x");
  check_weight(of, "weight", "weight_scale", x, x.size(-1));
  const int64_t half = check_halves(of, "weight");
  check_row_vector(bias, "bias", x, "x", of.outputs());
  x.like().with_size(-1, of.outputs());  // throws if the tensor would be too large
  const Buffer halves(x, of.outputs(), nullptr);
  plan.workspace(workspace_of(halves.tensor()) +
                 Product{x, of, bias}.workspace_bytes(plan, halves.tensor()));
  plan.output(x.like().with_size(-1, half));
}

void run_gated(Call& call, Results results, Tensor x, Tensor weight, OptionalTensor bias,
               OptionalTensor weight_scale, std::string_view activation, bool gate_first,
               bool transposed) {
  const Tensor out = results[0];
  opdock::check_rows(out, "output 0");
  if (out.is_empty()) return;
  const Weight of = {weight, transposed, weight_scale};
  char* const data = static_cast<char*>(call.workspace());
  const Buffer halves(x, of.outputs(), data);
  const uint64_t size = workspace_of(halves.tensor());
  Product{x, of, bias}.run(call, halves.tensor(), data + size, call.workspace_bytes() - size);
  apply_gate(call, gate_of(activation, gate_first), halves.tensor(), out);
}

}  // namespace
}  // namespace linear

OPDOCK_OP(gated_linear, linear::plan_gated, linear::prepare_products, linear::run_gated)
