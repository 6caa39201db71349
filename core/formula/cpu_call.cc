// SPDX-License-Identifier: Apache-2.0
#include "formula/cpu_call.h"

namespace opdock::formula {

static_assert(kMaxDims == OPDOCK_FORMULA_MAX_DIMS);

CpuCall::CpuCall(const Space& space, const void* const* inputs, void* const* results,
                 const Value* scalars, size_t num_scalars) {
  for (size_t i = 0; i < space.inputs.size(); ++i)
    tensors_[i] = {const_cast<void*>(inputs[i]), space.inputs[i].stride.data(),
                   space.inputs[i].column};
  for (size_t i = 0; i < space.results.size(); ++i)
    tensors_[space.inputs.size() + i] = {results[i], space.results[i].stride.data(),
                                         space.results[i].column};
  for (size_t i = 0; i < num_scalars; ++i) numbers_[i] = {scalars[i].real, scalars[i].integer};
  call_.struct_size = sizeof call_;
  call_.ndim = space.ndim;
  call_.size = space.size.data();
  call_.rows = space.rows;
  call_.columns = space.columns;
  call_.inputs = tensors_.data();
  call_.results = tensors_.data() + space.inputs.size();
  call_.numbers = numbers_.data();
}

void CpuCall::set_sums(const Interpreter::Sums& sums) {
  call_.chunk_rows = sums.chunk_rows;
  call_.parts = sums.parts;
  opdock_formula_tensor* const results = tensors_.data() + (call_.results - call_.inputs);
  for (size_t i = 0; i < sums.partial.size(); ++i)
    if (sums.partial[i] != nullptr) results[i].data = sums.partial[i];
}

}  // namespace opdock::formula
