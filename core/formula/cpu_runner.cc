// SPDX-License-Identifier: Apache-2.0
#include "formula/cpu_runner.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "base/thread_own.h"
#include "formula/cpu_blocks.h"
#include "formula/cpu_sums.h"
#include "formula/cursor.h"

namespace opdock::formula {
namespace {

using What = Number::What;

// The most elements of a block, and the bytes that all registers may have: blocks are as long as
// the first-level cache allows.
constexpr int64_t kMaxBlock = 1024;
constexpr int64_t kRegisterBytes = 24 << 10;
// Bytes between registers: at distances of 4096 bytes they would share a few lines of the cache.
constexpr int64_t kPad = 64;

// The part of several rows that is computed at once where an input has its columns, not its rows,
// next to each other: a line of the cache then has elements of many rows, all of which are used.
constexpr int64_t kTileRows = 32;
constexpr int64_t kTileColumns = 256;
constexpr int64_t kTilePitch = kTileColumns + 16;  // from row to row, for the sake of the cache

int64_t round_up(int64_t n) {
  return (n + kStride - 1) / kStride * kStride;
}

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
constexpr size_t kMaxRoom = 1 << 20;  // bytes; larger memory is freed after the run

// Runs a program, for one thread.
class Runner {
 public:
  Runner(const CpuProgram& program, const Space& space, const void* const* inputs,
         void* const* results, const Value* scalars, double* partial, Room* room)
      : program_(program),
        kernels_(chosen_kernels()),
        space_(space),
        inputs_(inputs),
        results_(results),
        scalars_(scalars),
        partial_(partial),
        slots_(room->slots),
        registers_(room->registers),
        kept_(room->kept),
        links_(room->links),
        totals_(room->totals),
        offsets_(room->offsets),
        tile_memory_(room->tile_memory),
        tiles_(room->tiles) {
    const std::vector<Number>& all = program.numbers.all;
    const auto bytes = static_cast<int64_t>(4 * program.num_small + 8 * program.num_large);
    block_ = kMaxBlock;
    while (block_ > kMinBlock && block_ * bytes > kRegisterBytes) block_ /= 2;
    const int64_t wanted = program.is_flat ? space.columns * space.rows : space.columns;
    block_ = std::min(block_, std::max(round_up(wanted), kStride));
    rows_per_block_ = program.is_flat ? block_ / space.columns : 1;
    kept_length_ = round_up(space.columns);
    int64_t kept_bytes = 0;
    for (const int32_t i : program.kept) kept_bytes += kept_length_ * size_of(at(i).kind);
    const auto registers = static_cast<int64_t>(program.num_small + program.num_large);
    const size_t wanted_bytes =
        static_cast<size_t>(block_ * (bytes + 16) + registers * kPad + kept_bytes) +
        all.size() * kStride * 8;
    if (room->bytes < wanted_bytes) {
      Memory& memory = wanted_bytes > kMaxRoom ? memory_ : room->memory;
      memory = allocate(wanted_bytes);
      if (wanted_bytes <= kMaxRoom) room->bytes = wanted_bytes;
    }
    char* next = memory_ != nullptr ? memory_.get() : room->memory.get();
    const auto take = [&](int64_t size) {
      char* const taken = next;
      next += size;
      return taken;
    };
    uniform_ = take(static_cast<int64_t>(all.size()) * kStride * 8);
    small_size_ = block_ * 4 + kPad;
    large_size_ = block_ * 8 + kPad;
    large_ = take(large_size_ * static_cast<int64_t>(program.num_large));
    scratch_ = take(block_ * 8);
    converted_ = take(block_ * 8);
    small_ = take(small_size_ * static_cast<int64_t>(program.num_small));
    slots_.assign(all.size(), {});
    kept_.resize(program.kept.empty() ? 0 : all.size());
    for (const int32_t i : program.kept)
      kept_[static_cast<size_t>(i)] = take(kept_length_ * size_of(at(i).kind));
    for (size_t i = 0; i < all.size(); ++i)
      if (program.is_uniform[i]) slots_[i] = {uniform_ + i * kStride * 8, true};
    make_links();
    totals_.resize(all.size());
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
  const Number& at(int32_t i) const { return program_.numbers.all[static_cast<size_t>(i)]; }
  Source& slot(int32_t i) { return slots_[static_cast<size_t>(i)]; }
  void* memory(int32_t i) { return const_cast<void*>(slot(i).data); }

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
    tiles_.clear();
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

  // Sets where the numbers of a pass are.
  void begin_pass(const Pass& pass) {
    for (const auto& [number, place] : pass.small)
      slot(number) = {small_ + int64_t{place} * small_size_, false};
    for (const auto& [number, place] : pass.large)
      slot(number) = {large_ + int64_t{place} * large_size_, false};
    registers_ = slots_;
  }

  void compute_uniform(int32_t i, const int64_t* where, int64_t row) {
    const Number& number = at(i);
    void* const out = memory(i);
    switch (number.what) {
      case What::kInput:
        load(number, out,
             static_cast<const char*>(inputs_[number.index]) +
                 where[number.index] * formula::size_of(number.type),
             1);
        spread(number.kind, out, kStride);
        break;
      case What::kScalar:
        fill(number.kind, out, scalars_[number.index], kStride);
        break;
      case What::kConstant:
        fill(number.kind, out, number.value, kStride);
        break;
      case What::kRow:
        fill(CpuKind::kInteger, out, {0, row}, kStride);
        break;
      case What::kColumns:
        fill(CpuKind::kInteger, out, {0, space_.columns}, kStride);
        break;
      case What::kCompute:
        compute(number.kernel, out, number.args, kStride);
        break;
      case What::kColumn:
      case What::kReduce:
        break;
    }
  }
  void load(const Number& number, void* to, const void* from, int64_t n) const {
    kernels_.load[static_cast<int>(number.type)](to, from, n);
  }
  void compute(Kernel kernel, void* out, const std::array<int32_t, 3>& args, int64_t n) {
    Source sources[3];
    for (size_t i = 0; i < 3; ++i)
      if (args[i] >= 0) sources[i] = slot(args[i]);
    kernel(out, sources, n);
  }

  void run_block(const Pass& pass, const int64_t* where, int64_t row, int64_t column, int64_t n) {
    const int64_t whole = round_up(n);
    for (const int32_t i : pass.kept)
      slot(i) = {kept_[static_cast<size_t>(i)] + column * size_of(at(i).kind), false};
    for (const Instruction& one : pass.block) {
      switch (one.what) {
        case Instruction::What::kInput:
          if (program_.is_flat) {
            load_rows(one.out, n);
          } else {
            const size_t t = at(one.out).index;
            const int64_t step = space_.inputs[t].column;
            if (!tiles_.empty() && tiles_[t] != nullptr) {
              const int64_t place = tile_row_ * kTilePitch + column - tile_column_;
              load_block(one.out, tiles_[t], place, 1, n);
            } else {
              load_block(one.out, inputs_[t], where[t] + column * step, step, n);
            }
          }
          break;
        case Instruction::What::kRow:
        case Instruction::What::kColumn: {
          int64_t* const to = static_cast<int64_t*>(memory(one.out));
          if (one.what == Instruction::What::kRow) {
            for (int64_t i = 0; i < n; ++i) to[i] = row + i / space_.columns;
          } else if (program_.is_flat) {
            for (int64_t i = 0; i < n; ++i) to[i] = i % space_.columns;
          } else {
            for (int64_t i = 0; i < n; ++i) to[i] = column + i;
          }
          break;
        }
        case Instruction::What::kCompute:
          point(one, where, column, n);
          compute(one.kernel, memory(one.out), one.args, whole);
          break;
        case Instruction::What::kChain:
          point(one, where, column, n);
          run_chain(one, whole);
          break;
        case Instruction::What::kReduce:
          one.reduce(&totals_[static_cast<size_t>(one.out)], slot(one.args[0]).data, n, column);
          break;
      }
    }
  }

  // Points a number to its result's memory, if that has the form of a block, else to its register.
  void point(const Instruction& one, const int64_t* where, int64_t column, int64_t n) {
    if (one.direct < 0) return;
    const auto r = static_cast<size_t>(one.direct);
    const bool fits = !program_.is_flat && n % kStride == 0 && space_.results[r].column == 1;
    if (fits) {
      slot(one.out).data = static_cast<char*>(results_[r]) +
                           (where[space_.inputs.size() + r] + column) * size_of(at(one.out).kind);
    } else {
      slot(one.out) = registers_[static_cast<size_t>(one.out)];
    }
  }

  // Makes the links of all chains. What is the same in the whole row stays where it is; the others
  // are found for each block.
  void make_links() {
    links_.clear();
    for (const Pass& pass : program_.passes) {
      for (const Instruction& one : pass.block) {
        for (const LinkPlan& plan : one.links) {
          Link link;
          link.op = plan.op;
          link.kernel = plan.kernel;
          for (size_t k = 0; k < 2; ++k) {
            if (plan.args[k] < 0 || !program_.is_uniform[static_cast<size_t>(plan.args[k])])
              continue;
            link.data[k] = slot(plan.args[k]).data;
            link.is_uniform[k] = true;
          }
          links_.push_back(link);
        }
      }
    }
  }
  void run_chain(const Instruction& one, int64_t n) {
    Link* const links = links_.data() + one.first_link;
    for (const Instruction::Place& place : one.places) {
      Link& link = links[place.link];
      if (place.arg < 2) {
        link.data[place.arg] = slot(place.number).data;
      } else {
        link.out = memory(place.number);
      }
    }
    kernels_.chain(links, one.links.size(), n);
  }

  // Loads n elements of an input, or points to them if they have the form of a block.
  void load_block(int32_t i, const void* input, int64_t offset, int64_t step, int64_t n) {
    const Number& number = at(i);
    const int size = formula::size_of(number.type);
    const char* const from = static_cast<const char*>(input) + offset * size;
    if (is_plain(number) && step == 1 && n % kStride == 0 && !is_result(i)) {
      slot(i).data = from;
      return;
    }
    slot(i) = registers_[static_cast<size_t>(i)];
    load_steps(number, memory(i), from, step, n);
  }
  // Whether elements are values as they are.
  static bool is_plain(const Number& input) {
    return input.type == Type::kFloat32 || input.type == Type::kFloat64 ||
           input.type == Type::kInt64;
  }
  // A result that is an input is copied, as the input's memory may be that of another result.
  bool is_result(int32_t i) const {
    const std::vector<int32_t>& results = program_.numbers.results;
    return std::find(results.begin(), results.end(), i) != results.end();
  }
  void load_rows(int32_t i, int64_t n) {
    const Number& number = at(i);
    const int size = formula::size_of(number.type);
    const int64_t step = space_.inputs[number.index].column;
    const size_t tensors = space_.inputs.size() + space_.results.size();
    const char* const from = static_cast<const char*>(inputs_[number.index]);
    const int64_t columns = space_.columns;
    // The elements are gathered first, and converted all at once, where that changes them.
    char* const gathered = is_plain(number) ? static_cast<char*>(memory(i)) : scratch_;
    for (int64_t r = 0; r * columns < n; ++r)
      copy(size, gathered + r * columns * size, 1,
           from + offsets_[static_cast<size_t>(r) * tensors + number.index] * size, step, columns);
    if (gathered == scratch_) load(number, memory(i), scratch_, n);
  }
  void load_steps(const Number& number, void* to, const char* from, int64_t step, int64_t n) {
    const int size = formula::size_of(number.type);
    if (step == 1) return load(number, to, from, n);
    if (step == 0) {
      load(number, to, from, 1);
      return spread(number.kind, to, n);
    }
    if (is_plain(number)) return copy(size, to, 1, from, step, n);
    copy(size, scratch_, 1, from, step, n);
    load(number, to, scratch_, n);
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

  // Stores elements first … first + n - 1 of the block of result r.
  void store(size_t r, int64_t offset, int64_t first, int64_t n) {
    const int32_t i = program_.numbers.results[r];
    const Type type = program_.numbers.result_types[r];
    const int size = formula::size_of(type);
    const int64_t step = space_.results[r].column;
    char* const to = static_cast<char*>(results_[r]) + offset * size;
    const Source& from = slot(i);
    const Convert convert = kernels_.store[static_cast<int>(type)];
    if (from.is_uniform) {
      convert(converted_, from.data, 1);
      copy(size, to, step, converted_, 0, n);
      return;
    }
    const char* const data = static_cast<const char*>(from.data) + first * size_of(at(i).kind);
    if (data == to) return;  // it was written directly
    if (step == 1 || n == 1) {
      convert(to, data, n);
    } else {
      convert(converted_, data, n);
      copy(size, to, step, converted_, 1, n);
    }
  }

  const CpuProgram& program_;
  const Kernels& kernels_;
  const Space& space_;
  const void* const* inputs_;
  void* const* results_;
  const Value* scalars_;
  double* partial_;                          // sums over rows; null: there are none
  std::vector<double*> sums_;                // of the chunk, for each result
  int64_t small_size_ = 0, large_size_ = 0;  // bytes of a register
  int64_t block_ = 0, rows_per_block_ = 1, kept_length_ = 0;
  Memory memory_;  // instead of the room's
  char* uniform_ = nullptr;
  char *small_ = nullptr, *large_ = nullptr, *scratch_ = nullptr, *converted_ = nullptr;
  std::vector<Source>&slots_, &registers_;  // where each number is; where its register is
  std::vector<char*>& kept_;
  std::vector<Link>& links_;
  std::vector<Total>& totals_;
  std::vector<int64_t>& offsets_;  // of the rows of a block or a tile, in all tensors
  // The tile of each input that has one, of rows of kTilePitch elements; where it is, and the row
  // of it that is being computed.
  std::vector<char>& tile_memory_;
  std::vector<const char*>& tiles_;
  std::vector<Turned> turned_;
  int64_t tile_column_ = 0, tile_row_ = 0;
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
