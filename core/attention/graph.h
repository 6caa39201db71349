// Describes attention to cuDNN as a graph of operations: products, scale, masks, softmax.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <initializer_list>
#include <string>
#include <vector>

#include "attention/cudnn_api.h"
#include "attention/form.h"

namespace opdock::attention {

// Numbers of the tensors whose addresses a run passes: memory of the device, or of the host for
// numbers that are passed by value.
enum Uid : int64_t {
  kQ = 1,
  kK,
  kV,
  kOut,
  kLse,
  kBias,
  kQueryLengths,
  kKeyLengths,
  kDOut,
  kDQ,
  kDK,
  kDV,
  kDQSums,   // workspace: float32 sums of the gradient of q
  kRowSums,  // workspace: the sum of d_out * out of each query
  kScale,    // by value from here on
  kMinusInfinity,
  kOne,
  kWindow,       // float: what is added to a key's place to compare it with a query's
  kWindowCount,  // int32: the window, where lengths shift the diagonal
  kQueryCount,   // int32
  kKeyCount,     // int32
  kFirstVirtual = 100,
};

// Descriptors of cuDNN, destroyed together. After a failure nothing more is made.
class Descriptors {
 public:
  struct Attribute {
    cudnn::cudnnBackendAttributeName_t name;
    cudnn::cudnnBackendAttributeType_t type;
    int64_t count;
    const void* values;
  };

  explicit Descriptors(const cudnn::Api& api) : api_(api) {}
  ~Descriptors();
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;

  // Returns a finalized descriptor; NULL after a failure. Attributes without values are left out.
  cudnn::cudnnBackendDescriptor_t make(cudnn::cudnnBackendDescriptorType_t type,
                                       std::initializer_list<Attribute> attributes);
  // Returns a descriptor that is not finalized.
  cudnn::cudnnBackendDescriptor_t create(cudnn::cudnnBackendDescriptorType_t type);
  const cudnn::Api& api() const { return api_; }
  cudnn::cudnnStatus_t status() const { return status_; }
  void fail(cudnn::cudnnStatus_t status) {
    if (status_ == cudnn::CUDNN_STATUS_SUCCESS) status_ = status;
  }

 private:
  const cudnn::Api& api_;
  std::vector<cudnn::cudnnBackendDescriptor_t> all_;
  cudnn::cudnnStatus_t status_ = cudnn::CUDNN_STATUS_SUCCESS;
};

// Returns the finalized graph, and in *uids the tensors that a run passes. NULL after a failure.
cudnn::cudnnBackendDescriptor_t describe(Descriptors* made, cudnn::cudnnHandle_t handle,
                                         const Form& form, std::vector<int64_t>* uids);

}  // namespace opdock::attention
