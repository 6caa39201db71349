// The product of the rows of a tensor and a matrix, by opdock.gemm/1 or by kernels of our own.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <opdock/gemm.hpp>

#include "arguments.h"

namespace linear {

// The matrix that an op's `weight` stands for: of `inputs` rows and `outputs` columns.
struct Weight {
  Tensor tensor;
  bool transposed;            // stored as [outputs, inputs]
  OptionalTensor scale = {};  // the tensor is of int8, each group of it times one of these

  int64_t inputs() const { return tensor.size(transposed ? 1 : 0); }
  int64_t outputs() const { return tensor.size(transposed ? 0 : 1); }
};

// weight: of this name, and its scale of that; multiplies rows of `inputs` elements like x's.
void check_weight(const Weight& weight, const char* name, const char* scale_name, Tensor x,
                  int64_t inputs);

// out = activation(x W + bias) + residual, where x, out and residual have the same leading
// dimensions. All have been checked.
struct Product {
  Tensor x;
  Weight weight;
  OptionalTensor bias = {}, residual = {};
  uint32_t activation = OPDOCK_GEMM_NONE;

  // In plan: what run() needs, aligned to 256 bytes, for an output like `out` or the residual.
  uint64_t workspace_bytes(const CallBase& call, Tensor out) const;
  // out: may be the residual's elements.
  void run(Call& call, Tensor out, void* workspace, uint64_t bytes) const;
};

// The extension's functions; an error of the host's is thrown.
uint64_t gemm_workspace(const CallBase& call, const opdock_gemm& gemm);
void run_gemm(const Call& call, const opdock_gemm& gemm, void* workspace, uint64_t bytes);

// In prepare: makes everything ready that products need.
void prepare_products(Call& call);

// A weight with a scale; both by their names.
void check_int8(const Weight& weight, const char* name, const char* scale_name, Tensor x);
// The same product by the plugin's own kernels, in tiles.cc, which need no workspace: of int8
// weights, of one row on a GPU and, on the CPU, of 16-bit numbers. False, and nothing is done,
// where a copy of the weight is to be multiplied.
bool run_tiles(const Call& call, const Product& product, Tensor out);

// Up to so many rows a GPU's kernels read an int8 weight once for several of them.
inline constexpr int64_t kMostRows = 32;
// Whether a library may multiply a copy of the int8 weight in x's dtype: on a GPU, many rows, or
// where kernels would read the weight across. Decided by what plan knows: there has to be room.
bool may_copy_weight(const CallBase& call, const Product& product);

// The copy, at the front of a workspace, which may be null while planning.
class WeightCopy {
 public:
  WeightCopy(const Product& of, void* workspace);
  WeightCopy(const WeightCopy&) = delete;  // the product's tensor points into it
  WeightCopy& operator=(const WeightCopy&) = delete;

  uint64_t bytes() const;  // of the workspace
  void make(const Call& call) const;
  Product product() const;  // with the copy as its weight

 private:
  const Product& of_;
  opdock_tensor tensor_;
};

// Where in a workspace the products' own part begins, behind so many bytes.
inline uint64_t behind(uint64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

}  // namespace linear
