// opdock/elementwise_op.hpp: for plugins of elementwise ops: where the elements of their tensors
// lie, and how kernels get them on the CPU and on the GPU (opdock/elementwise.cuh,
// opdock/column_sums.cuh).
// SPDX-License-Identifier: Apache-2.0
#ifndef OPDOCK_ELEMENTWISE_OP_HPP_
#define OPDOCK_ELEMENTWISE_OP_HPP_

#include <opdock/columns.cuh>
#include <opdock/elements.cuh>

#include "opdock/element_threads.hpp"
#include "opdock/row_op.hpp"

namespace opdock {

namespace detail {

// Merges all rows into one, if every tensor stores its rows one after the other.
template <int N>
void join_rows(Elements<N>* elements) {
  Rows<N>& rows = elements->rows;
  bool join = rows.ndim == 1;
  for (int t = 0; t < N; ++t)
    join = join && (elements->data[t] == nullptr || rows.stride[t][0] == elements->length);
  if (!join) return;
  elements->length *= rows.count;
  rows = Rows<N>{};
  rows.count = 1;
}

// Sets `factor`, of 64 or 32 `bits`, and `shift` so that n / divisor is multiply_high(n, factor) >>
// shift. n is below 2^63 or 2^31, divisor at least 2.
template <int N>
void set_divisor(Elements<N>* elements, uint64_t divisor, int bits = 64) {
  __extension__ typedef unsigned __int128 Wide;
  int shift = 63 - __builtin_clzll(divisor);
  if ((divisor & (divisor - 1)) == 0) --shift;
  elements->shift = shift;
  elements->factor = static_cast<uint64_t>(((Wide{1} << (bits + shift)) + divisor - 1) / divisor);
}

// Lets threads count in 32 bits and handle only whole vectors, if the layout of the elements allows
// it. `aligned` and `slots` are already set.
template <int N>
void set_vectors(Elements<N>* elements, int64_t size, bool by_columns) {
  const Rows<N>& rows = elements->rows;
  const int64_t slots = elements->slots, most = INT64_C(1) << 31;
  if (!elements->aligned || !rows.is_flat() || elements->length % size != 0) return;
  if (slots >= most || rows.count >= most || rows.count * slots >= most) return;
  if (rows.count > 1 && slots == 1 && !by_columns) return;  // no factor divides by 1
  for (int t = 0; t < N; ++t) {
    const int64_t step = rows.stride[t][0] / size;
    if (step < 0 || step >= most || rows.count * step + slots >= most) return;
    elements->skip[t] = static_cast<unsigned>(by_columns ? step : step - slots);
  }
  elements->vectors = static_cast<unsigned>(by_columns ? slots : rows.count * slots);
  if (by_columns) return;
  elements->factor = 0;
  if (rows.count > 1) set_divisor(elements, static_cast<uint64_t>(slots), 32);
}

}  // namespace detail

// Describes the elements of one op's tensors for its kernels: the outputs first, then the inputs.
// tensors[0] is present and has `length` elements in a row; the others are broadcast to its batch
// dimensions, and one without batch dimensions (a bias) to every row. An absent tensor is nullopt.
// All have passed check_rows(), and tensors[0] is not empty. data[t]: where the first row of tensor
// t begins; NULL: at the tensor's first element. by_columns: for kernels that sum over rows, whose
// rows must stay separate.
template <int N>
Elements<N> make_elements(const std::optional<Tensor> (&tensors)[N], int64_t length,
                          void* const (&data)[N], bool by_columns = false) {
  Elements<N> elements = {};
  const int64_t bytes = tensors[0]->dtype().bytes();
  elements.length = length;
  elements.rows = make_rows(tensors);
  elements.aligned = 1;
  for (int t = 0; t < N; ++t) {
    if (!tensors[t]) continue;
    elements.data[t] = data[t] != nullptr ? data[t] : tensors[t]->raw();
    if (!rows_aligned(elements.rows, t, elements.data[t], static_cast<uint64_t>(bytes), 16))
      elements.aligned = 0;
  }
  if (!by_columns) detail::join_rows(&elements);
  // Vectors are aligned as the first output is, so that a row may begin inside a vector and reach
  // into one more. By columns, a column has the same place in the vectors of every row.
  const int64_t size = 16 / bytes, before = elements.aligned || by_columns ? 0 : size - 1;
  elements.slots = (elements.length + before + size - 1) / size;
  if (elements.slots > 1) detail::set_divisor(&elements, static_cast<uint64_t>(elements.slots));
  detail::set_vectors(&elements, size, by_columns);
  return elements;
}

// Returns where the second half of the first row begins, for the `data` of make_elements(); NULL if
// the tensor is absent or empty. Its rows have an even number of elements.
inline void* second_half(const std::optional<Tensor>& tensor) {
  if (!tensor || tensor->is_empty()) return nullptr;
  return static_cast<char*>(tensor->raw()) + tensor->size(-1) / 2 * tensor->dtype().bytes();
}

// Changes `elements`, made without by_columns, for a kernel that calls for_joined_elements(), if
// that is faster: if the first tensor, the only output, is one run of aligned vectors, but rows end
// inside of vectors. Returns false if the elements are still for for_elements().
template <int N>
bool join_outputs(Elements<N>* elements, int64_t element_bytes) {
  const Rows<N>& rows = elements->rows;
  const int64_t length = elements->length, size = 16 / element_bytes;
  const int64_t most = INT64_C(1) << 31;
  // A vector must reach into the next row at most.
  if (elements->vectors != 0 || rows.count == 1 || !rows.is_flat() || length < size) return false;
  if (length >= most || rows.count >= most || rows.count * length + size > most) return false;
  uint64_t bits = static_cast<uint64_t>(length * element_bytes);
  for (int t = 0; t < N; ++t) {
    if (elements->data[t] == nullptr) continue;
    const int64_t stride = rows.stride[t][0];
    const uint64_t address = reinterpret_cast<uint64_t>(elements->data[t]);
    const bool whole = stride == length && address % 16 == 0;
    if (t == 0 || stride == length ? !whole : stride < 0) return false;
    if (stride >= most || rows.count * stride + length > most) return false;
    if (!whole) bits |= static_cast<uint64_t>(stride * element_bytes) | address;
    elements->skip[t] = static_cast<unsigned>(stride - length);
  }
  elements->unit = bits % 8 == 0 ? 8 : static_cast<int>(bits & -bits);
  elements->vectors = static_cast<unsigned>((rows.count * length + size - 1) / size);
  detail::set_divisor(elements, static_cast<uint64_t>(length), 32);
  return true;
}

namespace detail {

// GPUs that were not measured have as many threads in a block as an H100.
inline int64_t element_threads(const CallBase& call) {
  return call.is_cuda() ? opdock::element_threads(call.facts(), kElementThreads) : kElementThreads;
}

}  // namespace detail

// Launches a kernel that calls for_elements() or for_joined_elements(), on the call's stream.
template <int N, class Params>
void launch_elements(const Call& call, uint32_t kernel, const Elements<N>& elements,
                     const Params& params) {
  const int64_t threads =
      elements.vectors != 0 ? elements.vectors : elements.rows.count * elements.slots;
  // The blocks of a small launch should be on all multiprocessors.
  constexpr int64_t kMin = 128;
  int64_t size = detail::element_threads(call);
  while (size > kMin && threads < call.facts().multiprocessors * size) size /= 2;
  const int64_t blocks = (threads + size - 1) / size;
  if (blocks > 0x7fffffff)
    throw Error(OPDOCK_UNSUPPORTED,
                detail::concat("found ", elements.rows.count, " rows of ", elements.length,
                               " elements, wanted at most 2^40 vectors of 16 bytes; pass fewer "
                               "rows at a time"));
  Launch how = {blocks, size};
  how.flags = detail::pdl_launch_flags(call, blocks, size);
  call.launch(kernel, how, params);
}

// ------------------------------------------------------------------- sums over rows, by columns

// Called in plan: asks for workspace for the sums of the chunks, for `sums` outputs with rows like
// those of x, or like a part of them, of `length` elements. On the CPU the sums of float64 are
// float64.
inline void plan_column_sums(Plan* plan, Tensor x, int64_t length, int sums) {
  if (x.numel() == 0) return;
  const int64_t rows = x.numel() / x.size(-1);
  const int64_t bytes = std::max<int64_t>(x.dtype().bytes(), sizeof(float));
  plan->workspace(static_cast<uint64_t>(column_chunks(rows, length).count * length * sums * bytes));
}

// Describes how the rows of `elements`, made with by_columns, are summed into the call's workspace:
// the sums of output o begin at place[o] of the `columns` sums of a chunk; -1: output o is not
// summed.
template <int Outputs, int N>
ColumnSums<Outputs> make_column_sums(const Call& call, const Elements<N>& elements,
                                     int64_t element_bytes, const int64_t (&place)[Outputs],
                                     int64_t columns) {
  ColumnSums<Outputs> sums = {};
  const int64_t bytes = std::max<int64_t>(element_bytes, sizeof(float));
  for (int o = 0; o < Outputs; ++o)
    if (place[o] >= 0) sums.partial[o] = static_cast<char*>(call.workspace()) + place[o] * bytes;
  sums.columns = columns;
  sums.chunks = column_chunks(elements.rows.count, elements.length);
  sums.lanes = 1;
  while (sums.lanes < kColumnLanes && sums.lanes < elements.slots) sums.lanes *= 2;
  return sums;
}

// Launches a kernel that calls for_column_chunks(), on the call's stream.
template <int Outputs, int N, class Params>
void launch_column_chunks(const Call& call, uint32_t kernel, const Elements<N>& elements,
                          const ColumnSums<Outputs>& sums, const Params& params) {
  const int64_t tiles = (elements.slots + sums.lanes - 1) / sums.lanes;
  call.launch(kernel, {Dim3(tiles, sums.chunks.count), kColumnThreads}, params);
}

// Launches a kernel that calls column_totals(), on the call's stream: each out[i] that is present
// becomes the totals of the chunks' sums at partial[i], [chunks, columns]. All outputs are
// contiguous and have one dtype and one length.
inline void launch_column_totals(const Call& call, uint32_t kernel,
                                 const void* const (&partial)[kTotalOutputs], int64_t chunks,
                                 const std::optional<Tensor> (&out)[kTotalOutputs]) {
  ColumnTotals params = {};
  params.chunks = chunks;
  int count = 0;
  for (int i = 0; i < kTotalOutputs; ++i) {
    if (!out[i] || out[i]->numel() == 0) continue;
    params.partial[count] = static_cast<const float*>(partial[i]);
    params.out[count++] = out[i]->raw();
    params.columns = out[i]->numel();
    params.element = static_cast<int>(RowTypes::find(out[i]->dtype()));
  }
  if (count == 0) return;
  const int64_t blocks = (params.columns + kTotalColumns - 1) / kTotalColumns;
  Launch how = {Dim3(blocks, count), kTotalThreads};
  // The launch before takes long and this one does not, so beginning early pays off.
  if (detail::has_sm_90(call) && blocks <= kMaxEarlyBlocks) how.flags = OPDOCK_LAUNCH_PROGRAMMATIC;
  call.launch(kernel, how, params);
}

}  // namespace opdock
#endif  // OPDOCK_ELEMENTWISE_OP_HPP_
