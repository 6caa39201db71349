// Sums over rows on the CPU, in two stages with a fixed order of additions, whatever the number of
// threads: the first adds up chunks of rows while it computes them, the second adds up the chunks'
// sums. All are in float64.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "formula/cpu_program.h"
#include "formula/space.h"

namespace opdock::formula {

// How the rows of a call are divided, which depends on nothing but their number and length.
struct CpuChunks {
  int64_t rows = 0;   // of a chunk; the last one may have fewer
  int64_t count = 0;  // of chunks
  int64_t parts = 1;  // pieces of a chunk: each has some of the columns
};
CpuChunks cpu_chunks(const Space& space, bool has_reductions);

// Returns where the partial sums of each result are, in numbers from the first one of all, and as
// the last element the number of all. Those of columns are [chunks, columns], those of a total
// [chunks, parts]; a result that is not summed has none.
std::vector<int64_t> places_of_sums(const Numbers& numbers, const Space& space);

// Adds n numbers of a block to as many sums, or to a single one.
void add_to_columns(double* sums, CpuKind kind, const Source& from, int64_t first, int64_t n);
void add_to_total(double* sum, CpuKind kind, const Source& from, int64_t first, int64_t n);

// The columns that the second stage adds up at once: a piece of its work.
inline constexpr int64_t kTotalColumns = 256;
int64_t pieces_of_totals(const Numbers& numbers, const Space& space);
// Does pieces begin … end - 1 of the second stage, and writes the sums to the results.
void add_partial_sums(const Numbers& numbers, const Kernels& kernels, const Space& space,
                      const double* partial, void* const* results, int64_t begin, int64_t end);

}  // namespace opdock::formula
