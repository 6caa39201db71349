// Makes cuDNN's descriptors: the tensors and operations of a graph.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <initializer_list>
#include <vector>

#include "attention/cudnn_api.h"

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
  kSlopes,
  kDBias,
  kSeed,  // int64, as the offset
  kOffset,
  kQOffsets,  // where ragged rows begin, in elements
  kKOffsets,
  kVOffsets,
  kOutOffsets,
  kLseOffsets,
  kKeyTable,  // the blocks of keys; that of values has the same address
  kValueTable,
  kDQSums,   // workspace: float32 sums of the gradient of q
  kRowSums,  // workspace: the sum of d_out * out of each query
  kScale,    // by value from here on
  kMinusInfinity,
  kOne,
  kWindow,       // float: what is added to a key's place to compare it with a query's
  kWindowCount,  // int32: the window, where lengths shift the diagonal
  kQueryCount,   // int32
  kKeyCount,     // int32
  kKept,         // float: 1 - dropout
  kKeptScale,    // float: 1 / (1 - dropout)
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

using Dims = std::array<int64_t, 4>;
using GraphTensor = cudnn::cudnnBackendDescriptor_t;

Dims packed(const Dims& dims);

// Adds operations to a graph, in the order of the calls. Tensors that exist only within the graph
// get numbers from kFirstVirtual on.
class GraphBuilder {
 public:
  // *uids: the tensors that a run passes.
  GraphBuilder(Descriptors* made, std::vector<int64_t>* uids) : made_(*made), uids_(*uids) {
    uids_.clear();
  }

  // offsets: where the rows of a ragged tensor begin, or NULL.
  GraphTensor between(const Dims& dims, cudnn::cudnnDataType_t type, const Dims& strides,
                      GraphTensor offsets = nullptr);
  GraphTensor between(const Dims& dims, cudnn::cudnnDataType_t type = cudnn::CUDNN_DATA_FLOAT) {
    return between(dims, type, packed(dims));
  }
  GraphTensor memory(Uid uid, cudnn::cudnnDataType_t type, const Dims& dims, const Dims& strides,
                     GraphTensor offsets = nullptr);
  // A number that is passed by value.
  GraphTensor number(Uid uid, cudnn::cudnnDataType_t type);

  // second: NULL for functions of one operand. selects: the condition of BINARY_SELECT.
  void pointwise(cudnn::cudnnPointwiseMode_t mode, GraphTensor first, GraphTensor second,
                 GraphTensor result, cudnn::cudnnDataType_t compute = cudnn::CUDNN_DATA_FLOAT,
                 GraphTensor selects = nullptr, int64_t axis = -1);
  void reduce(cudnn::cudnnReduceTensorOp_t by, GraphTensor from, GraphTensor to);
  // m, n, k: lengths of the rows of the batch in these dimensions, or NULL.
  void multiply(GraphTensor a, GraphTensor b, GraphTensor c, GraphTensor m, GraphTensor n,
                GraphTensor k);
  void reshape(GraphTensor from, GraphTensor to);
  // Writes 1 with the probability, else 0.
  void draw(GraphTensor seed, GraphTensor offset, double probability, GraphTensor result);
  // Gathers the rows' blocks.
  void load_blocks(GraphTensor blocks, GraphTensor table, GraphTensor lengths, GraphTensor result);

  // Returns the finalized graph; NULL after a failure.
  cudnn::cudnnBackendDescriptor_t finish(cudnn::cudnnHandle_t handle);

 private:
  GraphTensor tensor(int64_t uid, cudnn::cudnnDataType_t type, const Dims& dims,
                     const Dims& strides, bool is_virtual, bool by_value, GraphTensor offsets);
  void add(cudnn::cudnnBackendDescriptor_t operation) { operations_.push_back(operation); }

  Descriptors& made_;
  std::vector<int64_t>& uids_;
  int64_t next_ = kFirstVirtual;
  std::vector<cudnn::cudnnBackendDescriptor_t> operations_;
};

}  // namespace opdock::attention
