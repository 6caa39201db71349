// SPDX-License-Identifier: Apache-2.0
#include "attention/graph_builder.h"

namespace opdock::attention {

using namespace cudnn;

namespace {

constexpr Dims kOneNumber = {1, 1, 1, 1};

// Names a descriptor as an attribute; it is left out if there is none.
Descriptors::Attribute of(cudnnBackendAttributeName_t name, const GraphTensor& which) {
  return {name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, which == nullptr ? nullptr : &which};
}

}  // namespace

Descriptors::~Descriptors() {
  for (size_t i = all_.size(); i-- > 0;) api_.cudnnBackendDestroyDescriptor(all_[i]);
}

cudnnBackendDescriptor_t Descriptors::create(cudnnBackendDescriptorType_t type) {
  if (status_ != CUDNN_STATUS_SUCCESS) return nullptr;
  cudnnBackendDescriptor_t made = nullptr;
  status_ = api_.cudnnBackendCreateDescriptor(type, &made);
  if (status_ != CUDNN_STATUS_SUCCESS) return nullptr;
  all_.push_back(made);
  return made;
}

cudnnBackendDescriptor_t Descriptors::make(cudnnBackendDescriptorType_t type,
                                           std::initializer_list<Attribute> attributes) {
  const cudnnBackendDescriptor_t made = create(type);
  for (const Attribute& each : attributes) {
    if (status_ != CUDNN_STATUS_SUCCESS) return nullptr;
    if (each.values != nullptr)
      status_ = api_.cudnnBackendSetAttribute(made, each.name, each.type, each.count, each.values);
  }
  if (status_ == CUDNN_STATUS_SUCCESS) status_ = api_.cudnnBackendFinalize(made);
  return status_ == CUDNN_STATUS_SUCCESS ? made : nullptr;
}

Dims packed(const Dims& dims) {
  return {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1};
}

GraphTensor GraphBuilder::tensor(int64_t uid, cudnnDataType_t type, const Dims& dims,
                                 const Dims& strides, bool is_virtual, bool by_value,
                                 GraphTensor offsets) {
  const int64_t alignment = 16;
  const bool yes = true;
  return made_.make(
      CUDNN_BACKEND_TENSOR_DESCRIPTOR,
      {{CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type},
       {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims.data()},
       {CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides.data()},
       {CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid},
       {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment},
       {CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, is_virtual ? &yes : nullptr},
       {CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, by_value ? &yes : nullptr},
       of(CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, offsets)});
}

GraphTensor GraphBuilder::between(const Dims& dims, cudnnDataType_t type, const Dims& strides,
                                  GraphTensor offsets) {
  return tensor(next_++, type, dims, strides, true, false, offsets);
}

GraphTensor GraphBuilder::memory(Uid uid, cudnnDataType_t type, const Dims& dims,
                                 const Dims& strides, GraphTensor offsets) {
  uids_.push_back(uid);
  return tensor(uid, type, dims, strides, false, false, offsets);
}

GraphTensor GraphBuilder::number(Uid uid, cudnnDataType_t type) {
  uids_.push_back(uid);
  return tensor(uid, type, kOneNumber, kOneNumber, false, true, nullptr);
}

void GraphBuilder::pointwise(cudnnPointwiseMode_t mode, GraphTensor first, GraphTensor second,
                             GraphTensor result, cudnnDataType_t compute, GraphTensor selects,
                             int64_t axis) {
  const cudnnBackendDescriptor_t how =
      made_.make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR,
                 {{CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode},
                  {CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute},
                  {CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, axis >= 0 ? &axis : nullptr}});
  add(made_.make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
                 {of(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how),
                  of(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, first),
                  of(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, result),
                  of(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, second),
                  of(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, selects)}));
}

void GraphBuilder::reduce(cudnnReduceTensorOp_t by, GraphTensor from, GraphTensor to) {
  const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  const cudnnBackendDescriptor_t how =
      made_.make(CUDNN_BACKEND_REDUCTION_DESCRIPTOR,
                 {{CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute},
                  {CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &by}});
  add(made_.make(
      CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
      {of(CUDNN_ATTR_OPERATION_REDUCTION_DESC, how), of(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, from),
       of(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, to)}));
}

void GraphBuilder::multiply(GraphTensor a, GraphTensor b, GraphTensor c, GraphTensor m,
                            GraphTensor n, GraphTensor k) {
  const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  const cudnnBackendDescriptor_t how =
      made_.make(CUDNN_BACKEND_MATMUL_DESCRIPTOR,
                 {{CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute}});
  add(made_.make(
      CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
      {of(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a), of(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b),
       of(CUDNN_ATTR_OPERATION_MATMUL_CDESC, c), of(CUDNN_ATTR_OPERATION_MATMUL_DESC, how),
       of(CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, m),
       of(CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, n),
       of(CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, k)}));
}

void GraphBuilder::reshape(GraphTensor from, GraphTensor to) {
  add(made_.make(
      CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
      {of(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, from), of(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, to)}));
}

void GraphBuilder::draw(GraphTensor seed, GraphTensor offset, double probability,
                        GraphTensor result) {
  const cudnnRngDistribution_t distribution = CUDNN_RNG_DISTRIBUTION_BERNOULLI;
  const cudnnBackendDescriptor_t how =
      made_.make(CUDNN_BACKEND_RNG_DESCRIPTOR,
                 {{CUDNN_ATTR_RNG_DISTRIBUTION, CUDNN_TYPE_RNG_DISTRIBUTION, 1, &distribution},
                  {CUDNN_ATTR_RNG_BERNOULLI_DIST_PROBABILITY, CUDNN_TYPE_DOUBLE, 1, &probability}});
  add(made_.make(
      CUDNN_BACKEND_OPERATION_RNG_DESCRIPTOR,
      {of(CUDNN_ATTR_OPERATION_RNG_YDESC, result), of(CUDNN_ATTR_OPERATION_RNG_DESC, how),
       of(CUDNN_ATTR_OPERATION_RNG_SEED, seed), of(CUDNN_ATTR_OPERATION_RNG_OFFSET_DESC, offset)}));
}

void GraphBuilder::load_blocks(GraphTensor blocks, GraphTensor table, GraphTensor lengths,
                               GraphTensor result) {
  add(made_.make(CUDNN_BACKEND_OPERATION_PAGED_CACHE_LOAD_DESCRIPTOR,
                 {of(CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_CONTAINER_DESC, blocks),
                  of(CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_PAGE_TABLE_DESC, table),
                  of(CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_SEQUENCE_DESC, lengths),
                  of(CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_YDESC, result)}));
}

cudnnBackendDescriptor_t GraphBuilder::finish(cudnnHandle_t handle) {
  return made_.make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
                    {{CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                      static_cast<int64_t>(operations_.size()), operations_.data()},
                     {CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle}});
}

}  // namespace opdock::attention
