// SPDX-License-Identifier: Apache-2.0
#include "attention/graph.h"

namespace opdock::attention {
namespace {

using namespace cudnn;
using Tensor = GraphTensor;

// Adds the operations of attention to a graph. The library recognises attention by the pattern of
// its operations: they are those, in that order, with those types, that its frontend describes.
class Graph {
 public:
  Graph(GraphBuilder* to, const Form& form)
      : to_(*to),
        form_(form),
        element_(form.is_half != 0 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16),
        scores_{form.batch, form.heads, form.queries, form.keys},
        per_query_{form.batch, form.heads, form.queries, 1} {
    scale_ = to_.number(kScale, CUDNN_DATA_FLOAT);
    if (form.has_lengths()) {
      query_lengths_ = lengths(kQueryLengths);
      key_lengths_ = lengths(kKeyLengths);
    }
  }

  void forward() {
    const Tensor q = queries(kQ, form_.size, form_.q, offsets(kQOffsets));
    Tensor x = score(q, form_.has(OPDOCK_ATTENTION_PAGED)
                            ? load(kK, kKeyTable, form_.size, form_.k, true)
                            : keys_transposed(kK, form_.size, form_.k, offsets(kKOffsets)));
    x = mask(mask_lengths(add_slopes(add_bias(x))));
    const Tensor most = to_.between(per_query_);
    to_.reduce(CUDNN_REDUCE_TENSOR_MAX, x, most);
    x = pointwise(CUDNN_POINTWISE_SUB, x, most);
    x = pointwise(CUDNN_POINTWISE_EXP, x, nullptr);
    const Tensor sum = to_.between(per_query_);
    to_.reduce(CUDNN_REDUCE_TENSOR_ADD, x, sum);
    // The library recognises no softmax without the log of the sum, even where nobody wants it.
    const Tensor log = to_.between(per_query_);
    to_.pointwise(CUDNN_POINTWISE_LOG, sum, nullptr, log);
    const bool has_lse = form_.has(OPDOCK_ATTENTION_LSE);
    to_.pointwise(CUDNN_POINTWISE_ADD, most, log, has_lse ? lse() : to_.between(per_query_));
    Tensor weights = to_.between(scores_, element_);
    if (form_.has(OPDOCK_ATTENTION_DROPOUT)) {
      x = pointwise(CUDNN_POINTWISE_DIV, x, sum);
      x = pointwise(CUDNN_POINTWISE_MUL, x, draw());
      to_.pointwise(CUDNN_POINTWISE_MUL, x, to_.number(kKeptScale, CUDNN_DATA_FLOAT), weights);
    } else {
      to_.pointwise(CUDNN_POINTWISE_DIV, x, sum, weights);
    }
    const Tensor v = form_.has(OPDOCK_ATTENTION_PAGED)
                         ? load(kV, kValueTable, form_.value_size, form_.v, false)
                         : keys(kV, form_.value_size, form_.v, offsets(kVOffsets));
    to_.multiply(weights, v, queries(kOut, form_.value_size, form_.out, offsets(kOutOffsets)),
                 query_lengths_, nullptr, key_lengths_);
  }

  void backward() {
    const bool dropout = form_.has(OPDOCK_ATTENTION_DROPOUT);
    const Tensor in_q = offsets(kQOffsets), in_k = offsets(kKOffsets), in_v = offsets(kVOffsets),
                 in_out = offsets(kOutOffsets);
    const Tensor q = queries(kQ, form_.size, form_.q, in_q);
    const Tensor k = keys_transposed(kK, form_.size, form_.k, in_k);
    const Tensor v = keys_transposed(kV, form_.value_size, form_.v, in_v);
    const Tensor d_out = queries(kDOut, form_.value_size, form_.d_out, in_out);
    const Tensor out = queries(kOut, form_.value_size, form_.out, in_out);
    const Tensor kept = dropout ? draw() : nullptr;
    const Tensor kept_scale = dropout ? to_.number(kKeptScale, CUDNN_DATA_FLOAT) : nullptr;
    // The sums of d_out * out, one for each query, and with dropout times 1 - dropout: the gradient
    // of the weights is multiplied by 1 / (1 - dropout) after they were subtracted.
    const Tensor product = to_.between({form_.batch, form_.heads, form_.queries, form_.value_size});
    to_.pointwise(CUDNN_POINTWISE_MUL, d_out, out, product);
    const Tensor sums = to_.between(per_query_);
    to_.reduce(CUDNN_REDUCE_TENSOR_ADD, product, sums);
    const Tensor row_sums = to_.memory(kRowSums, CUDNN_DATA_FLOAT, per_query_, packed(per_query_));
    to_.pointwise(CUDNN_POINTWISE_MUL, sums, to_.number(dropout ? kKept : kOne, CUDNN_DATA_FLOAT),
                  row_sums);
    // The weights again, from the log of the sum.
    Tensor x = add_slopes(add_bias(score(q, k)));
    x = pointwise(CUDNN_POINTWISE_SUB, x, lse());
    x = mask(mask_lengths(x));
    const Tensor weights = pointwise(CUDNN_POINTWISE_EXP, x, nullptr);
    x = weights;
    if (dropout) {
      x = pointwise(CUDNN_POINTWISE_MUL, x, kept);
      x = pointwise(CUDNN_POINTWISE_MUL, x, kept_scale);
    }
    multiply_turned(x, d_out, kDV, form_.value_size, form_.d_v, in_v);
    // The gradient of the scores.
    x = to_.between(scores_);
    to_.multiply(d_out, v, x, query_lengths_, key_lengths_, nullptr);
    if (dropout) x = pointwise(CUDNN_POINTWISE_MUL, x, kept);
    x = pointwise(CUDNN_POINTWISE_SUB, x, row_sums);
    x = pointwise(CUDNN_POINTWISE_MUL, x, weights);
    if (dropout) x = pointwise(CUDNN_POINTWISE_MUL, x, kept_scale);
    if (form_.has(OPDOCK_ATTENTION_BIAS_GRADIENT)) {
      const Dims dims = {1, form_.heads, form_.queries, form_.keys};
      to_.reduce(CUDNN_REDUCE_TENSOR_ADD, x, to_.memory(kDBias, element_, dims, packed(dims)));
    }
    const Tensor d_scores = pointwise(CUDNN_POINTWISE_MUL, x, scale_);
    multiply_turned(d_scores, q, kDK, form_.size, form_.d_k, in_k);
    const Tensor k_again = to_.between({form_.batch, form_.kv_heads, form_.keys, form_.size},
                                       element_, strides_of(form_.k), in_k);
    to_.reshape(k, k_again);
    const Tensor d_q = queries(kDQ, form_.size, form_.d_q, in_q);
    if (form_.adds_in_order()) {
      to_.multiply(d_scores, k_again, d_q, query_lengths_, nullptr, key_lengths_);
      return;
    }
    // Blocks of keys add to the sums in memory, in any order.
    const Dims dims = {form_.batch, form_.heads, form_.queries, form_.size};
    const Tensor d_q_sums = to_.memory(kDQSums, CUDNN_DATA_FLOAT, dims, packed(dims));
    to_.multiply(d_scores, k_again, d_q_sums, query_lengths_, nullptr, key_lengths_);
    to_.pointwise(CUDNN_POINTWISE_IDENTITY, d_q_sums, nullptr, d_q);
  }

 private:
  static Dims strides_of(const int64_t* x) { return {x[0], x[1], x[2], 1}; }

  Tensor lengths(Uid uid) {
    return to_.memory(uid, CUDNN_DATA_INT32, {form_.batch, 1, 1, 1}, {1, 1, 1, 1});
  }
  // NULL if rows lie apart by a stride.
  Tensor offsets(Uid uid) {
    if (!form_.has(OPDOCK_ATTENTION_RAGGED)) return nullptr;
    return to_.memory(uid, CUDNN_DATA_INT64, {form_.batch + 1, 1, 1, 1}, {1, 1, 1, 1});
  }
  Tensor lse() {
    if (form_.lse[1] == 0)
      return to_.memory(kLse, CUDNN_DATA_FLOAT, per_query_, packed(per_query_));
    return to_.memory(kLse, CUDNN_DATA_FLOAT, per_query_,
                      {form_.queries * form_.lse[1], form_.lse[0], form_.lse[1], 1},
                      offsets(kLseOffsets));
  }
  Tensor queries(Uid uid, int64_t size, const int64_t* strides, Tensor begins) {
    return to_.memory(uid, element_, {form_.batch, form_.heads, form_.queries, size},
                      strides_of(strides), begins);
  }
  Tensor keys(Uid uid, int64_t size, const int64_t* strides, Tensor begins) {
    return to_.memory(uid, element_, {form_.batch, form_.kv_heads, form_.keys, size},
                      strides_of(strides), begins);
  }
  Tensor keys_transposed(Uid uid, int64_t size, const int64_t* x, Tensor begins) {
    return to_.memory(uid, element_, {form_.batch, form_.kv_heads, size, form_.keys},
                      {x[0], x[1], 1, x[2]}, begins);
  }
  // Gathers keys or values from their blocks.
  Tensor load(Uid uid, Uid table_uid, int64_t size, const int64_t* strides, bool transposes) {
    const Tensor blocks = to_.memory(
        uid, element_, {form_.blocks, form_.kv_heads, form_.block_size, size}, strides_of(strides));
    const int64_t each = (form_.keys + form_.block_size - 1) / form_.block_size;
    const Tensor table = to_.memory(table_uid, CUDNN_DATA_INT32, {form_.batch, 1, each, 1},
                                    {form_.table_stride, form_.table_stride, 1, 1});
    const int64_t head = form_.keys * size;
    const Tensor gathered =
        transposes ? to_.between({form_.batch, form_.kv_heads, size, form_.keys}, element_,
                                 {form_.kv_heads * head, head, 1, size})
                   : to_.between({form_.batch, form_.kv_heads, form_.keys, size}, element_);
    to_.load_blocks(blocks, table, key_lengths_, gathered);
    return gathered;
  }

  Tensor pointwise(cudnnPointwiseMode_t mode, Tensor first, Tensor second) {
    const Tensor result = to_.between(scores_);
    to_.pointwise(mode, first, second, result);
    return result;
  }
  // Returns 1 for weights that are kept, and 0 for the others.
  Tensor draw() {
    const Tensor seed = to_.memory(kSeed, CUDNN_DATA_INT64, {1, 1, 1, 1}, {1, 1, 1, 1});
    const Tensor offset = to_.memory(kOffset, CUDNN_DATA_INT64, {1, 1, 1, 1}, {1, 1, 1, 1});
    const Tensor kept = to_.between(scores_);
    to_.draw(seed, offset, 1 - form_.dropout_probability(), kept);
    return kept;
  }
  // Multiplies the transposed scores by `right`, and adds up the heads that share keys.
  void multiply_turned(Tensor scores, Tensor right, Uid uid, int64_t size, const int64_t* strides,
                       Tensor begins) {
    const Dims& s = scores_;
    const Tensor turned =
        to_.between({s[0], s[1], s[3], s[2]}, element_, {s[1] * s[2] * s[3], s[2] * s[3], 1, s[3]});
    to_.reshape(scores, turned);
    const Tensor result = keys(uid, size, strides, begins);
    if (form_.heads == form_.kv_heads) {
      to_.multiply(turned, right, result, key_lengths_, nullptr, query_lengths_);
      return;
    }
    const Tensor of_each_head = to_.between({s[0], s[1], s[3], size}, element_);
    to_.multiply(turned, right, of_each_head, key_lengths_, nullptr, query_lengths_);
    to_.reduce(CUDNN_REDUCE_TENSOR_ADD, of_each_head, result);
  }

  Tensor score(Tensor q, Tensor k) {
    const Tensor product = to_.between(scores_);
    to_.multiply(q, k, product, query_lengths_, key_lengths_, nullptr);
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
    return pointwise(CUDNN_POINTWISE_ADD, scores, to_.memory(kBias, type, dims, strides));
  }
  // Adds slope * (key's number - query's number).
  Tensor add_slopes(Tensor scores) {
    if (!form_.has(OPDOCK_ATTENTION_SLOPES)) return scores;
    indexed_ = scores;
    const Tensor row = place(2, CUDNN_DATA_INT32), column = place(3, CUDNN_DATA_INT32);
    const Tensor distance = shift(CUDNN_POINTWISE_SUB, column, row, CUDNN_DATA_INT32);
    const Tensor slopes =
        to_.memory(kSlopes, CUDNN_DATA_FLOAT, {1, form_.heads, 1, 1}, {form_.heads, 1, 1, 1});
    return pointwise(CUDNN_POINTWISE_ADD, scores, pointwise(CUDNN_POINTWISE_MUL, distance, slopes));
  }
  Tensor place(int64_t axis, cudnnDataType_t compute) {
    const Tensor result = to_.between(scores_, CUDNN_DATA_INT32);
    to_.pointwise(CUDNN_POINTWISE_GEN_INDEX, indexed_, nullptr, result, compute, nullptr, axis);
    return result;
  }
  Tensor compare(cudnnPointwiseMode_t mode, Tensor a, Tensor b) {
    const Tensor result = to_.between(scores_, CUDNN_DATA_BOOLEAN);
    to_.pointwise(mode, a, b, result, CUDNN_DATA_BOOLEAN);
    return result;
  }
  Tensor shift(cudnnPointwiseMode_t mode, Tensor places, Tensor by, cudnnDataType_t type) {
    const Tensor result = to_.between(scores_, type);
    to_.pointwise(mode, places, by, result, type);
    return result;
  }
  Tensor keep(Tensor scores, Tensor where) {
    if (minus_infinity_ == nullptr) minus_infinity_ = to_.number(kMinusInfinity, CUDNN_DATA_FLOAT);
    const Tensor result = to_.between(scores_);
    to_.pointwise(CUDNN_POINTWISE_BINARY_SELECT, scores, minus_infinity_, result, CUDNN_DATA_FLOAT,
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
    if (query_count_ == nullptr) query_count_ = to_.number(kQueryCount, CUDNN_DATA_INT32);
    return query_count_;
  }
  Tensor key_count() {
    if (key_lengths_ != nullptr) return key_lengths_;
    if (key_count_ == nullptr) key_count_ = to_.number(kKeyCount, CUDNN_DATA_INT32);
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
        column = shift(CUDNN_POINTWISE_ADD, column, to_.number(kWindowCount, CUDNN_DATA_INT32),
                       CUDNN_DATA_INT32);
        column = shift(CUDNN_POINTWISE_SUB, column, key_lengths_, CUDNN_DATA_INT32);
        column = shift(CUDNN_POINTWISE_ADD, column, query_lengths_, CUDNN_DATA_INT32);
      } else {
        column = shift(CUDNN_POINTWISE_ADD, column, to_.number(kWindow, CUDNN_DATA_FLOAT),
                       CUDNN_DATA_FLOAT);
      }
      scores = keep(scores, compare(CUDNN_POINTWISE_CMP_GT, column, row));
    }
    return scores;
  }

  GraphBuilder& to_;
  const Form& form_;
  const cudnnDataType_t element_;
  const Dims scores_, per_query_;
  Tensor scale_ = nullptr, minus_infinity_ = nullptr;
  Tensor query_lengths_ = nullptr, key_lengths_ = nullptr;
  Tensor query_count_ = nullptr, key_count_ = nullptr;
  Tensor indexed_ = nullptr;  // scores whose places are asked for
};

}  // namespace

cudnnBackendDescriptor_t describe(Descriptors* made, cudnnHandle_t handle, const Form& form,
                                  std::vector<int64_t>* uids) {
  GraphBuilder builder(made, uids);
  Graph graph(&builder, form);
  if (form.has(OPDOCK_ATTENTION_BACKWARD)) {
    graph.backward();
  } else {
    graph.forward();
  }
  return builder.finish(handle);
}

}  // namespace opdock::attention
