// SPDX-License-Identifier: Apache-2.0
#include "formula/interpreter.h"

#include <algorithm>

#include "formula/cpu_runner.h"
#include "formula/cpu_sums.h"

namespace opdock::formula {
namespace {

// Bytes of a row's kept values, which should stay in the second-level cache.
constexpr int64_t kKeptBytes = 256 << 10;

}  // namespace

Interpreter::Interpreter(const Graph& graph)
    : has_reductions_(graph.has_reductions()), has_sums_(graph.has_sums()) {
  const Kernels& kernels = chosen_kernels();
  const Numbers numbers = lower(graph.simplified(), kernels);
  has_reductions_ = numbers.has_reductions;
  long_ = std::make_shared<const CpuProgram>(compile(numbers, kernels, Layout::kLong));
  if (has_reductions_) {
    kept_ = std::make_shared<const CpuProgram>(compile(numbers, kernels, Layout::kKept));
  } else {
    flat_ = std::make_shared<const CpuProgram>(compile(numbers, kernels, Layout::kFlat));
  }
}

int64_t Interpreter::pieces(const Space& space) const {
  if (has_sums_) {
    const CpuChunks chunks = cpu_chunks(space, has_reductions_);
    return chunks.count * chunks.parts;
  }
  return space.rows * pieces_of_row(space, has_reductions_);
}

int64_t Interpreter::grain(const Space& space) const {
  if (has_sums_) return 1;
  return std::max(kPiece / std::max(space.columns, int64_t{1}), int64_t{1});
}

void Interpreter::run(const Space& space, const void* const* inputs, void* const* results,
                      const Value* scalars, int64_t begin, int64_t end, void* partial) const {
  if (begin >= end) return;
  const CpuProgram* program = long_.get();
  if (kept_ != nullptr && !kept_->kept.empty()) {
    int64_t bytes = 0;
    for (const int32_t i : kept_->kept)
      bytes += size_of(kept_->numbers.all[static_cast<size_t>(i)].kind);
    if (bytes * space.columns <= kKeptBytes) program = kept_.get();
  }
  if (flat_ != nullptr && space.rows > 1 && 2 * space.columns <= kMinBlock) program = flat_.get();
  run_program(*program, space, inputs, results, scalars, static_cast<double*>(partial), begin, end);
}

int64_t Interpreter::partial_bytes(const Space& space) const {
  if (!has_sums_) return 0;
  return places_of_sums(long_->numbers, space).back() * static_cast<int64_t>(sizeof(double));
}

Interpreter::Sums Interpreter::sums(const Space& space, void* partial) const {
  const Numbers& numbers = long_->numbers;
  const CpuChunks chunks = cpu_chunks(space, has_reductions_);
  const std::vector<int64_t> places = places_of_sums(numbers, space);
  Sums sums = {chunks.rows, chunks.parts, {}};
  for (size_t i = 0; i < numbers.outputs.size(); ++i)
    sums.partial.push_back(is_sum(numbers.outputs[i]) ? static_cast<double*>(partial) + places[i]
                                                      : nullptr);
  return sums;
}

int64_t Interpreter::sum_pieces(const Space& space) const {
  return pieces_of_totals(long_->numbers, space);
}

void Interpreter::add_sums(const Space& space, const void* partial, void* const* results,
                           int64_t begin, int64_t end) const {
  add_partial_sums(long_->numbers, chosen_kernels(), space, static_cast<const double*>(partial),
                   results, begin, end);
}

}  // namespace opdock::formula
