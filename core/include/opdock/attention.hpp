// opdock/attention.hpp: attention for plugins in C++17, over attention.h. Header-only.
// SPDX-License-Identifier: Apache-2.0
//
//   opdock::Attention attention(q, k, v);          // [batch, tokens, heads, elements]
//   attention.causal().scale(0.1f);
//   plan:  if (!attention.plan(plan)) …            the plugin's own kernels have to serve
//   run:   if (!attention.out(results[0]).run(call)) …
//
// backward() makes it the gradients of q, k and v. Tensors have four dimensions as above; the last
// one has stride 1. Results that do not exist yet while planning are taken to be contiguous. Every
// invalid argument throws an opdock::Error. Tensors must outlive the Attention.
#ifndef OPDOCK_ATTENTION_HPP_
#define OPDOCK_ATTENTION_HPP_

#include <cmath>
#include <cstdint>

#include "opdock/attention.h"
#include "opdock/plugin.hpp"

namespace opdock {

// An attention, as opdock_attention describes it. Its functions set one part of it each.
class Attention {
 public:
  Attention(Tensor q, Tensor k, Tensor v) {
    what_.struct_size = sizeof what_;
    what_.dtype = q.dtype();
    what_.q = take(q, "q");
    what_.k = take(k, "k");
    what_.v = take(v, "v");
    check(k, "k").dtype(q.dtype()).size(0, q.size(0)).size(3, q.size(3));
    check(v, "v").dtype(q.dtype()).size(0, k.size(0)).size(1, k.size(1)).size(2, k.size(2));
    what_.batch = q.size(0);
    what_.queries = q.size(1);
    what_.heads = q.size(2);
    what_.size = q.size(3);
    what_.keys = k.size(1);
    what_.kv_heads = k.size(2);
    what_.value_size = v.size(3);
    what_.scale = 1 / std::sqrt(static_cast<float>(what_.size));
    what_.out = contiguous(what_.queries, what_.heads, what_.value_size);
  }

  Attention& scale(float scale) {
    what_.scale = scale;
    return *this;
  }
  // A query sees the keys up to its own place. bottom_right: the last query is at the last key's.
  Attention& causal(bool bottom_right = false) {
    what_.flags |= OPDOCK_ATTENTION_CAUSAL | (bottom_right ? OPDOCK_ATTENTION_BOTTOM_RIGHT : 0u);
    return *this;
  }
  // A query sees the last `keys` keys up to its place; 0: all of them.
  Attention& window(int64_t keys) {
    what_.window = keys;
    return *this;
  }
  // int32 tensors of one length per row of the batch.
  Attention& query_lengths(Tensor lengths) {
    what_.query_lengths = lengths_of(lengths, "query_lengths");
    what_.flags |= OPDOCK_ATTENTION_QUERY_LENGTHS;
    return *this;
  }
  Attention& key_lengths(Tensor lengths) {
    what_.key_lengths = lengths_of(lengths, "key_lengths");
    what_.flags |= OPDOCK_ATTENTION_KEY_LENGTHS;
    return *this;
  }
  // A bias is added to the scores: [batch or 1, heads or 1, queries, keys].
  Attention& bias(Tensor bias) {
    check(bias, "bias").ndim(4).size(2, what_.queries).size(3, what_.keys);
    if (bias.size(0) != 1) check(bias, "bias").size(0, what_.batch);
    if (bias.size(1) != 1) check(bias, "bias").size(1, what_.heads);
    what_.bias = bias.has_data() ? bias.raw() : nullptr;
    what_.bias_dtype = bias.dtype();
    for (int32_t i = 0; i < 4; ++i)
      what_.bias_strides[i] = i < 2 && bias.size(i) == 1 ? 0 : bias.stride(i);
    return *this;
  }
  // ALiBi: slopes[h] * (key's number - query's number) is added, with causal(). float32 [heads].
  Attention& slopes(Tensor slopes) {
    check(slopes, "slopes").dtype(dtype_of<float>()).shape({what_.heads}).contiguous();
    what_.slopes = slopes.has_data() ? static_cast<const float*>(slopes.raw()) : nullptr;
    what_.flags |= OPDOCK_ATTENTION_SLOPES;
    return *this;
  }
  // Keeps weights with the probability 1 - p. The numbers are the generator's, from its device_seed
  // if there is one. attention.h says why a backward needs a forward of the same kind.
  Attention& dropout(double p, const opdock_generator& generator) {
    what_.dropout = static_cast<float>(p);
    what_.dropout_seed = static_cast<int64_t>(generator.seed);
    what_.dropout_offset = static_cast<int64_t>(generator.offset);
    what_.dropout_seed_at = reinterpret_cast<const int64_t*>(generator.device_seed);
    what_.flags |= OPDOCK_ATTENTION_DROPOUT;
    return *this;
  }
  // The gradient of the bias, with backward(): its shape and dtype, contiguous. Without a tensor,
  // while planning: it is wanted.
  Attention& bias_gradient() {
    what_.flags |= OPDOCK_ATTENTION_BIAS_GRADIENT;
    return *this;
  }
  Attention& bias_gradient(Tensor d_bias) {
    check(d_bias, "d_bias").dtype(Dtype(what_.bias_dtype)).ndim(4).contiguous();
    check(d_bias, "d_bias").size(2, what_.queries).size(3, what_.keys);
    what_.d_bias = d_bias.has_data() ? d_bias.raw() : nullptr;
    return bias_gradient();
  }

  // The forward's log of the sum of exp(scores): float32 [batch, heads, queries], contiguous.
  // Without a tensor, while planning: it is wanted.
  Attention& lse() {
    what_.flags |= OPDOCK_ATTENTION_LSE;
    return *this;
  }
  Attention& lse(Tensor lse) {
    check(lse, "lse")
        .dtype(dtype_of<float>())
        .shape({what_.batch, what_.heads, what_.queries})
        .contiguous();
    what_.lse = lse.has_data() ? static_cast<float*>(lse.raw()) : nullptr;
    return this->lse();
  }
  Attention& out(Tensor out) {
    what_.out = result(out, "out", what_.queries, what_.heads, what_.value_size);
    return *this;
  }
  // Computes the gradients from that of out. out() and lse() are read then.
  Attention& backward(Tensor d_out) {
    what_.d_out = result(d_out, "d_out", what_.queries, what_.heads, what_.value_size);
    what_.flags |= OPDOCK_ATTENTION_BACKWARD;
    what_.d_q = contiguous(what_.queries, what_.heads, what_.size);
    what_.d_k = contiguous(what_.keys, what_.kv_heads, what_.size);
    what_.d_v = contiguous(what_.keys, what_.kv_heads, what_.value_size);
    return *this;
  }
  Attention& gradients(Tensor d_q, Tensor d_k, Tensor d_v) {
    what_.d_q = result(d_q, "d_q", what_.queries, what_.heads, what_.size);
    what_.d_k = result(d_k, "d_k", what_.keys, what_.kv_heads, what_.size);
    what_.d_v = result(d_v, "d_v", what_.keys, what_.kv_heads, what_.value_size);
    return *this;
  }
  // Equal calls give equal bits. Only gradients take longer by it.
  Attention& deterministic() {
    what_.flags |= OPDOCK_ATTENTION_DETERMINISTIC;
    return *this;
  }

  const opdock_attention& get() const { return what_; }
  // For what has no function here: ragged rows and keys in blocks, which are no tensors of four
  // dimensions.
  opdock_attention& edit() { return what_; }

  // Returns whether the host serves this attention, and how many bytes of workspace run needs.
  bool plan(const CallBase& call, uint64_t* workspace_bytes) const {
    const opdock_attention_table* const found = table(call);
    *workspace_bytes = 0;
    return found != nullptr && serves(found->plan(call.get(), &what_, workspace_bytes));
  }
  // This form is for an op that needs no other workspace.
  bool plan(Plan& plan) const {
    uint64_t bytes = 0;
    if (!this->plan(plan, &bytes)) return false;
    plan.workspace(bytes);
    return true;
  }
  // Returns whether the host has enqueued it.
  bool run(Call& call) const { return run(call, call.workspace(), call.workspace_bytes()); }
  bool run(Call& call, void* workspace, uint64_t bytes) const {
    const opdock_attention_table* const found = table(call);
    return found != nullptr && serves(found->run(call.get(), &what_, workspace, bytes));
  }

  // Called in prepare: opens the library.
  static void prepare(Call& call) {
    const opdock_attention_table* const found = table(call);
    if (found != nullptr) serves(found->prepare(call.get()));
  }

 private:
  static opdock_attention_heads take(Tensor x, const char* name) {
    check(x, name).ndim(4).contiguous_last_dim();
    return {x.has_data() ? x.raw() : nullptr, x.stride(0), x.stride(2), x.stride(1)};
  }
  opdock_attention_heads result(Tensor x, const char* name, int64_t tokens, int64_t heads,
                                int64_t size) const {
    check(x, name).dtype(Dtype(what_.dtype)).shape({what_.batch, tokens, heads, size});
    return take(x, name);
  }
  static opdock_attention_heads contiguous(int64_t tokens, int64_t heads, int64_t size) {
    return {nullptr, tokens * heads * size, size, heads * size};
  }
  const int32_t* lengths_of(Tensor lengths, const char* name) const {
    check(lengths, name).dtype(dtype_of<int32_t>()).shape({what_.batch}).contiguous();
    return lengths.has_data() ? static_cast<const int32_t*>(lengths.raw()) : nullptr;
  }
  static const opdock_attention_table* table(const CallBase& call) {
    return call.extension<opdock_attention_table>(OPDOCK_ATTENTION_1);
  }
  // Throws if a host function has failed; that function has written its text already.
  static bool serves(opdock_status status) {
    if (status != OPDOCK_OK && status != OPDOCK_UNSUPPORTED) throw Error(status, std::string());
    return status == OPDOCK_OK;
  }

  opdock_attention what_ = {};
};

}  // namespace opdock
#endif  // OPDOCK_ATTENTION_HPP_
