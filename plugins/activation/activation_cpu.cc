// The activations and their gradients on the CPU, for one instruction set level.
// SPDX-License-Identifier: Apache-2.0
#include "opdock/simd.hpp"
//
#include "activation_cpu.h"
#include "activation_simd.h"
#include "opdock/simd_columns.hpp"

namespace activation {
namespace OPDOCK_SIMD_LEVEL {

template <class T>
using Compute = typename simd::Compute<T>::type;

// The parts of a row's tensors that one loop goes over; null: the tensor is absent.
template <class T, int Inputs, int Outputs>
struct Streams {
  const T* in[Inputs];
  T* out[Outputs];
  Compute<T>* sum[Outputs];  // to which what is computed is added
};

// Calls body(d, streams, i) for the vectors that begin at element i, and for what is left at the
// end for a vector in a buffer. Unroll: for a body that takes little time.
template <bool Unroll, class T, int Inputs, int Outputs, class Body>
HWY_INLINE void for_each_vector(const Streams<T, Inputs, Outputs>& given, int64_t n,
                                const Body& body) {
  const Streams<T, Inputs, Outputs> streams = given;  // that no store can be seen to change
  const simd::FullTag<Compute<T>> d;
  constexpr int64_t kMost = hn::MaxLanes(d);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  if constexpr (Unroll) {
    for (; i + 4 * lanes <= n; i += 4 * lanes) {
      body(d, streams, i);
      body(d, streams, i + lanes);
      body(d, streams, i + 2 * lanes);
      body(d, streams, i + 3 * lanes);
    }
  }
  for (; i + lanes <= n; i += lanes) body(d, streams, i);
  if (i == n) return;
  T in[Inputs][kMost] = {}, out[Outputs][kMost];
  Compute<T> sum[Outputs][kMost] = {};
  Streams<T, Inputs, Outputs> rest = {};
  for (int t = 0; t < Inputs; ++t) {
    if (!streams.in[t]) continue;
    for (int64_t k = i; k < n; ++k) in[t][k - i] = streams.in[t][k];
    rest.in[t] = in[t];
  }
  for (int t = 0; t < Outputs; ++t) {
    rest.out[t] = streams.out[t] ? out[t] : nullptr;
    rest.sum[t] = streams.sum[t] ? sum[t] : nullptr;
  }
  body(d, rest, 0);
  for (int t = 0; t < Outputs; ++t) {
    for (int64_t k = i; k < n && streams.out[t]; ++k) streams.out[t][k] = out[t][k - i];
    for (int64_t k = i; k < n && streams.sum[t]; ++k) streams.sum[t][k] += sum[t][k - i];
  }
}

template <class D, class T>
HWY_INLINE hn::VFromD<D> load_sum(D d, const T* x, const T* bias, int64_t i) {
  const auto value = simd::load(d, x + i);
  return bias ? hn::Add(value, simd::load(d, bias + i)) : value;
}

template <class D, class V, class C>
HWY_INLINE void add_to(D d, V value, C* sum) {
  if (sum) hn::StoreU(hn::Add(hn::LoadU(d, sum), value), d, sum);
}

struct Forward {
  static constexpr int kOutputs = 1, kInputs = 4;

  template <int Act, class T>
  static void run(const Streams<T, kInputs, kOutputs>& streams, int64_t n) {
    for_each_vector<Act == kIdentity || Act == kRelu>(
        streams, n, [](auto d, const auto& s, int64_t i) HWY_ATTR {
          auto value = activate<T, Act>(d, load_sum(d, s.in[0], s.in[1], i));
          if (s.in[2]) value = hn::Mul(value, load_sum(d, s.in[2], s.in[3], i));
          simd::store(d, value, s.out[0] + i);
        });
  }
};

struct Backward {
  static constexpr int kOutputs = 2, kInputs = 5;

  template <int Act, class T>
  static void run(const Streams<T, kInputs, kOutputs>& streams, int64_t n) {
    for_each_vector<Act == kIdentity || Act == kRelu>(
        streams, n, [](auto d, const auto& s, int64_t i) HWY_ATTR {
          const auto grad = simd::load(d, s.in[0] + i);
          auto inner = grad, value = grad, x = grad;
          if (s.in[1]) x = load_sum(d, s.in[1], s.in[2], i);
          if (s.in[3]) inner = hn::Mul(grad, load_sum(d, s.in[3], s.in[4], i));
          const auto grad_x = differentiate<T, Act>(d, x, inner, &value);
          simd::store(d, grad_x, s.out[0] + i);
          add_to(d, grad_x, s.sum[0] ? s.sum[0] + i : nullptr);
          if (!s.out[1]) return;
          const auto grad_up = hn::Mul(grad, value);
          simd::store(d, grad_up, s.out[1] + i);
          add_to(d, grad_up, s.sum[1] ? s.sum[1] + i : nullptr);
        });
  }
};

// Columns begin … end - 1 of one row. sum: of column `begin`; may be null.
template <class Op, int Act, class T, int N>
HWY_INLINE void part_of_row(const opdock::Elements<N>& at, int64_t row, int64_t begin, int64_t end,
                            Compute<T>* const (&sum)[Op::kOutputs]) {
  long long offset[N];
  at.rows.locate(row, offset);
  Streams<T, Op::kInputs, Op::kOutputs> streams = {};
  for (int t = 0; t < N; ++t) {
    if (!at.data[t]) continue;
    T* const data = static_cast<T*>(at.data[t]) + offset[t] + begin;
    if (t < Op::kOutputs) {
      streams.out[t] = data;
      streams.sum[t] = sum[t];
    } else {
      streams.in[t - Op::kOutputs] = data;
    }
  }
  Op::template run<Act>(streams, end - begin);
}

// Calls body(number, begin, end) for pieces first … last - 1: which row or chunk, and its columns.
template <class Body>
HWY_INLINE void for_each_piece(const Pieces& pieces, int64_t length, int64_t first, int64_t last,
                               const Body& body) {
  if (pieces.per_row == 1) {  // without divisions
    for (int64_t row = first; row < last; ++row) body(row, 0, length);
    return;
  }
  for (int64_t piece = first; piece < last; ++piece) {
    const int64_t begin = piece % pieces.per_row * pieces.size;
    const int64_t left = length - begin;
    body(piece / pieces.per_row, begin, begin + (left < pieces.size ? left : pieces.size));
  }
}

template <int Act>
struct Tag {
  static constexpr int value = Act;
};

// Calls body(tag, T{}), where tag::value is the activation.
template <class Body>
void dispatch(int act, opdock_dtype dtype, const Body& body) {
  simd::dispatch(dtype, [&](auto zero) {
    if (act == kRelu) return body(Tag<kRelu>(), zero);
    if (act == kGeluTanh) return body(Tag<kGeluTanh>(), zero);
    if (act == kGeluErf) return body(Tag<kGeluErf>(), zero);
    if (act == kSilu) return body(Tag<kSilu>(), zero);
    body(Tag<kIdentity>(), zero);
  });
}

template <class Op, class Job>
void run_rows(const Job& job, int64_t first, int64_t last) {
  const auto& at = job.params.at;
  dispatch(job.params.act, job.dtype, [&](auto act, auto zero) {
    using T = decltype(zero);
    for_each_piece(job.pieces, at.length, first, last,
                   [&](int64_t row, int64_t begin, int64_t end) {
                     part_of_row<Op, decltype(act)::value, T>(at, row, begin, end, {});
                   });
  });
}

void forward(const ForwardJob& job, int64_t begin, int64_t end) {
  run_rows<Forward>(job, begin, end);
}
void backward(const BackwardJob& job, int64_t begin, int64_t end) {
  run_rows<Backward>(job, begin, end);
}

void backward_sums(const BackwardJob& job, int64_t first, int64_t last) {
  const auto& at = job.params.at;
  const auto& sums = job.params.sums;
  dispatch(job.params.act, job.dtype, [&](auto act, auto zero) {
    using T = decltype(zero);
    using C = Compute<T>;
    for_each_piece(job.pieces, at.length, first, last,
                   [&](int64_t chunk, int64_t begin, int64_t end) {
                     C* sum[2] = {};
                     for (int o = 0; o < 2; ++o) {
                       if (!sums.partial[o]) continue;
                       sum[o] = static_cast<C*>(sums.partial[o]) + chunk * sums.columns + begin;
                       for (int64_t i = 0; i < end - begin; ++i) sum[o][i] = 0;
                     }
                     const int64_t next = (chunk + 1) * sums.chunks.rows;
                     const int64_t rows = next < at.rows.count ? next : at.rows.count;
                     for (int64_t row = chunk * sums.chunks.rows; row < rows; ++row)
                       part_of_row<Backward, decltype(act)::value, T>(at, row, begin, end, sum);
                   });
  });
}

void column_totals(const BackwardJob& job, int64_t begin, int64_t end) {
  const auto& sums = job.params.sums;
  simd::dispatch(job.dtype, [&](auto zero) {
    simd::column_totals(job.partial, sums.chunks.count, sums.columns,
                        static_cast<decltype(zero)*>(job.totals), begin, end);
  });
}

}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace activation
