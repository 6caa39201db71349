// SPDX-License-Identifier: Apache-2.0
#include "attention/graph.h"

#include <algorithm>

namespace opdock::attention {
namespace {

using namespace cudnn;
using Dims = std::array<int64_t, 4>;
using Tensor = cudnnBackendDescriptor_t;

constexpr Dims kOneNumber = {1, 1, 1, 1};

Dims packed(const Dims& dims) {
  return {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1};
}

// Adds operations to a graph. The library recognises attention by the pattern of its operations:
// they are those, in that order, with those types, that its frontend describes.
class Graph {
 public:
  Graph(Descriptors* made, const Form& form, std::vector<int64_t>* uids)
      : made_(*made),
        form_(form),
        uids_(*uids),
        element_(form.is_half != 0 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16),
        scores_{form.batch, form.heads, form.queries, form.keys},
        per_query_{form.batch, form.heads, form.queries, 1} {
    uids_.clear();
    scale_ = number(kScale, CUDNN_DATA_FLOAT);
    if (form.has_lengths()) {
      query_lengths_ = lengths(kQueryLengths);
      key_lengths_ = lengths(kKeyLengths);
    }
  }

  void forward() {
    const Tensor q = queries(kQ, form_.size, form_.q);
    const Tensor k = keys_transposed(kK, form_.size, form_.k);
    const Tensor v = keys(kV, form_.value_size, form_.v);
    Tensor x = score(q, k);
    x = mask(mask_lengths(add_bias(x)));
    const Tensor most = between(per_query_);
    reduce(CUDNN_REDUCE_TENSOR_MAX, x, most);
    x = pointwise(CUDNN_POINTWISE_SUB, x, most);
    x = pointwise(CUDNN_POINTWISE_EXP, x, nullptr);
    const Tensor sum = between(per_query_);
    reduce(CUDNN_REDUCE_TENSOR_ADD, x, sum);
    // The library recognises no softmax without the log of the sum, even where nobody wants it.
    const Tensor log = between(per_query_);
    pointwise_into(CUDNN_POINTWISE_LOG, sum, nullptr, log);
    const bool has_lse = form_.has(OPDOCK_ATTENTION_LSE);
    pointwise_into(CUDNN_POINTWISE_ADD, most, log, has_lse ? lse() : between(per_query_));
    const Tensor weights = between(scores_, element_);
    pointwise_into(CUDNN_POINTWISE_DIV, x, sum, weights);
    multiply(weights, v, queries(kOut, form_.value_size, form_.out), query_lengths_, nullptr,
             key_lengths_);
  }

  void backward() {
    const Tensor q = queries(kQ, form_.size, form_.q);
    const Tensor k = keys_transposed(kK, form_.size, form_.k);
    const Tensor v = keys_transposed(kV, form_.value_size, form_.v);
    const Tensor d_out = queries(kDOut, form_.value_size, form_.d_out);
    const Tensor out = queries(kOut, form_.value_size, form_.out);
    // The sums of d_out * out, one for each query.
    const Tensor product = between({form_.batch, form_.heads, form_.queries, form_.value_size});
    pointwise_into(CUDNN_POINTWISE_MUL, d_out, out, product);
    const Tensor sums = between(per_query_);
    reduce(CUDNN_REDUCE_TENSOR_ADD, product, sums);
    const Tensor row_sums = memory(kRowSums, CUDNN_DATA_FLOAT, per_query_, packed(per_query_));
    pointwise_into(CUDNN_POINTWISE_MUL, sums, number(kOne, CUDNN_DATA_FLOAT), row_sums);
    // The weights again, from the log of the sum.
    Tensor x = add_bias(score(q, k));
    x = pointwise(CUDNN_POINTWISE_SUB, x, lse());
    x = mask(mask_lengths(x));
    const Tensor weights = pointwise(CUDNN_POINTWISE_EXP, x, nullptr);
    multiply_turned(weights, d_out, kDV, form_.value_size, form_.d_v);
    // The gradient of the scores.
    x = between(scores_);
    multiply(d_out, v, x, query_lengths_, key_lengths_, nullptr);
    x = pointwise(CUDNN_POINTWISE_SUB, x, row_sums);
    x = pointwise(CUDNN_POINTWISE_MUL, x, weights);
    const Tensor d_scores = pointwise(CUDNN_POINTWISE_MUL, x, scale_);
    multiply_turned(d_scores, q, kDK, form_.size, form_.d_k);
    const Tensor k_again =
        tensor(next_++, element_, {form_.batch, form_.kv_heads, form_.keys, form_.size},
               strides_of(form_.k), true, false);
    reshape(k, k_again);
    const Tensor d_q = queries(kDQ, form_.size, form_.d_q);
    if (form_.has(OPDOCK_ATTENTION_DETERMINISTIC)) {
      multiply(d_scores, k_again, d_q, query_lengths_, nullptr, key_lengths_);
      return;
    }
    // Blocks of keys add to the sums in memory, in any order.
    const Dims dims = {form_.batch, form_.heads, form_.queries, form_.size};
    const Tensor d_q_sums = memory(kDQSums, CUDNN_DATA_FLOAT, dims, packed(dims));
    multiply(d_scores, k_again, d_q_sums, query_lengths_, nullptr, key_lengths_);
    pointwise_into(CUDNN_POINTWISE_IDENTITY, d_q_sums, nullptr, d_q);
  }

  cudnnBackendDescriptor_t finish(cudnnHandle_t handle) {
    return made_.make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
                      {{CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                        static_cast<int64_t>(operations_.size()), operations_.data()},
                       {CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle}});
  }

 private:
  static Dims strides_of(const int64_t* x) { return {x[0], x[1], x[2], 1}; }

  Tensor tensor(int64_t uid, cudnnDataType_t type, const Dims& dims, const Dims& strides,
                bool is_virtual, bool by_value) {
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
         {CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, by_value ? &yes : nullptr}});
  }
  // A tensor that exists only within the graph.
  Tensor between(const Dims& dims, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    return tensor(next_++, type, dims, packed(dims), true, false);
  }
  Tensor memory(Uid uid, cudnnDataType_t type, const Dims& dims, const Dims& strides) {
    uids_.push_back(uid);
    return tensor(uid, type, dims, strides, false, false);
  }
  Tensor number(Uid uid, cudnnDataType_t type) {
    uids_.push_back(uid);
    return tensor(uid, type, kOneNumber, kOneNumber, false, true);
  }
  Tensor lengths(Uid uid) {
    return memory(uid, CUDNN_DATA_INT32, {form_.batch, 1, 1, 1}, kOneNumber);
  }
  Tensor lse() { return memory(kLse, CUDNN_DATA_FLOAT, per_query_, packed(per_query_)); }
  Tensor queries(Uid uid, int64_t size, const int64_t* strides) {
    return memory(uid, element_, {form_.batch, form_.heads, form_.queries, size},
                  strides_of(strides));
  }
  Tensor keys(Uid uid, int64_t size, const int64_t* strides) {
    return memory(uid, element_, {form_.batch, form_.kv_heads, form_.keys, size},
                  strides_of(strides));
  }
  Tensor keys_transposed(Uid uid, int64_t size, const int64_t* x) {
    return memory(uid, element_, {form_.batch, form_.kv_heads, size, form_.keys},
                  {x[0], x[1], 1, x[2]});
  }

  void add(cudnnBackendDescriptor_t operation) { operations_.push_back(operation); }

  // second: NULL for functions of one operand. selects: the condition of BINARY_SELECT.
  void pointwise_into(cudnnPointwiseMode_t mode, Tensor first, Tensor second, Tensor result,
                      cudnnDataType_t compute = CUDNN_DATA_FLOAT, Tensor selects = nullptr,
                      int64_t axis = -1) {
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
  Tensor pointwise(cudnnPointwiseMode_t mode, Tensor first, Tensor second) {
    const Tensor result = between(scores_);
    pointwise_into(mode, first, second, result);
    return result;
  }
  void reduce(cudnnReduceTensorOp_t by, Tensor from, Tensor to) {
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const cudnnBackendDescriptor_t how =
        made_.make(CUDNN_BACKEND_REDUCTION_DESCRIPTOR,
                   {{CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute},
                    {CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &by}});
    add(made_.make(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
                   {of(CUDNN_ATTR_OPERATION_REDUCTION_DESC, how),
                    of(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, from),
                    of(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, to)}));
  }
  // m, n, k: lengths of the rows of the batch in these dimensions, or NULL.
  void multiply(Tensor a, Tensor b, Tensor c, Tensor m, Tensor n, Tensor k) {
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
  void reshape(Tensor from, Tensor to) {
    add(made_.make(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
                   {of(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, from),
                    of(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, to)}));
  }
  // Multiplies the transposed scores by `right`, and adds up the heads that share keys.
  void multiply_turned(Tensor scores, Tensor right, Uid uid, int64_t size, const int64_t* strides) {
    const Dims& s = scores_;
    const Tensor turned = tensor(next_++, element_, {s[0], s[1], s[3], s[2]},
                                 {s[1] * s[2] * s[3], s[2] * s[3], 1, s[3]}, true, false);
    reshape(scores, turned);
    const Tensor result = keys(uid, size, strides);
    if (form_.heads == form_.kv_heads) {
      multiply(turned, right, result, key_lengths_, nullptr, query_lengths_);
      return;
    }
    const Tensor of_each_head = between({s[0], s[1], s[3], size}, element_);
    multiply(turned, right, of_each_head, key_lengths_, nullptr, query_lengths_);
    reduce(CUDNN_REDUCE_TENSOR_ADD, of_each_head, result);
  }

  Tensor score(Tensor q, Tensor k) {
    const Tensor product = between(scores_);
    multiply(q, k, product, query_lengths_, key_lengths_, nullptr);
    return pointwise(CUDNN_POINTWISE_MUL, product, scale_);
  }
  Tensor add_bias(Tensor scores) {
    if (form_.bias == kNoBias) return scores;
    Dims dims = scores_, strides;
    for (size_t i = 4; i-- > 0;) {
      strides[i] = form_.bias_strides[i];
      if (i < 3 && strides[i] == 0) {
        dims[i] = 1;
        strides[i] = strides[i + 1] * dims[i + 1];
      }
    }
    const cudnnDataType_t type = form_.bias == kBiasFloat32 ? CUDNN_DATA_FLOAT : element_;
    return pointwise(CUDNN_POINTWISE_ADD, scores, memory(kBias, type, dims, strides));
  }
  Tensor place(int64_t axis, cudnnDataType_t compute) {
    const Tensor result = between(scores_, CUDNN_DATA_INT32);
    pointwise_into(CUDNN_POINTWISE_GEN_INDEX, indexed_, nullptr, result, compute, nullptr, axis);
    return result;
  }
  Tensor compare(cudnnPointwiseMode_t mode, Tensor a, Tensor b) {
    const Tensor result = between(scores_, CUDNN_DATA_BOOLEAN);
    pointwise_into(mode, a, b, result, CUDNN_DATA_BOOLEAN);
    return result;
  }
  Tensor shift(cudnnPointwiseMode_t mode, Tensor places, Tensor by, cudnnDataType_t type) {
    const Tensor result = between(scores_, type);
    pointwise_into(mode, places, by, result, type);
    return result;
  }
  Tensor keep(Tensor scores, Tensor where) {
    if (minus_infinity_ == nullptr) minus_infinity_ = number(kMinusInfinity, CUDNN_DATA_FLOAT);
    const Tensor result = between(scores_);
    pointwise_into(CUDNN_POINTWISE_BINARY_SELECT, scores, minus_infinity_, result, CUDNN_DATA_FLOAT,
                   where);
    return result;
  }

  Tensor mask_lengths(Tensor scores) {
    if (!form_.has_lengths()) return scores;
    indexed_ = scores;
    const Tensor row = place(2, CUDNN_DATA_INT32), column = place(3, CUDNN_DATA_INT32);
    const Tensor is_query = compare(CUDNN_POINTWISE_CMP_LT, row, query_lengths_);
    const Tensor is_key = compare(CUDNN_POINTWISE_CMP_LT, column, key_lengths_);
    return keep(scores, compare(CUDNN_POINTWISE_LOGICAL_AND, is_query, is_key));
  }
  // The numbers of queries and keys by which the last query comes to the last key.
  Tensor query_count() {
    if (query_lengths_ != nullptr) return query_lengths_;
    if (query_count_ == nullptr) query_count_ = number(kQueryCount, CUDNN_DATA_INT32);
    return query_count_;
  }
  Tensor key_count() {
    if (key_lengths_ != nullptr) return key_lengths_;
    if (key_count_ == nullptr) key_count_ = number(kKeyCount, CUDNN_DATA_INT32);
    return key_count_;
  }
  Tensor mask(Tensor scores) {
    const bool bottom_right = form_.has(OPDOCK_ATTENTION_BOTTOM_RIGHT);
    if (form_.has(OPDOCK_ATTENTION_CAUSAL)) {
      indexed_ = scores;
      Tensor row = place(2, CUDNN_DATA_FLOAT);
      const Tensor column = place(3, CUDNN_DATA_FLOAT);
      if (bottom_right) {
        row = shift(CUDNN_POINTWISE_ADD, row, key_count(), CUDNN_DATA_INT32);
        row = shift(CUDNN_POINTWISE_SUB, row, query_count(), CUDNN_DATA_INT32);
      }
      scores = keep(scores, compare(CUDNN_POINTWISE_CMP_GE, row, column));
    }
    if (form_.window != 0) {
      indexed_ = scores;
      const Tensor row = place(2, CUDNN_DATA_FLOAT);
      Tensor column = place(3, CUDNN_DATA_FLOAT);
      if (bottom_right && form_.has_lengths()) {
        column = shift(CUDNN_POINTWISE_ADD, column, number(kWindowCount, CUDNN_DATA_INT32),
                       CUDNN_DATA_INT32);
        column = shift(CUDNN_POINTWISE_SUB, column, key_lengths_, CUDNN_DATA_INT32);
        column = shift(CUDNN_POINTWISE_ADD, column, query_lengths_, CUDNN_DATA_INT32);
      } else {
        column =
            shift(CUDNN_POINTWISE_ADD, column, number(kWindow, CUDNN_DATA_FLOAT), CUDNN_DATA_FLOAT);
      }
      scores = keep(scores, compare(CUDNN_POINTWISE_CMP_GT, column, row));
    }
    return scores;
  }

  // Names a descriptor as an attribute; it is left out if there is none.
  Descriptors::Attribute of(cudnnBackendAttributeName_t name, const Tensor& which) {
    return {name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, which == nullptr ? nullptr : &which};
  }

  Descriptors& made_;
  const Form& form_;
  std::vector<int64_t>& uids_;
  const cudnnDataType_t element_;
  const Dims scores_, per_query_;
  int64_t next_ = kFirstVirtual;
  std::vector<cudnnBackendDescriptor_t> operations_;
  Tensor scale_ = nullptr, minus_infinity_ = nullptr;
  Tensor query_lengths_ = nullptr, key_lengths_ = nullptr;
  Tensor query_count_ = nullptr, key_count_ = nullptr;
  Tensor indexed_ = nullptr;  // scores whose places are asked for
};

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

cudnnBackendDescriptor_t describe(Descriptors* made, cudnnHandle_t handle, const Form& form,
                                  std::vector<int64_t>* uids) {
  Graph graph(made, form, uids);
  if (form.has(OPDOCK_ATTENTION_BACKWARD)) {
    graph.backward();
  } else {
    graph.forward();
  }
  return graph.finish(handle);
}

}  // namespace opdock::attention
