// Copies int8 weights to x's dtype, for products with many rows: a library is so much faster with
// such a copy that it is worth making.
// SPDX-License-Identifier: Apache-2.0
#include "dequantize_gpu.h"
#include "product.h"

namespace linear {

constexpr auto kDequantize = OPDOCK_KERNEL_FAMILY("dequantize::dequantize", opdock::RowTypes);

bool may_copy_weight(const CallBase& call, const Product& product) {
  const Weight& weight = product.weight;
  if (!weight.scale || call.is_cpu() || !weight.tensor.is_contiguous() || weight.tensor.is_empty())
    return false;
  return !weight.transposed || product.x.numel() / weight.inputs() > kMaxRows;
}

WeightCopy::WeightCopy(const Product& of, void* workspace)
    : of_(of), tensor_(*of.weight.tensor.get()) {
  tensor_.data = workspace;
  tensor_.byte_offset = 0;
  tensor_.dtype = of.x.dtype();
}

uint64_t WeightCopy::bytes() const {
  return workspace_of(Tensor(&tensor_));
}

void WeightCopy::make(const Call& call) const {
  const Dtype dtype = of_.x.dtype();
  const Tensor copy = product().weight.tensor;
  dequantize::launch(call, kDequantize(dtype), dtype,
                     dequantize::make_params(of_.weight.tensor, *of_.weight.scale, copy));
}

Product WeightCopy::product() const {
  Product product = of_;
  product.weight = {Tensor(&tensor_, tensor_.data ? 0 : OPDOCK_VALUE_NO_DATA),
                    of_.weight.transposed};
  return product;
}

}  // namespace linear
