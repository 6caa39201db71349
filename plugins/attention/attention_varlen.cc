// Implements attention_varlen and attention_varlen_backward, which see their tensors as those of
// one batch whose sequences lie one behind the other.
// SPDX-License-Identifier: Apache-2.0
#include <opdock/op.hpp>

#include "attention_passes.h"

namespace attention {
namespace {

// A tensor with a dimension of 1 in front.
class OneBatch {
 public:
  explicit OneBatch(Tensor x) : of_(*x.get()), flags_(x.has_data() ? 0 : OPDOCK_VALUE_NO_DATA) {
    shape_[0] = 1;
    strides_[0] = 0;
    for (int32_t i = 0; i < x.ndim(); ++i) {
      shape_[i + 1] = x.size(i);
      strides_[i + 1] = x.stride(i);
    }
    of_.ndim = x.ndim() + 1;
    of_.shape = shape_;
    of_.strides = strides_;
  }
  OneBatch(const OneBatch&) = delete;
  OneBatch& operator=(const OneBatch&) = delete;

  operator Tensor() const { return Tensor(&of_, flags_); }

 private:
  static constexpr int32_t kMaxDims = 4;
  opdock_tensor of_;
  uint32_t flags_;
  int64_t shape_[kMaxDims], strides_[kMaxDims];
};

// The arguments of a prompt that both ops get, as the ops see them.
struct Sequences {
  Tensor q, k, v, q_starts, k_starts;
  OptionalTensor slopes;
  std::optional<double> scale;
  bool causal;
  int64_t window;
};

void check_starts(Tensor starts, const char* name) {
  constexpr int64_t kMax = 1 << 30;
  check(starts, name).dtype(dtype_of<int32_t>()).ndim(1).contiguous().aligned(sizeof(int32_t));
  if (starts.size(0) < 1 || starts.size(0) > kMax)
    throw Error(OPDOCK_INVALID_ARGUMENT,
                concat("argument '", name, "': found ", starts.size(0), " elements, wanted 1 to ",
                       kMax, ": where each sequence begins, and where the last one ends"));
}

// Checks what the ops over batches would describe with one dimension too many.
void check_sequences(const Plan& plan, const Sequences& of) {
  opdock::check_row_dtype(plan, of.q, "q");
  check(of.q, "q").ndim(3);
  check(of.k, "k").ndim(3).same_dtype_as(of.q, "q").size(2, of.q.size(2));
  check(of.v, "v").same_dtype_as(of.k, "k").same_shape_as(of.k, "k");
  for (const auto& [tensor, name] : {std::pair(of.q, "q"), {of.k, "k"}, {of.v, "v"}})
    opdock::check_rows(tensor, name);
  const int64_t heads = of.q.size(1), kv_heads = of.k.size(1);
  if (kv_heads == 0 ? heads != 0 : heads % kv_heads != 0)
    throw Error(OPDOCK_INVALID_ARGUMENT,
                concat("argument 'k': found ", kv_heads, " heads, shape ", of.k.shape_text(),
                       ", wanted a divisor of the ", heads,
                       " heads of 'q'; pass [tokens, heads, elements]"));
  check_starts(of.q_starts, "cu_seqlens_q");
  check_starts(of.k_starts, "cu_seqlens_k");
  check(of.k_starts, "cu_seqlens_k").same_shape_as(of.q_starts, "cu_seqlens_q");
}

Arguments arguments_of(Tensor q, Tensor k, Tensor v, const Sequences& of) {
  return {q,
          k,
          v,
          std::nullopt,
          std::nullopt,
          std::nullopt,
          of.slopes,
          std::nullopt,
          std::nullopt,
          of.scale,
          of.causal,
          of.window,
          of.q_starts,
          of.k_starts};
}

void plan_varlen(Plan& plan, Tensor q, Tensor k, Tensor v, Tensor q_starts, Tensor k_starts,
                 OptionalTensor slopes, std::optional<double> scale, bool causal, int64_t window,
                 std::optional<Dtype> dtype) {
  const Sequences of = {q, k, v, q_starts, k_starts, slopes, scale, causal, window};
  check_sequences(plan, of);
  const OneBatch batch_q(q), batch_k(k), batch_v(v);
  plan_forward_pass(plan, arguments_of(batch_q, batch_k, batch_v, of), true);
  plan.output(q.like());
  const int64_t shape[] = {q.size(1), q.size(0)};
  plan.output(opdock::Layout(dtype_of_logarithms(q, dtype), shape, 2));
}
void run_varlen(Call& call, Results results, Tensor q, Tensor k, Tensor v, Tensor q_starts,
                Tensor k_starts, OptionalTensor slopes, std::optional<double> scale, bool causal,
                int64_t window, std::optional<Dtype>) {
  check(results[1], "output 1").aligned();
  const OneBatch batch_q(q), batch_k(k), batch_v(v), out(results[0]), lse(results[1]);
  run_forward_pass(call, out, Tensor(lse),
                   arguments_of(batch_q, batch_k, batch_v,
                                {q, k, v, q_starts, k_starts, slopes, scale, causal, window}));
}

// The arguments of the gradients as those of one batch.
class Gradients {
 public:
  Gradients(Tensor grad, const Sequences& of, Tensor result, Tensor lse,
            const OptionalTensor& grad_lse)
      : grad_(grad), q_(of.q), k_(of.k), v_(of.v), result_(result), lse_(lse) {
    arguments_.emplace(BackwardArguments{{grad_, result_, Tensor(lse_), std::nullopt},
                                         arguments_of(q_, k_, v_, of)});
    if (grad_lse) arguments_->grad_lse = grad_lse_.emplace(*grad_lse);
  }
  const BackwardArguments& arguments() const { return *arguments_; }

 private:
  OneBatch grad_, q_, k_, v_, result_, lse_;
  std::optional<OneBatch> grad_lse_;
  std::optional<BackwardArguments> arguments_;
};

void plan_varlen_backward(Plan& plan, Tensor grad, Tensor q, Tensor k, Tensor v, Tensor result,
                          Tensor lse, OptionalTensor grad_lse, Tensor q_starts, Tensor k_starts,
                          OptionalTensor slopes, std::optional<double> scale, bool causal,
                          int64_t window) {
  const Sequences of = {q, k, v, q_starts, k_starts, slopes, scale, causal, window};
  check_sequences(plan, of);
  check(grad, "grad").same_dtype_as(q, "q").same_shape_as(q, "q");
  check(result, "result").same_dtype_as(q, "q").same_shape_as(q, "q");
  opdock::check_rows(result, "result");
  check(lse, "lse").shape({q.size(1), q.size(0)});
  if (grad_lse) check(*grad_lse, "grad_lse").shape({q.size(1), q.size(0)});
  plan_gradient_pass(plan, Gradients(grad, of, result, lse, grad_lse).arguments());
  plan.output(q.like());
  plan.output(k.like());
  plan.output(v.like());
}
void run_varlen_backward(Call& call, Results results, Tensor grad, Tensor q, Tensor k, Tensor v,
                         Tensor result, Tensor lse, OptionalTensor grad_lse, Tensor q_starts,
                         Tensor k_starts, OptionalTensor slopes, std::optional<double> scale,
                         bool causal, int64_t window) {
  const Gradients of(grad, {q, k, v, q_starts, k_starts, slopes, scale, causal, window}, result,
                     lse, grad_lse);
  const OneBatch grad_q(results[0]), grad_k(results[1]), grad_v(results[2]);
  run_gradient_pass(call, of.arguments(), grad_q, grad_k, grad_v);
}

}  // namespace
}  // namespace attention

OPDOCK_OP(attention_varlen, attention::plan_varlen, nullptr, attention::run_varlen)
OPDOCK_OP(attention_varlen_backward, attention::plan_varlen_backward, nullptr,
          attention::run_varlen_backward)
