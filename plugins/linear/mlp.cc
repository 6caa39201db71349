// Implements mlp: checks its arguments and computes two products.
// SPDX-License-Identifier: Apache-2.0
#include "mlp.h"

#include <algorithm>

namespace linear {

int64_t check_halves(const Weight& weight, const char* name) {
  if (weight.outputs() % 2 == 0) return weight.outputs() / 2;
  throw Error(OPDOCK_INVALID_ARGUMENT,
              concat("argument '", name, "': found shape ", weight.tensor.shape_text(),
                     ", wanted an even size in dimension ", weight.transposed ? 0 : 1,
                     ", two halves; pass both"));
}

Mlp make_mlp(Tensor weight1, Tensor weight2, const OptionalTensor& bias1,
             const OptionalTensor& bias2, const OptionalTensor& weight1_scale,
             const OptionalTensor& weight2_scale, std::string_view activation, bool gated,
             bool gate_first, bool transposed) {
  if (gate_first && !gated)
    throw Error(OPDOCK_INVALID_ARGUMENT,
                "argument 'gate_first': found True, wanted False with gated=False, which has no "
                "gate; leave it out or pass gated=True");
  return {{weight1, transposed, weight1_scale},
          {weight2, transposed, weight2_scale},
          bias1,
          bias2,
          gated,
          gated ? gate_of(activation, gate_first) : Gate{activation_of(activation), false}};
}

void Mlp::check_arguments(Tensor x) const {
  check_weight(first, "weight1", "weight1_scale", x, x.size(-1));
  if (gated) check_halves(first, "weight1");
  check_weight(second, "weight2", "weight2_scale", x, inner());
  check_row_vector(first_bias, "bias1", x, "x", first.outputs());
  check_row_vector(second_bias, "bias2", x, "x", second.outputs());
}

Product Mlp::first_product(Tensor x) const {
  const uint32_t activation = gated ? uint32_t{OPDOCK_GEMM_NONE} : gate.activation;
  return {x, first, first_bias, {}, activation};
}

uint64_t Mlp::products_bytes(const CallBase& call, Tensor x) const {
  const Buffer hidden(x, first.outputs(), nullptr), out(x, second.outputs(), nullptr);
  const Buffer inner_rows(x, inner(), nullptr, first.outputs());
  const Product last = {inner_rows.tensor(), second, second_bias};
  return std::max(first_product(x).workspace_bytes(call, hidden.tensor()),
                  last.workspace_bytes(call, out.tensor()));
}

uint64_t Mlp::workspace_bytes(const CallBase& call, Tensor x) const {
  x.like().with_size(-1, first.outputs());  // throws if the tensor would be too large
  return workspace_of(Buffer(x, first.outputs(), nullptr).tensor()) + products_bytes(call, x);
}

void Mlp::run(Call& call, Tensor x, Tensor out) const {
  if (out.is_empty()) return;
  const Buffer wanted(x, first.outputs(), nullptr);
  const uint64_t size = workspace_of(wanted.tensor());
  char* const data = static_cast<char*>(call.workspace());
  char* const own = data + size;
  const uint64_t own_bytes = call.workspace_bytes() - size;
  const Buffer hidden(x, first.outputs(), data);
  first_product(x).run(call, hidden.tensor(), own, own_bytes);
  const Buffer inner_rows(x, inner(), data, first.outputs());
  if (gated) apply_gate(call, gate, hidden.tensor(), inner_rows.tensor());
  Product{inner_rows.tensor(), second, second_bias}.run(call, out, own, own_bytes);
}

namespace {

void plan_mlp(Plan& plan, Tensor x, Tensor weight1, Tensor weight2, OptionalTensor bias1,
              OptionalTensor bias2, OptionalTensor weight1_scale, OptionalTensor weight2_scale,
              std::string_view activation, bool gated, bool gate_first, bool transposed) {
  const Mlp mlp = make_mlp(weight1, weight2, bias1, bias2, weight1_scale, weight2_scale, activation,
                           gated, gate_first, transposed);
  check_input(x, "x");
  mlp.check_arguments(x);
  plan.workspace(mlp.workspace_bytes(plan, x));
  plan.output(x.like().with_size(-1, mlp.second.outputs()));
}

void run_mlp(Call& call, Results results, Tensor x, Tensor weight1, Tensor weight2,
             OptionalTensor bias1, OptionalTensor bias2, OptionalTensor weight1_scale,
             OptionalTensor weight2_scale, std::string_view activation, bool gated, bool gate_first,
             bool transposed) {
  opdock::check_rows(results[0], "output 0");
  const Mlp mlp = make_mlp(weight1, weight2, bias1, bias2, weight1_scale, weight2_scale, activation,
                           gated, gate_first, transposed);
  mlp.run(call, x, results[0]);
}

}  // namespace
}  // namespace linear

OPDOCK_OP(mlp, linear::plan_mlp, linear::prepare_products, linear::run_mlp)
