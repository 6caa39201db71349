// Kernels for matrix products on any GPU when no library can be used: correct for all dtypes,
// strides and epilogues, but slow. Other kernels here finish the sums that a library has computed.
// The host compiles this file at run time, when a kernel is needed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gemm_shared.cuh"
#include "opdock/activation_math.cuh"
#include "opdock/device.cuh"
#include "opdock/launch.cuh"
#include "opdock/packed.cuh"

namespace opdock::gemm {

// kTile: rows and columns of D per block. kDepth: terms of the sums that are in shared memory at
// once. A thread computes 4 x 4 elements, which are 16 apart.
inline constexpr int kTile = 64, kDepth = 16, kSide = 16, kEach = 4, kThreads = kSide * kSide;

struct Math {
  static OPDOCK_DEVICE float erf(float x) { return opdock::erf(x); }
  static OPDOCK_DEVICE float tanh(float x) { return opdock::tanh(x); }
  static OPDOCK_DEVICE float exp(float x) { return opdock::exp(x); }
};
struct FromBits {
  OPDOCK_DEVICE float operator()(uint32_t bits) const { return bits_float(bits); }
};

OPDOCK_DEVICE float load_float(const void* data, int element, int64_t at) {
  switch (element) {
    case kFloat32:
      return static_cast<const float*>(data)[at];
    case kFloat16:
      return half_bits_to_float(static_cast<const uint16_t*>(data)[at]);
    case kBfloat16:
      return to_float(static_cast<const bfloat16*>(data)[at]);
    case kInt8:
      return static_cast<float>(static_cast<const signed char*>(data)[at]);
    case kInt32:
      return static_cast<float>(static_cast<const int*>(data)[at]);
    case kE4m3:
      return e4m3_to_float(static_cast<const unsigned char*>(data)[at], FromBits());
    default:
      return e5m2_to_float(static_cast<const unsigned char*>(data)[at], FromBits());
  }
}

OPDOCK_DEVICE void store_float(void* data, int element, int64_t at, float value) {
  switch (element) {
    case kFloat32:
      static_cast<float*>(data)[at] = value;
      return;
    case kFloat16:
      static_cast<uint16_t*>(data)[at] = float_to_half_bits(value);
      return;
    case kBfloat16:
      static_cast<uint16_t*>(data)[at] = float_to_bfloat16_bits(value);
      return;
    case kE4m3:
      static_cast<unsigned char*>(data)[at] =
          static_cast<unsigned char>(float_to_e4m3(float_bits(value)));
      return;
    default:
      static_cast<unsigned char*>(data)[at] =
          static_cast<unsigned char>(float_to_e5m2(float_bits(value)));
  }
}

template <class T>
OPDOCK_DEVICE T load_as(const void* data, int element, int64_t at);
template <>
OPDOCK_DEVICE float load_as<float>(const void* data, int element, int64_t at) {
  return load_float(data, element, at);
}
template <>
OPDOCK_DEVICE int load_as<int>(const void* data, int, int64_t at) {
  return static_cast<const signed char*>(data)[at];
}

OPDOCK_DEVICE float scale_of(const Operand& operand, int64_t index) {
  return operand.scale == nullptr ? 1.0f : operand.scale[operand.scales ? index : 0];
}

// Stores one result, computed from its sum. The sum is already multiplied by alpha and by the
// scales of A and B.
OPDOCK_DEVICE void put(const Product& p, void* d, int64_t batch, int64_t row, int64_t column,
                       float value) {
  const Finish& how = p.finish;
  float bias = 0.0f, c = 0.0f;
  if (how.bias_element != kNoElement) bias = load_float(how.bias, how.bias_element, column);
  if (how.c.data != nullptr) {
    const int64_t at = batch * how.c.batch_stride + row * how.c.row_stride + column;
    c = how.beta * load_float(how.c.data, how.c.element, at);
  }
  value = finish<Math>(how.activation, how.residual, value, bias, c);
  store_float(d, p.d.element, batch * p.d.batch_stride + row * p.d.row_stride + column,
              value * scale_of(p.d, 0));
}

// Loads the next part of `operand` that a tile needs into shared[depth][row or column], with zeros
// beyond the operand's end. stride: distance between its rows (for B: its columns). along: distance
// between successive terms of a sum.
template <class T>
OPDOCK_DEVICE void take(const Operand& operand, int64_t at, int64_t stride, int64_t along,
                        int64_t across_left, int64_t along_left, T (*shared)[kTile]) {
  const bool along_first = along == 1;
  for (int i = thread_index(); i < kTile * kDepth; i += kThreads) {
    const int place = along_first ? i / kDepth : i % kTile;
    const int depth = along_first ? i % kDepth : i / kTile;
    shared[depth][place] =
        place < across_left && depth < along_left
            ? load_as<T>(operand.data, operand.element, at + place * stride + depth * along)
            : T();
  }
}

template <class T>
OPDOCK_DEVICE void multiply(const Product& p, void* d, T (*left)[kTile], T (*right)[kTile]) {
  const int64_t across = (p.n + kTile - 1) / kTile, down = (p.m + kTile - 1) / kTile;
  const int x = thread_index() % kSide, y = thread_index() / kSide;
  for (int64_t tile = block_index(); tile < across * down * p.batch; tile += grid_blocks()) {
    const int64_t batch = tile / (across * down);
    const int64_t row = tile / across % down * kTile, column = tile % across * kTile;
    const int64_t a = batch * p.a.batch_stride + row * p.a.row_stride;
    const int64_t b = batch * p.b.batch_stride + column * p.b.column_stride;
    const bool has_any = row + y < p.m && column + x < p.n;  // false for threads past the end of D
    T sums[kEach][kEach] = {};
    for (int64_t k = 0; k < p.k; k += kDepth) {
      take<T>(p.a, a + k * p.a.column_stride, p.a.row_stride, p.a.column_stride, p.m - row, p.k - k,
              left);
      take<T>(p.b, b + k * p.b.row_stride, p.b.column_stride, p.b.row_stride, p.n - column, p.k - k,
              right);
      block_barrier();
      OPDOCK_UNROLL
      for (int depth = 0; depth < (has_any ? kDepth : 0); ++depth) {
        OPDOCK_UNROLL
        for (int i = 0; i < kEach; ++i) {
          OPDOCK_UNROLL
          for (int j = 0; j < kEach; ++j)
            sums[i][j] += left[depth][y + i * kSide] * right[depth][x + j * kSide];
        }
      }
      block_barrier();
    }
    for (int i = 0; i < kEach; ++i) {
      const int64_t r = row + y + i * kSide;
      if (r >= p.m) continue;
      for (int j = 0; j < kEach; ++j) {
        const int64_t c = column + x + j * kSide;
        if (c >= p.n) continue;
        if (p.d.element == kInt32) {
          static_cast<int*>(d)[batch * p.d.batch_stride + r * p.d.row_stride + c] =
              static_cast<int>(sums[i][j]);
        } else {
          put(p, d, batch, r, c,
              static_cast<float>(sums[i][j]) * p.finish.alpha * scale_of(p.a, r) *
                  scale_of(p.b, c));
        }
      }
    }
  }
}

OPDOCK_KERNEL(kThreads) multiply_floats(Product p, void* d) {
  OPDOCK_SHARED(float, left, kDepth* kTile);
  OPDOCK_SHARED(float, right, kDepth* kTile);
  multiply<float>(p, d, reinterpret_cast<float (*)[kTile]>(left),
                  reinterpret_cast<float (*)[kTile]>(right));
}
OPDOCK_KERNEL(kThreads) multiply_integers(Product p, void* d) {
  OPDOCK_SHARED(int, left, kDepth* kTile);
  OPDOCK_SHARED(int, right, kDepth* kTile);
  multiply<int>(p, d, reinterpret_cast<int (*)[kTile]>(left),
                reinterpret_cast<int (*)[kTile]>(right));
}

// The columns of a row that one thread finishes: kFinishColumns of those before `end`, interleaved
// with the columns of the warp's other threads. Vector4: columns come in aligned groups of four
// contiguous elements, and a group is either complete or absent.
template <bool Vector4>
struct Columns {
  static constexpr int kGroup = Vector4 ? 4 : 1;
  int64_t first, end;

  // Calls body(j, column) for each group before `end`: it holds the thread's values from number j
  // on, and the row's elements from `column` on.
  template <class Body>
  OPDOCK_DEVICE void for_each(const Body& body) const {
    OPDOCK_UNROLL
    for (int j = 0; j < kFinishColumns; j += kGroup)
      if (first + j * warp_width() < end) body(j, first + j * warp_width());
  }
};
template <int Count, class T>
union Group {
  Unit<Count * sizeof(T)> unit;
  T at[Count];
};

// Everything that is the same for all columns is decided once, outside the loop: otherwise the
// branches take longer than the arithmetic.
template <class T, bool Vector4>
OPDOCK_DEVICE void load_columns(const Columns<Vector4>& columns, const void* row,
                                float (&value)[kFinishColumns]) {
  constexpr int kGroup = Columns<Vector4>::kGroup;
  columns.for_each([&](int j, int64_t column) {
    Group<kGroup, T> group;
    group.unit = load_unit<sizeof group>(static_cast<const T*>(row) + column);
    OPDOCK_UNROLL
    for (int i = 0; i < kGroup; ++i) value[j + i] = to_float(group.at[i]);
  });
}
// at: offset of the row's first element.
template <bool Vector4>
OPDOCK_DEVICE void load_columns(const Columns<Vector4>& columns, const void* data, int element,
                                int64_t at, float (&value)[kFinishColumns]) {
  const void* const row = static_cast<const char*>(data) + at * bytes_of(element);
  if (element == kFloat32) return load_columns<float>(columns, row, value);
  if (element == kFloat16) return load_columns<half>(columns, row, value);
  if (element == kBfloat16) return load_columns<bfloat16>(columns, row, value);
  columns.for_each([&](int j, int64_t column) {
    for (int i = 0; i < columns.kGroup; ++i) value[j + i] = load_float(row, element, column + i);
  });
}

template <class T, bool Vector4>
OPDOCK_DEVICE void store_columns(const Columns<Vector4>& columns, void* row,
                                 const float (&value)[kFinishColumns]) {
  constexpr int kGroup = Columns<Vector4>::kGroup;
  columns.for_each([&](int j, int64_t column) {
    Group<kGroup, T> group;
    OPDOCK_UNROLL
    for (int i = 0; i < kGroup; ++i) group.at[i] = from_float<T>(value[j + i]);
    store_unit<sizeof group>(static_cast<T*>(row) + column, group.unit);
  });
}
template <bool Vector4>
OPDOCK_DEVICE void store_columns(const Columns<Vector4>& columns, void* data, int element,
                                 int64_t at, const float (&value)[kFinishColumns]) {
  void* const row = static_cast<char*>(data) + at * bytes_of(element);
  if (element == kFloat32) return store_columns<float>(columns, row, value);
  if (element == kFloat16) return store_columns<half>(columns, row, value);
  if (element == kBfloat16) return store_columns<bfloat16>(columns, row, value);
  columns.for_each([&](int j, int64_t column) {
    for (int i = 0; i < columns.kGroup; ++i) store_float(row, element, column + i, value[j + i]);
  });
}

// Does what put() does, for several elements of a row.
template <bool Vector4>
OPDOCK_DEVICE void put_columns(const Product& p, void* d, int64_t batch, int64_t row,
                               const Columns<Vector4>& columns, float (&value)[kFinishColumns]) {
  const Finish& how = p.finish;
  float bias[kFinishColumns] = {}, c[kFinishColumns] = {};
  if (how.bias_element != kNoElement) load_columns(columns, how.bias, how.bias_element, 0, bias);
  if (how.c.data != nullptr)
    load_columns(columns, how.c.data, how.c.element,
                 batch * how.c.batch_stride + row * how.c.row_stride, c);
  const float scale = scale_of(p.d, 0);
  const auto finish_by = [&](auto activation) {
    OPDOCK_UNROLL
    for (int j = 0; j < kFinishColumns; ++j)
      value[j] =
          scale * finish<Math>(activation(), how.residual, value[j], bias[j], how.beta * c[j]);
  };
  switch (how.activation) {
    case kRelu:
      finish_by([] { return kRelu; });
      break;
    case kGelu:
      finish_by([] { return kGelu; });
      break;
    case kGeluTanh:
      finish_by([] { return kGeluTanh; });
      break;
    case kSilu:
      finish_by([] { return kSilu; });
      break;
    default:
      finish_by([] { return kNone; });
  }
  store_columns(columns, d, p.d.element, batch * p.d.batch_stride + row * p.d.row_stride, value);
}

// Each warp finishes one part of a row at a time, with kFinishColumns columns per thread.
template <bool Vector4>
OPDOCK_DEVICE void finish_rows(const Product& p, const Operand& sums, void* d) {
  constexpr int kWarp = warp_width(), kPart = kWarp * kFinishColumns, kWarps = kThreads / kWarp;
  const int lane = thread_index() % kWarp, warp = thread_index() / kWarp;
  const int64_t across = (p.n + kPart - 1) / kPart, parts = across * p.m * p.batch;
  for (int64_t i = block_index() * kWarps + warp; i < parts; i += grid_blocks() * kWarps) {
    const int64_t rows =
        parts <= 0xffffffff ? static_cast<uint32_t>(i) / static_cast<uint32_t>(across) : i / across;
    const int64_t batch = p.batch == 1 ? 0 : rows / p.m, row = rows - batch * p.m;
    const int64_t first = (i - rows * across) * kPart + lane * Columns<Vector4>::kGroup;
    const Columns<Vector4> columns = {first, p.n};
    float value[kFinishColumns] = {};
    load_columns(columns, sums.data, sums.element,
                 batch * sums.batch_stride + row * sums.row_stride, value);
    const float scale = p.finish.alpha * scale_of(p.a, row);
    columns.for_each([&](int j, int64_t column) {
      for (int k = 0; k < columns.kGroup; ++k) value[j + k] *= scale * scale_of(p.b, column + k);
    });
    put_columns(p, d, batch, row, columns, value);
  }
}

// Finishes the sums that a library has computed, which may be stored in D itself. p.a and p.b are
// used only for their scales. vectors: whether Columns<true> can be used.
OPDOCK_KERNEL(kThreads) finish_sums(Product p, Operand sums, void* d, int vectors) {
  pdl_wait_and_trigger();
  if (vectors) return finish_rows<true>(p, sums, d);
  finish_rows<false>(p, sums, d);
}

// Applies the activation to each x, in the few instructions that memory bandwidth leaves time for.
// There is no switch, because it would be compiled to a jump table.
template <class T>
OPDOCK_DEVICE void activate_quickly(int activation, float (&x)[vector_size<T>]) {
  using Quick = ActivationMath<T>;
  float sigmoid, rest;
  if (activation == kGelu) {
    OPDOCK_UNROLL
    for (int k = 0; k < vector_size<T>; ++k) x[k] = Quick::gelu(x[k]);
  } else if (activation == kGeluTanh) {
    OPDOCK_UNROLL
    for (int k = 0; k < vector_size<T>; ++k)
      x[k] = Quick::gelu_tanh(x[k], x[k] * x[k], &sigmoid, &rest);
  } else if (activation == kSilu) {
    OPDOCK_UNROLL
    for (int k = 0; k < vector_size<T>; ++k) x[k] = Quick::silu(x[k], &sigmoid);
  } else if (activation == kRelu) {
    OPDOCK_UNROLL
    for (int k = 0; k < vector_size<T>; ++k) x[k] = max_or_nan(x[k], 0.0f);
  }
}

// Does what finish_sums() does for 16-bit numbers in complete vectors of 16 bytes: each thread
// computes one vector of D. alpha is 1, there are no scales, all operands have dtype T, and there
// are fewer than 2^31 vectors.
template <class T>
OPDOCK_KERNEL(kThreads)
finish_vectors(Product p, Operand sums, void* d) {
  pdl_wait_and_trigger();
  constexpr int kSize = vector_size<T>;
  const Finish& how = p.finish;
  const uint32_t across = static_cast<uint32_t>(p.n / kSize), down = static_cast<uint32_t>(p.m);
  const uint32_t i = static_cast<uint32_t>(block_index()) * kThreads + thread_index();
  const uint32_t rows = i / across, batch = p.batch == 1 ? 0 : rows / down;
  if (batch >= p.batch || rows - batch * down >= down) return;
  const int64_t row = rows - batch * down, column = int64_t{i - rows * across} * kSize;
  const auto at = [&](const Operand& matrix, const void* data) {
    return static_cast<const T*>(data) + batch * matrix.batch_stride + row * matrix.row_stride +
           column;
  };
  const bool has_bias = how.bias_element != kNoElement, has_c = how.c.data != nullptr;
  Packed<T> sum, bias, c;
  load_piece(at(sums, sums.data), &sum);
  if (has_bias) load_piece(static_cast<const T*>(how.bias) + column, &bias);
  if (has_c) load_piece(at(how.c, how.c.data), &c);
  float value[kSize], more[kSize];
  const auto add = [&](const Packed<T>& piece, float factor) {
    to_floats(piece, more);
    OPDOCK_UNROLL
    for (int k = 0; k < kSize; ++k) value[k] = opdock::fma(factor, more[k], value[k]);
  };
  to_floats(sum, value);
  if (has_bias) add(bias, 1.0f);
  if (has_c && !how.residual) add(c, how.beta);
  activate_quickly<T>(how.activation, value);
  if (has_c && how.residual) add(c, how.beta);
  from_floats(value, &sum);
  store_piece(const_cast<T*>(at(p.d, d)), sum);
}

}  // namespace opdock::gemm
