// Implements the ops that join the branches of a layer: checks their arguments and hands the
// elements to the kernels.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <opdock/elementwise_op.hpp>

#include "residual_cpu.h"

namespace residual {
namespace {

using opdock::Call;
using opdock::check;
using opdock::Error;
using opdock::Plan;
using opdock::Results;
using opdock::Tensor;
using opdock::detail::concat;
using OptionalTensor = std::optional<Tensor>;

constexpr auto kCombine = OPDOCK_KERNEL_FAMILY("residual::combine", opdock::RowTypes);

struct Arguments {
  Kind kind;
  double factor;
  Tensor hidden, residual;
  OptionalTensor attention, bias, other_bias;  // other_bias only with bias
  void* data[kPlaces] = {};                    // where rows begin, as for make_elements()
};

void compute(Call& call, Tensor out, const Arguments& of) {
  opdock::check_rows(out, "output 0");
  if (out.numel() == 0) return;
  Params params = {};
  params.kind = of.kind;
  params.factor = static_cast<float>(of.factor);
  params.at = opdock::make_elements<kPlaces>(
      {out, of.hidden, of.residual, of.attention, of.bias, of.other_bias}, out.size(-1), of.data);
  if (!call.is_cpu())
    return opdock::launch_elements(call, kCombine(out.dtype()), params.at, params);
  const Job job = {out.dtype(), of.factor, opdock::Pieces(params.at.length), params};
  static const auto kernel = OPDOCK_SIMD_CHOOSE(combine);
  opdock::run_pieces(call, params.at.rows.count, job.pieces,
                     [&](int64_t begin, int64_t end) { kernel(job, begin, end); });
}

enum class LayerForm { kPreNorm, kPostNorm, kParallel };

LayerForm layer_form(std::string_view form) {
  if (form == "pre_norm") return LayerForm::kPreNorm;
  if (form == "post_norm") return LayerForm::kPostNorm;
  if (form == "parallel") return LayerForm::kParallel;
  throw Error(OPDOCK_INVALID_ARGUMENT,
              concat("argument 'form': found \"", form,
                     "\", wanted \"pre_norm\", \"post_norm\" or \"parallel\""));
}

void plan_residual_add(Plan& plan, Tensor hidden, Tensor residual, OptionalTensor attention,
                       OptionalTensor bias, OptionalTensor attention_bias, std::string_view form,
                       double divisor) {
  opdock::check_first_rows(plan, hidden, "hidden");
  opdock::check_rows_like(residual, "residual", hidden, "hidden");
  opdock::check_rows_like(attention, "attention", hidden, "hidden");
  opdock::check_row_vector(bias, "bias", hidden, "hidden", hidden.size(-1));
  opdock::check_row_vector(attention_bias, "attention_bias", hidden, "hidden", hidden.size(-1));
  if (!(divisor > 0) || !std::isfinite(divisor))
    throw Error(OPDOCK_INVALID_ARGUMENT,
                concat("argument 'divisor': found ", divisor,
                       ", wanted a number above 0: among how many devices the layer is split"));
  const bool is_post = layer_form(form) == LayerForm::kPostNorm;
  const auto refuse = [&](const char* name) {
    throw Error(OPDOCK_INVALID_ARGUMENT,
                concat("argument '", name, "': found one, wanted none with form=\"post_norm\", ",
                       "which does not add it; leave it out or choose another form"));
  };
  if (is_post && attention) refuse("attention");
  if (is_post && attention_bias) refuse("attention_bias");
  if (is_post && divisor != 1) refuse("divisor");
  if (!is_post && !attention)
    throw Error(
        OPDOCK_INVALID_ARGUMENT,
        concat("argument 'attention': found None, wanted a tensor of the shape of 'hidden', ",
               "which form=\"", form, "\" adds; pass it or choose \"post_norm\""));
  plan.output(hidden.like());
}

void run_residual_add(Call& call, Results results, Tensor hidden, Tensor residual,
                      OptionalTensor attention, OptionalTensor bias, OptionalTensor attention_bias,
                      std::string_view form, double divisor) {
  const LayerForm of = layer_form(form);
  const Kind kind = of == LayerForm::kPreNorm    ? kInside
                    : of == LayerForm::kPostNorm ? kPlain
                                                 : kOutside;
  if (!bias) std::swap(bias, attention_bias);
  compute(call, results[0], {kind, 1 / divisor, hidden, residual, attention, bias, attention_bias});
}

void plan_vector_add(Plan& plan, Tensor a, Tensor b, double) {
  opdock::check_first_rows(plan, a, "a");
  opdock::check_rows_like(b, "b", a, "a");
  plan.output(a.like());
}
void run_vector_add(Call& call, Results results, Tensor a, Tensor b, double gamma) {
  compute(call, results[0], {kPlain, gamma, a, b, {}, {}, {}});
}

void plan_moe_res_matmul(Plan& plan, Tensor residual, Tensor coef, Tensor output) {
  opdock::check_first_rows(plan, residual, "residual");
  opdock::check_row_vector(coef, "coef", residual, "residual", 2 * residual.size(-1));
  opdock::check_rows_like(output, "output", residual, "residual");
  plan.output(residual.like());
}
void run_moe_res_matmul(Call& call, Results results, Tensor residual, Tensor coef, Tensor output) {
  Arguments of = {kWeighted, 1, output, residual, {}, coef, coef};
  of.data[kBias] = opdock::second_half(coef);
  compute(call, results[0], of);
}

}  // namespace
}  // namespace residual

OPDOCK_OP(residual_add, residual::plan_residual_add, nullptr, residual::run_residual_add)
OPDOCK_OP(vector_add, residual::plan_vector_add, nullptr, residual::run_vector_add)
OPDOCK_OP(moe_res_matmul, residual::plan_moe_res_matmul, nullptr, residual::run_moe_res_matmul)
