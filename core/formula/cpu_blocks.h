// Memory for blocks of values, and copies of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "formula/cpu_program.h"

namespace opdock::formula {

struct Free {
  void operator()(char* memory) const { ::operator delete[](memory, std::align_val_t(64)); }
};
using Memory = std::unique_ptr<char[], Free>;
// Returns memory of zeros: kernels work on whole vectors, so they read beyond what was written.
Memory allocate(size_t bytes);

// Copies n elements of `size` bytes. Steps are in elements; that of `to` or `from` is 1 for the
// side that is contiguous.
void copy(int size, void* to, int64_t to_step, const void* from, int64_t from_step, int64_t n);
// Copies the transpose of a matrix, so that to[row * to_step + column] is
// from[column * from_step + row]. Steps are in elements.
void turn(int size, void* to, int64_t to_step, const void* from, int64_t from_step, int64_t rows,
          int64_t columns);
// Writes copies of a number to a block.
void fill(CpuKind kind, void* block, Value value, int64_t n);
// Copies the first element of a block to the others.
void spread(CpuKind kind, void* block, int64_t n);

}  // namespace opdock::formula
