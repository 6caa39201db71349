// SPDX-License-Identifier: Apache-2.0
#include "formula/cpu_runner.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "base/thread_own.h"
#include "formula/cpu_block_runner.h"
#include "formula/cpu_blocks.h"
#include "formula/cpu_sums.h"
#include "formula/cursor.h"

namespace opdock::formula {
namespace {

using What = Number::What;

// The part of several rows that is computed at once where an input has its columns, not its rows,
// next to each other: a line of the cache then has elements of many rows, all of which are used. It
// has kTileColumns columns.
constexpr int64_t kTileRows = 32;

Total first_total(const Number& number, CpuKind operand) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  using Limits = std::numeric_limits<int64_t>;
  const bool is_integer = operand == CpuKind::kInteger;
  switch (number.code) {
    case Code::kProd:
      return {1, 1, 0};
    case Code::kAmax:
    case Code::kArgmax:
      return {-kInfinity, is_integer ? Limits::min() : 0, 0};
    case Code::kAmin:
    case Code::kArgmin:
      return {kInfinity, is_integer ? Limits::max() : 0, 0};
    case Code::kAll:
      return {0, -1, 0};
    default:
      return {};
  }
}

Value finished(const Number& number, const Total& total, int64_t columns) {
  switch (number.code) {
    case Code::kMean:
      return {total.real / static_cast<double>(columns), 0};
    case Code::kArgmax:
    case Code::kArgmin:
      return {0, total.index};
    default:
      return {total.real, total.integer};
  }
}

// Computes the rows of a call, for one thread.
class Runner : private BlockRunner {
 public:
  Runner(const CpuProgram& program, const Space& space, const void* const* inputs,
         void* const* results, const Value* scalars, double* partial, Room* room)
      : BlockRunner(program, space, inputs, results, scalars, room),
        partial_(partial),
        tile_memory_(room->tile_memory) {
    find_turned();
  }

  // Computes pieces begin … end - 1.
  void run(int64_t begin, int64_t end) {
    const Cursor start(space_, 0);
    for (const int32_t i : program_.once) compute_uniform(i, start.offsets().data(), 0);
    if (program_.passes.size() == 1) begin_pass(program_.passes[0]);
    if (partial_ != nullptr) return run_chunks(begin, end);
    if (program_.is_flat) return run_flat(begin, end);
    const int64_t per_row = pieces_of_row(space_, program_.numbers.has_reductions);
    Cursor cursor(space_, begin / per_row);
    for (int64_t row = begin / per_row; row * per_row < end; ++row, cursor.next()) {
      if (!turned_.empty() && row * per_row >= begin) {
        const int64_t rows = std::min({kTileRows, cursor.left(), end / per_row - row});
        if (rows > 1) {
          run_rows(&cursor, row, rows);
          row += rows - 1;
          continue;
        }
      }
      int64_t first = 0, last = space_.columns;
      if (per_row > 1) {
        first = std::max(begin - row * per_row, int64_t{0}) * kPiece;
        last = std::min(last, (end - row * per_row) * kPiece);
      }
      run_row(cursor.offsets().data(), row, first, last);
    }
  }

 private:
  void run_row(const int64_t* where, int64_t row, int64_t first, int64_t last) {
    const size_t count = program_.passes.size();
    for (size_t p = 0; p < count; ++p) {
      const Pass& pass = program_.passes[p];
      for (const int32_t i : pass.before) compute_uniform(i, where, row);
      if (count > 1) begin_pass(pass);
      for (const int32_t i : pass.reductions)
        totals_[static_cast<size_t>(i)] = first_total(at(i), at(at(i).args[0]).kind);
      for (int64_t column = first; column < last; column += block_) {
        const int64_t n = std::min(block_, last - column);
        run_block(pass, where, row, column, n);
        if (p + 1 < count) continue;
        for (const size_t r : program_.stores) {
          if (is_sum(program_.numbers.outputs[r])) {
            add(r, column, 0, n);
            continue;
          }
          const Steps& steps = space_.results[r];
          store(r, where[space_.inputs.size() + r] + column * steps.column, 0, n);
        }
      }
      for (const int32_t i : pass.reductions)
        fill(at(i).kind, memory(i),
             finished(at(i), totals_[static_cast<size_t>(i)], space_.columns), kStride);
    }
    for (const int32_t i : program_.after) compute_uniform(i, where, row);
    for (const size_t r : program_.row_stores) {
      if (is_sum(program_.numbers.outputs[r])) {
        add(r, 0, 0, 1);
      } else {
        store(r, where[space_.inputs.size() + r], 0, 1);
      }
    }
  }

  // Pieces of a call with sums over rows: each has some of the columns of a chunk of rows.
  void run_chunks(int64_t begin, int64_t end) {
    const Numbers& numbers = program_.numbers;
    const CpuChunks chunks = cpu_chunks(space_, numbers.has_reductions);
    const std::vector<int64_t> places = places_of_sums(numbers, space_);
    sums_.resize(numbers.outputs.size());
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t chunk = piece / chunks.parts, part = piece % chunks.parts;
      const int64_t first = part * kPiece;
      const int64_t last =
          part + 1 == chunks.parts ? space_.columns : std::min(space_.columns, first + kPiece);
      for (size_t r = 0; r < sums_.size(); ++r) {
        if (numbers.outputs[r] == Output::kTotal) {
          sums_[r] = partial_ + places[r] + piece;
          *sums_[r] = 0;
        } else if (numbers.outputs[r] == Output::kColumnSums) {
          sums_[r] = partial_ + places[r] + chunk * space_.columns;
          std::fill(sums_[r] + first, sums_[r] + last, 0.0);
        }
      }
      const int64_t row = chunk * chunks.rows, stop = std::min(row + chunks.rows, space_.rows);
      if (program_.is_flat) {
        run_flat(row, stop);
        continue;
      }
      Cursor cursor(space_, row);
      for (int64_t at_row = row; at_row < stop; ++at_row, cursor.next())
        run_row(cursor.offsets().data(), at_row, first, last);
    }
  }

  // An input whose neighbours in memory are in one column.
  struct Turned {
    size_t input;
    int size;
  };

  // Finds these inputs, if rows can be computed in parts.
  void find_turned() {
    if (program_.is_flat || program_.numbers.has_reductions || space_.ndim == 0) return;
    if (partial_ != nullptr) return;  // run_chunks() goes row by row
    size_t bytes = 0;
    for (const Number& number : program_.numbers.all) {
      if (number.what != What::kInput) continue;
      const Steps& steps = space_.inputs[number.index];
      if (steps.stride[static_cast<size_t>(space_.ndim - 1)] != 1 ||
          (steps.column >= -1 && steps.column <= 1))
        continue;
      turned_.push_back({number.index, formula::size_of(number.type)});
      bytes += static_cast<size_t>(kTileRows * kTilePitch * turned_.back().size);
    }
    if (turned_.empty()) return;
    tiles_.assign(space_.inputs.size(), nullptr);
    tile_memory_.resize(bytes);
  }

  // Computes several rows, of one turn of the innermost dimension, in parts of kTileColumns. Leaves
  // the cursor at the last one.
  void run_rows(Cursor* cursor, int64_t first_row, int64_t rows) {
    offsets_.clear();
    const size_t tensors = cursor->offsets().size();
    for (int64_t i = 0; i < rows; ++i) {
      if (i > 0) cursor->next();
      offsets_.insert(offsets_.end(), cursor->offsets().begin(), cursor->offsets().end());
    }
    for (int64_t column = 0; column < space_.columns; column += kTileColumns) {
      const int64_t n = std::min(kTileColumns, space_.columns - column);
      char* next = tile_memory_.data();
      for (const auto& [t, size] : turned_) {
        const int64_t step = space_.inputs[t].column;
        turn(size, next, kTilePitch,
             static_cast<const char*>(inputs_[t]) + (offsets_[t] + column * step) * size, step,
             rows, n);
        tiles_[t] = next;
        next += kTileRows * kTilePitch * size;
      }
      tile_column_ = column;
      for (tile_row_ = 0; tile_row_ < rows; ++tile_row_)
        run_row(offsets_.data() + static_cast<size_t>(tile_row_) * tensors, first_row + tile_row_,
                column, column + n);
    }
    tiles_.assign(tiles_.size(), nullptr);
  }

  // Blocks of several rows.
  void run_flat(int64_t begin, int64_t end) {
    Cursor cursor(space_, begin);
    const size_t tensors = space_.inputs.size() + space_.results.size();
    for (int64_t row = begin; row < end;) {
      const int64_t rows = std::min(rows_per_block_, end - row);
      offsets_.clear();
      for (int64_t i = 0; i < rows; ++i, cursor.next())
        offsets_.insert(offsets_.end(), cursor.offsets().begin(), cursor.offsets().end());
      const int64_t n = rows * space_.columns;
      run_block(program_.passes[0], nullptr, row, 0, n);
      for (const size_t r : program_.stores)
        for (int64_t i = 0; i < rows; ++i) {
          if (is_sum(program_.numbers.outputs[r])) {
            add(r, 0, i * space_.columns, space_.columns);
          } else {
            store(r, offsets_[static_cast<size_t>(i) * tensors + space_.inputs.size() + r],
                  i * space_.columns, space_.columns);
          }
        }
      row += rows;
    }
  }

  // Adds elements first … first + n - 1 of the block of result r to its sums, from `column` on.
  void add(size_t r, int64_t column, int64_t first, int64_t n) {
    const int32_t i = program_.numbers.results[r];
    if (program_.numbers.outputs[r] == Output::kTotal) {
      add_to_total(sums_[r], at(i).kind, slot(i), first, n);
    } else {
      add_to_columns(sums_[r] + column, at(i).kind, slot(i), first, n);
    }
  }

  double* const partial_;      // sums over rows; null: there are none
  std::vector<double*> sums_;  // of the chunk, for each result
  std::vector<char>& tile_memory_;
  std::vector<Turned> turned_;
};

}  // namespace

const Kernels& chosen_kernels() {
  static const Kernels& kernels = (OPDOCK_SIMD_CHOOSE(kernels))();
  return kernels;
}

void run_program(const CpuProgram& program, const Space& space, const void* const* inputs,
                 void* const* results, const Value* scalars, double* partial, int64_t begin,
                 int64_t end) {
  Room own;
  Room* const room = ThreadOwn<Room>::get();
  Runner(program, space, inputs, results, scalars, partial, room != nullptr ? room : &own)
      .run(begin, end);
}

}  // namespace opdock::formula
