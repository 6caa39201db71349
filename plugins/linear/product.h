// The product of the rows of a tensor and a matrix, computed by opdock.gemm/1 or by this plugin's
// kernels.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <opdock/gemm.hpp>

#include "arguments.h"

namespace linear {

// The matrix that an op's `weight` represents, with `inputs` rows and `outputs` columns.
struct Weight {
  Tensor tensor;
  bool transposed;  // stored as [outputs, inputs]
  OptionalTensor scale =
      {};  // if present, the tensor is int8, and each of its groups is multiplied by one of these

  int64_t inputs() const { return tensor.size(transposed ? 1 : 0); }
  int64_t outputs() const { return tensor.size(transposed ? 0 : 1); }
};

// Checks a weight and its scale, whose arguments have these names. The weight multiplies rows of
// `inputs` elements like those of x.
void check_weight(const Weight& weight, const char* name, const char* scale_name, Tensor x,
                  int64_t inputs);

// out = activation(x W + bias) + residual, where x, out and residual have the same leading
// dimensions. All tensors have been checked.
struct Product {
  Tensor x;
  Weight weight;
  OptionalTensor bias = {}, residual = {};
  uint32_t activation = OPDOCK_GEMM_NONE;

  // Returns the workspace that run() needs, aligned to 256 bytes, for an output like `out` or for
  // the residual itself. Called in plan.
  uint64_t workspace_bytes(const CallBase& call, Tensor out) const;
  // Computes the product. out: may be the residual itself.
  void run(Call& call, Tensor out, void* workspace, uint64_t bytes) const;
};

// Call the extension's functions; an error of the host is thrown.
uint64_t gemm_workspace(const CallBase& call, const opdock_gemm& gemm);
void run_gemm(const Call& call, const opdock_gemm& gemm, void* workspace, uint64_t bytes);

// Prepares everything that products need. Called in prepare.
void prepare_products(Call& call);

// Checks a weight that has a scale; the arguments have these names.
void check_int8(const Weight& weight, const char* name, const char* scale_name, Tensor x);
// Computes the product with the plugin's own kernels, in tiles.cc, which need no workspace: with
// int8 weights, for one row on a GPU and, on the CPU, for 16-bit numbers. Returns false, and does
// nothing, if a copy of the weight is to be multiplied instead.
bool run_tiles(const Call& call, const Product& product, Tensor out);

// Up to this many rows, a GPU's kernels read an int8 weight once for several of them.
inline constexpr int64_t kMaxRows = 32;
// Returns whether a library may multiply a copy of the int8 weight in x's dtype: on a GPU, for many
// rows, or if kernels would read the weight across its rows. Depends only on what plan knows,
// because the workspace must have room for the copy.
bool may_copy_weight(const CallBase& call, const Product& product);

// The copy, at the beginning of a workspace, which may be null while planning.
class WeightCopy {
 public:
  WeightCopy(const Product& of, void* workspace);
  WeightCopy(const WeightCopy&) = delete;  // the product's tensor points into it
  WeightCopy& operator=(const WeightCopy&) = delete;

  uint64_t bytes() const;  // size in the workspace
  void make(const Call& call) const;
  Product product() const;  // has the copy as its weight

 private:
  const Product& of_;
  opdock_tensor tensor_;
};

// Returns how much of a workspace a tensor takes, so that what follows it is aligned too.
inline uint64_t workspace_of(Tensor tensor) {
  return (static_cast<uint64_t>(tensor.numel() * tensor.dtype().bytes()) + 255) / 256 * 256;
}

}  // namespace linear
