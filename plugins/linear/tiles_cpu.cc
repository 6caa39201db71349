// Products on the CPU, for one instruction set level: int8 and 16-bit weights are converted to
// floats in registers.
// SPDX-License-Identifier: Apache-2.0
#include "opdock/simd.hpp"
//
#include "activation_simd.h"
#include "opdock/simd_row.hpp"
#include "tiles_cpu.h"

namespace linear {
namespace OPDOCK_SIMD_LEVEL {

namespace simd = opdock::simd::OPDOCK_SIMD_LEVEL;
namespace hn = simd::hn;

using Tile = float[kCpuRows][kCpuColumns];

// A tile's rows of x, its first output, and its numbers of rows and outputs.
template <class T>
struct Part {
  const T* x[kCpuRows];
  int64_t rows, first, columns;
};

struct Int8 {
  int8_t bits;
};

template <class D>
HWY_INLINE hn::VFromD<D> load(D d, const Int8* from) {
  const hn::Rebind<int8_t, D> d8;
  const hn::Rebind<int32_t, D> d32;
  return hn::ConvertTo(d, hn::PromoteTo(d32, hn::LoadU(d8, &from->bits)));
}
template <class D, class W>
HWY_INLINE hn::VFromD<D> load(D d, const W* from) {
  return simd::load(d, from);
}

// Returns the scale of a group.
HWY_INLINE float scale_of(const TileParams& p, int64_t group) {
  return p.scale ? p.scale[group] : 1.0f;
}

// Sums over contiguous inputs, for `Rows` rows: sums[m] belongs to row m.
template <int Rows, class W, class T>
HWY_INLINE void dot(const TileJob& job, const Part<T>& part, int64_t output,
                    float (&sums)[kCpuRows]) {
  const TileParams& p = job.params;
  const simd::FullTag<float> d;
  using V = hn::VFromD<simd::FullTag<float>>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const W* const w = static_cast<const W*>(p.weight) + output * p.output_stride;
  const T* x[Rows];
  for (int m = 0; m < Rows; ++m) x[m] = part.x[m];
  V even[Rows], odd[Rows];
  for (int m = 0; m < Rows; ++m) even[m] = odd[m] = hn::Zero(d);
  float rest[Rows] = {};
  const int64_t index = output * p.output_index;
  int64_t group = index / job.group, end = (group + 1) * job.group - index;
  for (int64_t k = 0; k < p.inputs; ++group, end += job.group) {
    const int64_t until = end < p.inputs ? end : p.inputs;
    const float factor = scale_of(p, group);
    const V scale = hn::Set(d, factor);
    for (; k + 2 * lanes <= until; k += 2 * lanes) {
      const V low = hn::Mul(load(d, w + k), scale);
      const V high = hn::Mul(load(d, w + k + lanes), scale);
      for (int m = 0; m < Rows; ++m) {
        even[m] = hn::MulAdd(simd::load(d, x[m] + k), low, even[m]);
        odd[m] = hn::MulAdd(simd::load(d, x[m] + k + lanes), high, odd[m]);
      }
    }
    for (; k < until; ++k) {
      const simd::OneTag<float> one;
      const float weight = hn::GetLane(load(one, w + k)) * factor;
      for (int m = 0; m < Rows; ++m) rest[m] += hn::GetLane(simd::load(one, x[m] + k)) * weight;
    }
  }
  for (int m = 0; m < Rows; ++m)
    sums[m] = hn::GetLane(hn::SumOfLanes(d, hn::Add(even[m], odd[m]))) + rest[m];
}

template <class W, class T>
void sum_rows(const TileJob& job, const Part<T>& part, Tile& tile) {
  for (int64_t j = 0; j < part.columns; ++j) {
    float sums[kCpuRows];
    if (part.rows == kCpuRows) {
      dot<kCpuRows, W>(job, part, part.first + j, sums);
    } else {
      for (int64_t m = 0; m < part.rows; ++m) {
        Part<T> one = part;
        one.x[0] = part.x[m];
        float sum[kCpuRows];
        dot<1, W>(job, one, part.first + j, sum);
        sums[m] = sum[0];
      }
    }
    for (int64_t m = 0; m < part.rows; ++m) tile[m][j] = sums[m];
  }
}

// Adds up one input after the other; the outputs of each are contiguous.
template <class W, class T>
void sum_columns(const TileJob& job, const Part<T>& part, Tile& tile) {
  const TileParams& p = job.params;
  for (int64_t m = 0; m < part.rows; ++m)
    for (int64_t j = 0; j < part.columns; ++j) tile[m][j] = 0;
  for (int64_t k = 0; k < p.inputs; ++k) {
    float x[kCpuRows];
    for (int64_t m = 0; m < part.rows; ++m)
      x[m] = hn::GetLane(simd::load(simd::OneTag<float>(), part.x[m] + k));
    const W* const w = static_cast<const W*>(p.weight) + k * p.input_stride + part.first;
    const int64_t index = k * p.input_index + part.first;
    int64_t group = index / job.group, end = (group + 1) * job.group - index;
    for (int64_t j = 0; j < part.columns; ++group, end += job.group) {
      const int64_t until = end < part.columns ? end : part.columns;
      const float scale = scale_of(p, group);
      simd::for_each_vector<float>(until - j, [&](auto d, int64_t i) HWY_ATTR {
        const auto weight = hn::Mul(load(d, w + j + i), hn::Set(d, scale));
        for (int64_t m = 0; m < part.rows; ++m) {
          float* const sum = &tile[m][j + i];
          hn::StoreU(hn::MulAdd(hn::Set(d, x[m]), weight, hn::LoadU(d, sum)), d, sum);
        }
      });
      j = until;
    }
  }
}

template <int Act, class T>
void finish_row(const TileParams& p, const long long (&at)[kTilePlaces], int64_t first, int64_t n,
                const float* sums) {
  const T* const bias = p.bias ? static_cast<const T*>(p.bias) + first : nullptr;
  const T* const residual =
      p.residual ? static_cast<const T*>(p.residual) + at[kResidualRows] + first : nullptr;
  T* const out = static_cast<T*>(p.out) + at[kOutRows] + first;
  simd::for_row<float, 1>(n, [=](auto vector, auto, int64_t i) HWY_ATTR {
    const typename decltype(vector)::D d;
    auto value = vector.load(sums + i);
    if (bias) value = hn::Add(value, vector.load(bias + i));
    value = activation::OPDOCK_SIMD_LEVEL::activate<T, Act>(d, value);
    if (residual) value = hn::Add(value, vector.load(residual + i));
    vector.store(value, out + i);
  });
}

template <class T>
void finish(const TileParams& p, const long long (&at)[kTilePlaces], int64_t first, int64_t n,
            const float* sums) {
  switch (p.act) {
    case activation::kRelu:
      return finish_row<activation::kRelu, T>(p, at, first, n, sums);
    case activation::kGeluTanh:
      return finish_row<activation::kGeluTanh, T>(p, at, first, n, sums);
    case activation::kGeluErf:
      return finish_row<activation::kGeluErf, T>(p, at, first, n, sums);
    case activation::kSilu:
      return finish_row<activation::kSilu, T>(p, at, first, n, sums);
    default:
      return finish_row<activation::kIdentity, T>(p, at, first, n, sums);
  }
}

template <class W, class T>
void make_tile(const TileJob& job, int64_t number) {
  const TileParams& p = job.params;
  const int64_t row = number % job.tiles_down() * kCpuRows;
  Part<T> part = {};
  part.first = number / job.tiles_down() * kCpuColumns;
  part.rows = p.rows.count - row < kCpuRows ? p.rows.count - row : kCpuRows;
  part.columns = p.outputs - part.first < kCpuColumns ? p.outputs - part.first : kCpuColumns;
  long long at[kCpuRows][kTilePlaces];
  for (int64_t m = 0; m < part.rows; ++m) {
    p.rows.locate(row + m, at[m]);
    part.x[m] = static_cast<const T*>(p.x) + at[m][kInputRows];
  }
  Tile tile;
  if (p.input_stride == 1) {
    sum_rows<W>(job, part, tile);
  } else {
    sum_columns<W>(job, part, tile);
  }
  for (int64_t m = 0; m < part.rows; ++m) finish<T>(p, at[m], part.first, part.columns, tile[m]);
}

void product_tiles(const TileJob& job, int64_t begin, int64_t end) {
  simd::dispatch(job.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t number = begin; number < end; ++number) {
      if constexpr (sizeof(T) == 2)
        if (!job.params.scale) {
          make_tile<T, T>(job, number);
          continue;
        }
      if constexpr (sizeof(T) <= sizeof(float)) make_tile<Int8, T>(job, number);
    }
  });
}

}  // namespace OPDOCK_SIMD_LEVEL
}  // namespace linear
