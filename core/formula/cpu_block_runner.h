// Computes blocks of a program's numbers: loads what it reads, runs its instructions, and stores
// results. cpu_runner.cc says which blocks, in which order.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "formula/cpu_blocks.h"
#include "formula/cpu_program.h"
#include "formula/space.h"

namespace opdock::formula {

// The columns of a tile, and the distance of its rows, in elements.
inline constexpr int64_t kTileColumns = 256;
inline constexpr int64_t kTilePitch = kTileColumns + 16;  // for the sake of the cache

// The memory of a thread's runs, kept from one to the next. It holds what the last run left: a
// kernel computes whole strides, and nobody reads what it makes of numbers that are not there.
struct Room {
  Memory memory;
  size_t bytes = 0;
  std::vector<Source> slots, registers;
  std::vector<char*> kept;
  std::vector<Link> links;
  std::vector<Total> totals;
  std::vector<int64_t> offsets;
  std::vector<char> tile_memory;
  std::vector<const char*> tiles;
};

// Serves one thread in one call.
class BlockRunner {
 protected:
  BlockRunner(const CpuProgram& program, const Space& space, const void* const* inputs,
              void* const* results, const Value* scalars, Room* room);

  const Number& at(int32_t i) const { return program_.numbers.all[static_cast<size_t>(i)]; }
  Source& slot(int32_t i) { return slots_[static_cast<size_t>(i)]; }
  void* memory(int32_t i) { return const_cast<void*>(slot(i).data); }

  // Sets where the numbers of a pass are.
  void begin_pass(const Pass& pass);
  // Computes a number that is the same in the whole row, or call.
  void compute_uniform(int32_t i, const int64_t* where, int64_t row);
  // Computes n elements of a row, or of several. where: the row's elements in all tensors; of
  // several rows they are in offsets_.
  void run_block(const Pass& pass, const int64_t* where, int64_t row, int64_t column, int64_t n);
  // Stores elements first … first + n - 1 of the block of result r.
  void store(size_t r, int64_t offset, int64_t first, int64_t n);

  const CpuProgram& program_;
  const Space& space_;
  const void* const* const inputs_;
  void* const* const results_;
  int64_t block_ = 0, rows_per_block_ = 1;
  std::vector<Total>& totals_;
  std::vector<int64_t>& offsets_;  // of the rows of a block or a tile, in all tensors
  // The tile of each input that has one, of rows of kTilePitch elements; the column where it
  // begins, and the row of it that is being computed.
  std::vector<const char*>& tiles_;
  int64_t tile_column_ = 0, tile_row_ = 0;

 private:
  void load(const Number& number, void* to, const void* from, int64_t n) const;
  void compute(Kernel kernel, void* out, const std::array<int32_t, 3>& args, int64_t n);
  // Points a number to its result's memory, if that has the form of a block, else to its register.
  void point(const Instruction& one, const int64_t* where, int64_t column, int64_t n);
  // Makes the links of all chains. What is the same in the whole row stays where it is; the others
  // are found for each block.
  void make_links();
  void run_chain(const Instruction& one, int64_t n);
  // Loads n elements of an input, or points to them if they have the form of a block.
  void load_block(int32_t i, const void* input, int64_t offset, int64_t step, int64_t n);
  // Whether elements are values as they are.
  static bool is_plain(const Number& input);
  // A result that is an input is copied, as the input's memory may be that of another result.
  bool is_result(int32_t i) const;
  void load_rows(int32_t i, int64_t n);
  void load_steps(const Number& number, void* to, const char* from, int64_t step, int64_t n);

  const Kernels& kernels_;
  const Value* const scalars_;
  int64_t small_size_ = 0, large_size_ = 0;  // bytes of a register
  int64_t kept_length_ = 0;
  Memory memory_;  // instead of the room's
  char* uniform_ = nullptr;
  char *small_ = nullptr, *large_ = nullptr, *scratch_ = nullptr, *converted_ = nullptr;
  std::vector<Source>&slots_, &registers_;  // where each number is; where its register is
  std::vector<char*>& kept_;
  std::vector<Link>& links_;
};

}  // namespace opdock::formula
