// SPDX-License-Identifier: Apache-2.0
#include "gemm/plain_cpu.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "opdock/types.hpp"

namespace opdock::gemm {
namespace {

// A tile's sums and its parts of A and B take 80 KiB of the thread's stack.
constexpr int kRows = 64, kColumns = 64, kDepth = 128;
constexpr int kLanes = 4, kBlockRows = 4, kBlockColumns = 2 * kLanes;

float from_bits(uint32_t bits) {
  return detail::bit_cast<float>(bits);
}

struct Math {
  static float erf(float x) { return std::erf(x); }
  static float tanh(float x) { return std::tanh(x); }
  static float exp(float x) { return std::exp(x); }
};

// Loads `count` elements as T, from element `at` on and `stride` apart.
template <class T>
void load(const void* data, int element, int64_t at, int64_t stride, int64_t count, T* out) {
  const auto each = [&](auto&& convert, auto* typed) {
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<T>(convert(typed[at + i * stride]));
  };
  const auto* const bytes = static_cast<const uint8_t*>(data);
  switch (element) {
    case kFloat32:
      return each([](float x) { return x; }, static_cast<const float*>(data));
    case kFloat16:
      return each([](half x) { return static_cast<float>(x); }, static_cast<const half*>(data));
    case kBfloat16:
      return each([](bfloat16 x) { return static_cast<float>(x); },
                  static_cast<const bfloat16*>(data));
    case kInt8:
      return each([](int8_t x) { return x; }, static_cast<const int8_t*>(data));
    case kE4m3:
      return each([](uint8_t x) { return e4m3_to_float(x, from_bits); }, bytes);
    case kE5m2:
      return each([](uint8_t x) { return e5m2_to_float(x, from_bits); }, bytes);
    default:
      return;
  }
}

void store(void* data, int element, int64_t at, float value) {
  const uint32_t bits = detail::bit_cast<uint32_t>(value);
  switch (element) {
    case kFloat32:
      static_cast<float*>(data)[at] = value;
      return;
    case kFloat16:
      static_cast<half*>(data)[at] = half(value);
      return;
    case kBfloat16:
      static_cast<bfloat16*>(data)[at] = bfloat16(value);
      return;
    case kE4m3:
      static_cast<uint8_t*>(data)[at] = static_cast<uint8_t>(float_to_e4m3(bits));
      return;
    case kE5m2:
      static_cast<uint8_t*>(data)[at] = static_cast<uint8_t>(float_to_e5m2(bits));
      return;
    default:
      return;
  }
}

float scale_of(const Operand& operand, int64_t index) {
  if (operand.scale == nullptr) return 1.0f;
  return operand.scale[operand.scales ? index : 0];
}

// Finishes the sums of one row of D from column `first` on. They are already multiplied by alpha.
// Adds C only if with_c.
void finish_row(const Product& p, int64_t batch, int64_t row, int64_t first, int64_t count,
                const float* sums, bool with_c) {
  const Finish& how = p.finish;
  float bias[kColumns] = {}, c[kColumns] = {};
  if (how.bias_element != kNoElement) load(how.bias, how.bias_element, first, 1, count, bias);
  if (with_c) {
    load(how.c.data, how.c.element, batch * how.c.batch_stride + row * how.c.row_stride + first, 1,
         count, c);
    for (int64_t i = 0; i < count; ++i) c[i] *= how.beta;
  }
  const float scale = scale_of(p.d, 0);
  const int64_t at = batch * p.d.batch_stride + row * p.d.row_stride + first;
  for (int64_t i = 0; i < count; ++i) {
    const float value = finish<Math>(how.activation, how.residual, sums[i], bias[i], c[i]);
    store(const_cast<void*>(p.d.data), p.d.element, at + i, value * scale);
  }
}

template <class T>
struct Tile {
  typedef T Vector __attribute__((vector_size(sizeof(T) * kLanes)));

  alignas(64) T sums[kRows][kColumns];
  alignas(64) T a[kRows][kDepth];
  alignas(64) T b[kDepth][kColumns];

  // Rows and columns beyond the product are filled with zeros, so that all blocks are complete.
  void take_a(const Product& p, int64_t batch, int64_t row, int64_t k, int64_t rows,
              int64_t depth) {
    const int64_t at = batch * p.a.batch_stride + row * p.a.row_stride + k * p.a.column_stride;
    for (int64_t i = 0; i < rows; ++i)
      load(p.a.data, p.a.element, at + i * p.a.row_stride, p.a.column_stride, depth, a[i]);
    for (int64_t i = rows; i % kBlockRows != 0; ++i) std::fill_n(a[i], depth, T());
  }
  void take_b(const Product& p, int64_t batch, int64_t column, int64_t k, int64_t columns,
              int64_t depth) {
    const int64_t at = batch * p.b.batch_stride + k * p.b.row_stride + column * p.b.column_stride;
    for (int64_t i = 0; i < depth; ++i) {
      load(p.b.data, p.b.element, at + i * p.b.row_stride, p.b.column_stride, columns, b[i]);
      for (int64_t j = columns; j % kBlockColumns != 0; ++j) b[i][j] = T();
    }
  }
  void add(int64_t rows, int64_t columns, int64_t depth) {
    for (int64_t i = 0; i < rows; i += kBlockRows)
      for (int64_t j = 0; j < columns; j += kBlockColumns) add_block(i, j, depth);
  }
  void add_block(int64_t row, int64_t column, int64_t depth) {
    Vector block[kBlockRows][2];
    for (int i = 0; i < kBlockRows; ++i)
      std::memcpy(block[i], &sums[row + i][column], sizeof block[i]);
    for (int64_t k = 0; k < depth; ++k) {
      Vector right[2];
      std::memcpy(right, &b[k][column], sizeof right);
      for (int i = 0; i < kBlockRows; ++i) {
        const T left = a[row + i][k];
        block[i][0] += left * right[0];
        block[i][1] += left * right[1];
      }
    }
    for (int i = 0; i < kBlockRows; ++i)
      std::memcpy(&sums[row + i][column], block[i], sizeof block[i]);
  }

  void compute(const Product& p, int64_t batch, int64_t row, int64_t column) {
    const int64_t rows = std::min<int64_t>(kRows, p.m - row);
    const int64_t columns = std::min<int64_t>(kColumns, p.n - column);
    std::memset(sums, 0, sizeof sums);
    for (int64_t k = 0; k < p.k; k += kDepth) {
      const int64_t depth = std::min<int64_t>(kDepth, p.k - k);
      take_a(p, batch, row, k, rows, depth);
      take_b(p, batch, column, k, columns, depth);
      add(rows, columns, depth);
    }
    for (int64_t i = 0; i < rows; ++i) put(p, batch, row + i, column, columns, sums[i]);
  }

  void put(const Product& p, int64_t batch, int64_t row, int64_t column, int64_t columns,
           const T* of_row) {
    if (p.d.element == kInt32) {
      const int64_t at = batch * p.d.batch_stride + row * p.d.row_stride + column;
      std::memcpy(static_cast<int32_t*>(const_cast<void*>(p.d.data)) + at, of_row,
                  static_cast<size_t>(columns) * sizeof(int32_t));
      return;
    }
    float values[kColumns];
    const float factor = p.finish.alpha * scale_of(p.a, row);
    for (int64_t j = 0; j < columns; ++j)
      values[j] = static_cast<float>(of_row[j]) * factor * scale_of(p.b, column + j);
    finish_row(p, batch, row, column, columns, values, p.finish.beta != 0.0f);
  }
};

template <class T>
void multiply(const Product& p, uint64_t begin, uint64_t end) {
  Tile<T> tile;
  const int64_t across = (p.n + kColumns - 1) / kColumns, down = (p.m + kRows - 1) / kRows;
  for (uint64_t i = begin; i < end; ++i) {
    const int64_t number = static_cast<int64_t>(i);
    tile.compute(p, number / (across * down), number / across % down * kRows,
                 number % across * kColumns);
  }
}

}  // namespace

uint64_t count_tiles(const Product& p) {
  return static_cast<uint64_t>((p.n + kColumns - 1) / kColumns) *
         static_cast<uint64_t>((p.m + kRows - 1) / kRows) * static_cast<uint64_t>(p.batch);
}

void multiply_tiles(const Product& p, uint64_t begin, uint64_t end) {
  p.a.element == kInt8 ? multiply<int32_t>(p, begin, end) : multiply<float>(p, begin, end);
}

void finish_rows(const Product& p, uint64_t begin, uint64_t end) {
  for (uint64_t i = begin; i < end; ++i) {
    const int64_t batch = static_cast<int64_t>(i) / p.m, row = static_cast<int64_t>(i) % p.m;
    const float* const sums =
        static_cast<const float*>(p.d.data) + batch * p.d.batch_stride + row * p.d.row_stride;
    for (int64_t column = 0; column < p.n; column += kColumns) {
      finish_row(p, batch, row, column, std::min<int64_t>(kColumns, p.n - column), sums + column,
                 p.finish.residual != 0);
    }
  }
}

void copy_rows(const Product& p, uint64_t begin, uint64_t end) {
  const Operand &c = p.finish.c, &d = p.d;
  for (uint64_t i = begin; i < end; ++i) {
    const int64_t batch = static_cast<int64_t>(i) / p.m, row = static_cast<int64_t>(i) % p.m;
    std::memcpy(static_cast<float*>(const_cast<void*>(d.data)) + batch * d.batch_stride +
                    row * d.row_stride,
                static_cast<const float*>(c.data) + batch * c.batch_stride + row * c.row_stride,
                static_cast<size_t>(p.n) * sizeof(float));
  }
}

}  // namespace opdock::gemm
