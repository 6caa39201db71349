// SPDX-License-Identifier: Apache-2.0
#include "formula/cpu_blocks.h"

#include <algorithm>
#include <cstring>

namespace opdock::formula {
namespace {

// The steps are constants, so that the compiler makes vector instructions.
template <class T>
void copy_steps(char* to, int64_t to_step, const char* from, int64_t from_step, int64_t n) {
  if (to_step == 1 && from_step == 0) {
    T element;
    std::memcpy(&element, from, sizeof(T));
    for (int64_t i = 0; i < n; ++i)
      std::memcpy(to + i * static_cast<int64_t>(sizeof(T)), &element, sizeof(T));
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    T element;
    std::memcpy(&element, from + i * from_step * static_cast<int64_t>(sizeof(T)), sizeof(T));
    std::memcpy(to + i * to_step * static_cast<int64_t>(sizeof(T)), &element, sizeof(T));
  }
}

// This many columns are copied at a time, as one set of the first-level cache has a line for each:
// if the step is a power of two, all lines of a row are in one set.
constexpr int64_t kLines = 8;

template <class T>
void turn_steps(char* to, int64_t to_step, const char* from, int64_t from_step, int64_t rows,
                int64_t columns) {
  constexpr auto kSize = static_cast<int64_t>(sizeof(T));
  const auto move = [&](int64_t row, int64_t column) {
    T element;
    std::memcpy(&element, from + (column * from_step + row) * kSize, sizeof(T));
    std::memcpy(to + (row * to_step + column) * kSize, &element, sizeof(T));
  };
  int64_t column = 0;
  for (; column + kLines <= columns; column += kLines) {
    // The hardware does not foresee that these columns are next: prefetching halves the time.
    const int64_t next = std::min(columns, column + 2 * kLines);
    for (int64_t i = column + kLines; i < next; ++i)
      for (int64_t byte = 0; byte < rows * kSize; byte += 64)
        __builtin_prefetch(from + i * from_step * kSize + byte);
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = 0; i < kLines; ++i) move(row, column + i);
  }
  for (; column < columns; ++column)
    for (int64_t row = 0; row < rows; ++row) move(row, column);
}

}  // namespace

Memory allocate(size_t bytes) {
  Memory memory(static_cast<char*>(::operator new[](bytes, std::align_val_t(64))));
  std::memset(memory.get(), 0, bytes);
  return memory;
}

void copy(int size, void* to, int64_t to_step, const void* from, int64_t from_step, int64_t n) {
  char* const out = static_cast<char*>(to);
  const char* const in = static_cast<const char*>(from);
  if (n <= 0) return;
  if (to_step == 1 && from_step == 1) {
    std::memcpy(out, in, static_cast<size_t>(n * size));
    return;
  }
  switch (size) {
    case 1:
      return copy_steps<uint8_t>(out, to_step, in, from_step, n);
    case 2:
      return copy_steps<uint16_t>(out, to_step, in, from_step, n);
    case 4:
      return copy_steps<uint32_t>(out, to_step, in, from_step, n);
    default:
      return copy_steps<uint64_t>(out, to_step, in, from_step, n);
  }
}

void turn(int size, void* to, int64_t to_step, const void* from, int64_t from_step, int64_t rows,
          int64_t columns) {
  char* const out = static_cast<char*>(to);
  const char* const in = static_cast<const char*>(from);
  switch (size) {
    case 1:
      return turn_steps<uint8_t>(out, to_step, in, from_step, rows, columns);
    case 2:
      return turn_steps<uint16_t>(out, to_step, in, from_step, rows, columns);
    case 4:
      return turn_steps<uint32_t>(out, to_step, in, from_step, rows, columns);
    default:
      return turn_steps<uint64_t>(out, to_step, in, from_step, rows, columns);
  }
}

void fill(CpuKind kind, void* block, Value value, int64_t n) {
  switch (kind) {
    case CpuKind::kFloat:
      std::fill_n(static_cast<float*>(block), n, static_cast<float>(value.real));
      break;
    case CpuKind::kDouble:
      std::fill_n(static_cast<double*>(block), n, value.real);
      break;
    case CpuKind::kInteger:
      std::fill_n(static_cast<int64_t*>(block), n, value.integer);
      break;
    case CpuKind::kBool:
      std::fill_n(static_cast<int32_t*>(block), n, value.integer != 0 ? -1 : 0);
      break;
  }
}

void spread(CpuKind kind, void* block, int64_t n) {
  if (n <= 1) return;
  const int size = size_of(kind);
  copy(size, static_cast<char*>(block) + size, 1, block, 0, n - 1);
}

}  // namespace opdock::formula
