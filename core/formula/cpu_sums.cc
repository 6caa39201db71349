// SPDX-License-Identifier: Apache-2.0
#include "formula/cpu_sums.h"

#include <algorithm>

#include "formula/cpu_blocks.h"
#include "formula/cpu_runner.h"

namespace opdock::formula {
namespace {

// A chunk has enough elements to be worth waking a thread for, and enough rows that the partial
// sums are few beside the elements; and there are not more chunks than this.
constexpr int64_t kMinRows = 16;
constexpr int64_t kMaxChunks = 512;

int64_t divided(int64_t count, int64_t by) {
  return (count + by - 1) / by;
}

template <class T>
void add_block(double* sums, const Source& from, int64_t first, int64_t n) {
  const T* const data = static_cast<const T*>(from.data);
  if (from.is_uniform) {
    for (int64_t i = 0; i < n; ++i) sums[i] += static_cast<double>(data[0]);
  } else {
    for (int64_t i = 0; i < n; ++i) sums[i] += static_cast<double>(data[first + i]);
  }
}

template <class T>
double total_of(const Source& from, int64_t first, int64_t n) {
  const T* const data = static_cast<const T*>(from.data);
  if (from.is_uniform) return static_cast<double>(data[0]) * static_cast<double>(n);
  double total = 0;
  for (int64_t i = 0; i < n; ++i) total += static_cast<double>(data[first + i]);
  return total;
}

}  // namespace

CpuChunks cpu_chunks(const Space& space, bool has_reductions) {
  CpuChunks chunks;
  chunks.rows = std::max(kMinRows, 2 * kPiece / std::max<int64_t>(space.columns, 1));
  chunks.rows = std::max(chunks.rows, divided(space.rows, kMaxChunks));
  chunks.count = divided(space.rows, chunks.rows);
  chunks.parts = std::max<int64_t>(pieces_of_row(space, has_reductions), 1);
  return chunks;
}

std::vector<int64_t> places_of_sums(const Numbers& numbers, const Space& space) {
  const CpuChunks chunks = cpu_chunks(space, numbers.has_reductions);
  std::vector<int64_t> places = {0};
  for (const Output output : numbers.outputs) {
    const int64_t width = output == Output::kColumnSums ? space.columns
                          : output == Output::kTotal    ? chunks.parts
                                                        : 0;
    places.push_back(places.back() + chunks.count * width);
  }
  return places;
}

void add_to_columns(double* sums, CpuKind kind, const Source& from, int64_t first, int64_t n) {
  if (kind == CpuKind::kDouble)
    add_block<double>(sums, from, first, n);
  else
    add_block<float>(sums, from, first, n);
}

void add_to_total(double* sum, CpuKind kind, const Source& from, int64_t first, int64_t n) {
  *sum +=
      kind == CpuKind::kDouble ? total_of<double>(from, first, n) : total_of<float>(from, first, n);
}

int64_t pieces_of_totals(const Numbers& numbers, const Space& space) {
  int64_t pieces = 0;
  for (const Output output : numbers.outputs) {
    if (output == Output::kColumnSums)
      pieces = std::max(pieces, divided(space.columns, kTotalColumns));
    if (output == Output::kTotal) pieces = std::max<int64_t>(pieces, 1);
  }
  return pieces;
}

void add_partial_sums(const Numbers& numbers, const Kernels& kernels, const Space& space,
                      const double* partial, void* const* results, int64_t begin, int64_t end) {
  const CpuChunks chunks = cpu_chunks(space, numbers.has_reductions);
  const std::vector<int64_t> places = places_of_sums(numbers, space);
  // Conversions read whole vectors.
  double sums[kTotalColumns + kStride];
  float singles[kTotalColumns + kStride];
  char converted[8 * (kTotalColumns + kStride)];
  for (size_t r = 0; r < numbers.outputs.size(); ++r) {
    if (!is_sum(numbers.outputs[r])) continue;
    const bool is_total = numbers.outputs[r] == Output::kTotal;
    const double* const from = partial + places[r];
    const int64_t width = is_total ? 1 : space.columns;
    const int64_t rows = is_total ? chunks.count * chunks.parts : chunks.count;
    const Type type = numbers.result_types[r];
    const int size = formula::size_of(type);
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t first = piece * kTotalColumns, n = std::min(kTotalColumns, width - first);
      if (n <= 0) break;
      std::fill(sums, sums + kTotalColumns + kStride, 0.0);
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t i = 0; i < n; ++i) sums[i] += from[row * width + first + i];
      const bool is_double = type == Type::kFloat64;
      for (int64_t i = 0; i < kTotalColumns + kStride; ++i)
        singles[i] = static_cast<float>(sums[i]);
      const void* const numbers_of = is_double ? static_cast<const void*>(sums) : singles;
      kernels.store[static_cast<int>(type)](converted, numbers_of, n);
      const int64_t step = space.results[r].column;
      copy(size, static_cast<char*>(results[r]) + first * step * size, step, converted, 1, n);
    }
  }
}

}  // namespace opdock::formula
