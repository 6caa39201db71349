// opdock/gemm.hpp: products of matrices for plugins in C++17, over gemm.h. Header-only.
// SPDX-License-Identifier: Apache-2.0
//
//   opdock::Gemm gemm(x, weight, opdock::Gemm::kTransposeB);      // x * weight'
//   gemm.bias(bias).activation(OPDOCK_GEMM_GELU);
//   plan:  gemm.d(dtype).plan(plan);                              asks for the workspace
//   run:   gemm.d(results[0]).run(call);
//
// Matrices are tensors of two dimensions, or of three with the batch first. A tensor of two
// dimensions, or with a batch of one, is used for every product of the batch. The last dimension
// must have stride 1. Every invalid argument throws an opdock::Error. Tensors must outlive the
// Gemm.
#ifndef OPDOCK_GEMM_HPP_
#define OPDOCK_GEMM_HPP_

#include <algorithm>
#include <cstdint>

#include "opdock/gemm.h"
#include "opdock/plugin.hpp"

namespace opdock {

// A product of matrices, as opdock_gemm describes it. Its functions set one part of it each.
class Gemm {
 public:
  enum Transpose : uint32_t { kTransposeNone = 0, kTransposeA = 1, kTransposeB = 2 };

  // The product op(a) * op(b).
  Gemm(Tensor a, Tensor b, uint32_t transposed = kTransposeNone) {
    what_.struct_size = sizeof what_;
    what_.alpha = 1.0f;
    const bool turn_a = (transposed & kTransposeA) != 0, turn_b = (transposed & kTransposeB) != 0;
    take(a, "a", &what_.a);
    take(b, "b", &what_.b);
    if (turn_a) what_.a.flags |= OPDOCK_GEMM_TRANSPOSED;
    if (turn_b) what_.b.flags |= OPDOCK_GEMM_TRANSPOSED;
    what_.m = a.size(turn_a ? -1 : -2);
    what_.k = a.size(turn_a ? -2 : -1);
    what_.n = b.size(turn_b ? -2 : -1);
    check(b, "b").size(turn_b ? -1 : -2, what_.k);
    what_.batch = std::max(batch_of(a), batch_of(b));
    if (batch_of(a) == 0 || batch_of(b) == 0) what_.batch = 0;
    check_batch(a, "a");
    check_batch(b, "b");
  }

  // Adds beta * c to the product; residual: after the activation.
  Gemm& c(Tensor c, float beta = 1.0f, bool residual = false) {
    take(c, "c", &what_.c);
    check(c, "c").size(-2, what_.m).size(-1, what_.n);
    check_batch(c, "c");
    what_.beta = beta;
    if (residual) what_.flags |= OPDOCK_GEMM_RESIDUAL;
    return *this;
  }
  // Adds a bias, a contiguous tensor of n elements, to each row.
  Gemm& bias(Tensor bias) {
    check(bias, "bias").shape({what_.n}).contiguous();
    what_.bias_dtype = bias.dtype();
    what_.bias = bias.has_data() ? bias.raw() : nullptr;
    return *this;
  }
  // activation: OPDOCK_GEMM_NONE, OPDOCK_GEMM_RELU, …
  Gemm& activation(uint32_t activation) {
    what_.activation = activation;
    return *this;
  }
  Gemm& alpha(float alpha) {
    what_.alpha = alpha;
    return *this;
  }
  // Adds flags: OPDOCK_GEMM_TF32, OPDOCK_GEMM_DETERMINISTIC.
  Gemm& flags(uint32_t flags) {
    what_.flags |= flags;
    return *this;
  }
  // float32 factors of the stored elements: one for all, or one for each row of op(a), for each
  // column of op(b).
  Gemm& a_scale(Tensor scale) { return scales(scale, "a_scale", what_.m, &what_.a); }
  Gemm& b_scale(Tensor scale) { return scales(scale, "b_scale", what_.n, &what_.b); }
  // A float32 by which results are multiplied before they are rounded.
  Gemm& d_scale(Tensor scale) {
    check(scale, "d_scale").dtype(dtype_of<float>()).not_empty();
    what_.d.scale = scale.has_data() ? scale.data<float>() : nullptr;
    return *this;
  }

  // Sets the output: a tensor, or only a dtype while planning, for an output that is contiguous.
  Gemm& d(Dtype dtype) {
    what_.d.dtype = dtype;
    what_.d.stride = what_.n;
    what_.d.batch_stride = what_.m * what_.n;
    return *this;
  }
  Gemm& d(Tensor d) {
    take(d, "d", &what_.d);
    check(d, "d").size(-2, what_.m).size(-1, what_.n);
    if (what_.batch != batch_of(d)) check(d, "d").ndim(3).size(0, what_.batch);
    return *this;
  }

  const opdock_gemm& get() const { return what_; }

  // Returns how many bytes of workspace run needs, aligned to 256 bytes.
  uint64_t workspace_bytes(const CallBase& call) const {
    uint64_t bytes = 0;
    done(table(call)->plan(call.get(), &what_, &bytes));
    return bytes;
  }
  // plan(), and run() of a call, are for an op that needs no other workspace.
  void plan(Plan& plan) const { plan.workspace(workspace_bytes(plan)); }
  void run(Call& call) const { run(call, call.workspace(), call.workspace_bytes()); }
  void run(Call& call, void* workspace, uint64_t bytes) const {
    done(table(call)->run(call.get(), &what_, workspace, bytes));
  }

  // Called in prepare, once for each dtype of the op: makes ready products of dtypes a and b into
  // dtype d with this activation.
  static void prepare(Call& call, Dtype a, Dtype b, Dtype d,
                      uint32_t activation = OPDOCK_GEMM_NONE) {
    opdock_gemm what = {};
    what.struct_size = sizeof what;
    what.alpha = 1.0f;
    what.a.dtype = a;
    what.b.dtype = b;
    what.d.dtype = d;
    what.activation = activation;
    done(table(call)->prepare(call.get(), &what));
  }

 private:
  static int64_t batch_of(Tensor x) { return x.ndim() == 3 ? x.size(0) : 1; }
  void check_batch(Tensor x, const char* name) const {
    if (batch_of(x) != 1 && batch_of(x) != what_.batch) check(x, name).size(0, what_.batch);
  }
  static void take(Tensor x, const char* name, opdock_gemm_matrix* out) {
    check(x, name).ndim(2, 3).contiguous_last_dim();
    out->data = x.has_data() ? x.raw() : nullptr;
    out->dtype = x.dtype();
    // Strides of dimensions of size 1, and of empty tensors, do not matter.
    out->stride = x.size(-2) > 1 && !x.is_empty() ? x.stride(-2) : x.size(-1);
    out->batch_stride = batch_of(x) > 1 && !x.is_empty() ? x.stride(0) : 0;
  }
  Gemm& scales(Tensor scale, const char* name, int64_t count, opdock_gemm_matrix* of) {
    check(scale, name).dtype(dtype_of<float>()).contiguous();
    if (scale.numel() != 1) {
      check(scale, name).shape({count});
      of->flags |= OPDOCK_GEMM_SCALES;
    }
    of->scale = scale.has_data() ? scale.data<float>() : nullptr;
    return *this;
  }
  static const opdock_gemm_table* table(const CallBase& call) {
    const auto* const found = call.extension<opdock_gemm_table>(OPDOCK_GEMM_1);
    if (found == nullptr) {
      throw Error(OPDOCK_UNSUPPORTED, "this host has no " OPDOCK_GEMM_1 "; use a newer Opdock");
    }
    return found;
  }
  // Throws if a host function has failed; that function has written its text already.
  static void done(opdock_status status) {
    if (status != OPDOCK_OK) throw Error(status, std::string());
  }

  opdock_gemm what_ = {};
};

}  // namespace opdock
#endif  // OPDOCK_GEMM_HPP_
