// SPDX-License-Identifier: Apache-2.0
#include "elements.h"

#include <opdock/gemm.h>

#include <opdock/elementwise_op.hpp>

#include "elements_cpu.h"

namespace linear {
namespace {

constexpr auto kGate = OPDOCK_KERNEL_FAMILY("linear::gate", opdock::RowTypes);

// Runs the kernel of the current instruction set level.
void compute_on_cpu(const Call& call, Tensor out, const ElementParams& params,
                    void (*kernel)(const ElementJob&, int64_t, int64_t)) {
  const ElementJob job = {out.dtype(), opdock::Pieces(params.at.length), params};
  opdock::run_pieces(call, params.at.rows.count, job.pieces,
                     [&](int64_t begin, int64_t end) { kernel(job, begin, end); });
}

}  // namespace

int kernel_activation(uint32_t activation) {
  switch (activation) {
    case OPDOCK_GEMM_NONE:
      return activation::kIdentity;
    case OPDOCK_GEMM_RELU:
      return activation::kRelu;
    case OPDOCK_GEMM_GELU:
      return activation::kGeluErf;
    case OPDOCK_GEMM_GELU_TANH:
      return activation::kGeluTanh;
    default:
      return activation::kSilu;
  }
}

Gate gate_of(std::string_view activation, bool first) {
  const uint32_t found = activation_of(activation);
  if (found != OPDOCK_GEMM_NONE) return {found, first};
  throw opdock::Error(OPDOCK_INVALID_ARGUMENT,
                      "argument 'activation': found \"none\", wanted \"relu\", \"gelu\", "
                      "\"gelu_tanh\" or \"silu\", which the gate goes through");
}

void apply_gate(const Call& call, const Gate& gate, Tensor halves, Tensor out) {
  if (out.is_empty()) return;
  void* const first = halves.raw();
  void* const second = opdock::second_half(halves);
  ElementParams params = {};
  params.act = kernel_activation(gate.activation);
  params.at = opdock::make_elements<kElementPlaces>(
      {out, halves, halves, std::nullopt}, out.size(-1),
      {nullptr, gate.first ? second : first, gate.first ? first : second, nullptr});
  if (!call.is_cpu()) return opdock::launch_elements(call, kGate(out.dtype()), params.at, params);
  static const auto kernel = OPDOCK_SIMD_CHOOSE(gate);
  compute_on_cpu(call, out, params, kernel);
}

void finish_sums(const Call& call, Tensor out, const OptionalTensor& bias, uint32_t activation,
                 const OptionalTensor& residual) {
  ElementParams params = {};
  params.act = kernel_activation(activation);
  params.at = opdock::make_elements<kElementPlaces>({out, out, residual, bias}, out.size(-1), {});
  static const auto kernel = OPDOCK_SIMD_CHOOSE(finish);
  compute_on_cpu(call, out, params, kernel);
}

}  // namespace linear
