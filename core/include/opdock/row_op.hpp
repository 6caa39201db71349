// opdock/row_op.hpp: for plugins whose ops work along the last dimension: how such an op checks its
// tensors and passes their rows to its kernels on the CPU and on the GPU.
// SPDX-License-Identifier: Apache-2.0
#ifndef OPDOCK_ROW_OP_HPP_
#define OPDOCK_ROW_OP_HPP_

#include <algorithm>
#include <optional>

#include "opdock/row_launch.hpp"
#include "opdock/rows.hpp"

namespace opdock {

// Checks that the tensor has an element type of kernels over rows: float32, float16 and bfloat16,
// computed in float32; on the CPU float64 as well. Throws an Error that names the argument.
inline void check_row_dtype(const Plan& plan, Tensor tensor, const char* name) {
  if (plan.is_cpu()) {
    check(tensor, name)
        .dtype(dtype_of<float>(), dtype_of<half>(), dtype_of<bfloat16>(), dtype_of<double>());
  } else {
    check(tensor, name).dtype(dtype_of<float>(), dtype_of<half>(), dtype_of<bfloat16>());
  }
}

// Checks that each row has no gaps and each element is aligned; batch dimensions may have any
// strides. Throws an Error that names the argument.
inline void check_rows(Tensor tensor, const char* name) {
  check(tensor, name).contiguous_last_dim().aligned();
}

// Checks the argument with which an op compares the others: check_row_dtype(), `least` to `most`
// dimensions, and check_rows(). Throws an Error that names the argument: OPDOCK_INVALID_ARGUMENT
// for the dimensions, OPDOCK_UNSUPPORTED for the rest.
inline void check_first_rows(const Plan& plan, Tensor x, const char* name, int32_t least = 1,
                             int32_t most = OPDOCK_MAX_NDIM) {
  check_row_dtype(plan, x, name);
  check(x, name).ndim(least, most);
  check_rows(x, name);
}

// Checks that the tensor, if there is one, has the dtype, device and shape of x, the argument
// x_name, and passes check_rows(). Throws an Error that names the argument and x_name:
// OPDOCK_INVALID_ARGUMENT where it differs from x, OPDOCK_UNSUPPORTED for its rows.
inline void check_rows_like(const std::optional<Tensor>& tensor, const char* name, Tensor x,
                            const char* x_name) {
  if (!tensor) return;
  check(*tensor, name).like(x, x_name);
  check_rows(*tensor, name);
}

// Checks that the tensor, if there is one, is a contiguous vector of `size` elements, such as a
// bias with one number for each column, and has the dtype and device of x, the argument x_name.
// Throws an Error that names the argument and x_name: OPDOCK_INVALID_ARGUMENT where dtype, device
// or shape are others, OPDOCK_UNSUPPORTED where the elements have gaps or are not aligned.
inline void check_row_vector(const std::optional<Tensor>& tensor, const char* name, Tensor x,
                             const char* x_name, int64_t size) {
  if (!tensor) return;
  check(*tensor, name)
      .same_dtype_as(x, x_name)
      .same_device_as(x, x_name)
      .shape({size})
      .contiguous()
      .aligned();
}

// Returns the fit of the tensors in `rows`, whose first elements are at `data`, and of the tensors
// that are read next to each row, which begin at `operands`; NULL for a tensor that does not count.
template <int N, size_t Operands>
RowFit fit_of(const Rows<N>& rows, int64_t length, int64_t element_bytes,
              const void* const (&data)[N], const void* const (&operands)[Operands]) {
  const uint64_t bytes = static_cast<uint64_t>(element_bytes);
  uint64_t all = rows.is_flat() ? 0 : 1, differences = 0;
  int first = -1;
  for (int t = 0; t < N; ++t) {
    if (data[t] == nullptr) continue;
    if (first < 0) first = t;
    const uint64_t at = reinterpret_cast<uintptr_t>(data[t]);
    all |= at;
    differences |= at - reinterpret_cast<uintptr_t>(data[first]);
    for (int i = 0; i < rows.ndim; ++i) {
      const uint64_t stride = static_cast<uint64_t>(rows.stride[t][i]) * bytes;
      all |= stride;
      differences |= stride - static_cast<uint64_t>(rows.stride[first][i]) * bytes;
    }
  }
  if (differences % 16 != 0) return RowFit::kAny;
  for (const void* operand : operands) all |= reinterpret_cast<uintptr_t>(operand);
  all |= static_cast<uint64_t>(length) * bytes;
  return all % 16 == 0 ? RowFit::kPlain : RowFit::kSameMisalignment;
}

// Launches the kernel that suits rows that are read and written by vectors in all tensors, as the
// other launch_rows() does (row_launch.hpp).
template <class Kernels, int N>
void launch_rows(const Call& call, const Kernels& kernels, Dtype dtype, RowParams<N> params) {
  const void* data[N];
  for (int t = 0; t < N; ++t) data[t] = params.data[t];
  launch_rows(call, kernels, dtype,
              fit_of(params.rows, params.length, dtype.bytes(), data, {nullptr}), &params);
}

// Calls body(begin, end) on disjoint ranges that make up the rows [0, count), on the host's
// threads; waits for all. length: of a row, at least 1.
template <class Body>
void for_rows(const Call& call, int64_t count, int64_t length, Body&& body) {
  // A second thread pays off for about ten microseconds of work. Each row takes, before its first
  // element, as long as about 64 elements.
  call.parallel_for(count, std::max<int64_t>(1, 8192 / (length + 64)), body);
}

// Calls body(row, length) for each row, on the host's threads: row[t] is where the row begins in
// tensor t, a T* with the T among Ts that is `dtype`, which must be one of them. Waits for all.
template <class... Ts, int N, class Body>
void for_each_row(const Call& call, Dtype dtype, const RowParams<N>& params, Body&& body) {
  const auto run = [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_rows(call, params.rows.count, params.length, [&](int64_t begin, int64_t end) {
      T* row[N];
      for (int64_t i = begin; i < end; ++i) {
        params.locate(i, row);
        body(row, static_cast<int64_t>(params.length));
      }
    });
  };
  static_cast<void>(((dtype == dtype_of<Ts>() ? (run(TypeTag<Ts>{}), true) : false) || ...));
}

}  // namespace opdock
#endif  // OPDOCK_ROW_OP_HPP_
