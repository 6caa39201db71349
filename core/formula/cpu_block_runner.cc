// SPDX-License-Identifier: Apache-2.0
#include "formula/cpu_block_runner.h"

#include <algorithm>

#include "formula/cpu_runner.h"

namespace opdock::formula {
namespace {

using What = Number::What;

// The most elements of a block, and the bytes that all registers may have: blocks are as long as
// the first-level cache allows.
constexpr int64_t kMaxBlock = 1024;
constexpr int64_t kRegisterBytes = 24 << 10;
// Bytes between registers: at distances of 4096 bytes they would share a few lines of the cache.
constexpr int64_t kPad = 64;

constexpr size_t kMaxRoom = 1 << 20;  // bytes; larger memory is freed after the run

int64_t round_up(int64_t n) {
  return (n + kStride - 1) / kStride * kStride;
}

}  // namespace

BlockRunner::BlockRunner(const CpuProgram& program, const Space& space, const void* const* inputs,
                         void* const* results, const Value* scalars, Room* room)
    : program_(program),
      space_(space),
      inputs_(inputs),
      results_(results),
      totals_(room->totals),
      offsets_(room->offsets),
      tiles_(room->tiles),
      kernels_(chosen_kernels()),
      scalars_(scalars),
      slots_(room->slots),
      registers_(room->registers),
      kept_(room->kept),
      links_(room->links) {
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
  tiles_.clear();
}

void BlockRunner::begin_pass(const Pass& pass) {
  for (const auto& [number, place] : pass.small)
    slot(number) = {small_ + int64_t{place} * small_size_, false};
  for (const auto& [number, place] : pass.large)
    slot(number) = {large_ + int64_t{place} * large_size_, false};
  registers_ = slots_;
}

void BlockRunner::compute_uniform(int32_t i, const int64_t* where, int64_t row) {
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

void BlockRunner::load(const Number& number, void* to, const void* from, int64_t n) const {
  kernels_.load[static_cast<int>(number.type)](to, from, n);
}

void BlockRunner::compute(Kernel kernel, void* out, const std::array<int32_t, 3>& args, int64_t n) {
  Source sources[3];
  for (size_t i = 0; i < 3; ++i)
    if (args[i] >= 0) sources[i] = slot(args[i]);
  kernel(out, sources, n);
}

void BlockRunner::run_block(const Pass& pass, const int64_t* where, int64_t row, int64_t column,
                            int64_t n) {
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

void BlockRunner::point(const Instruction& one, const int64_t* where, int64_t column, int64_t n) {
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

void BlockRunner::make_links() {
  links_.clear();
  for (const Pass& pass : program_.passes) {
    for (const Instruction& one : pass.block) {
      for (const LinkPlan& plan : one.links) {
        Link link;
        link.op = plan.op;
        link.kernel = plan.kernel;
        for (size_t k = 0; k < 2; ++k) {
          if (plan.args[k] < 0 || !program_.is_uniform[static_cast<size_t>(plan.args[k])]) continue;
          link.data[k] = slot(plan.args[k]).data;
          link.is_uniform[k] = true;
        }
        links_.push_back(link);
      }
    }
  }
}

void BlockRunner::run_chain(const Instruction& one, int64_t n) {
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

void BlockRunner::load_block(int32_t i, const void* input, int64_t offset, int64_t step,
                             int64_t n) {
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

bool BlockRunner::is_plain(const Number& input) {
  return input.type == Type::kFloat32 || input.type == Type::kFloat64 || input.type == Type::kInt64;
}

bool BlockRunner::is_result(int32_t i) const {
  const std::vector<int32_t>& results = program_.numbers.results;
  return std::find(results.begin(), results.end(), i) != results.end();
}

void BlockRunner::load_rows(int32_t i, int64_t n) {
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

void BlockRunner::load_steps(const Number& number, void* to, const char* from, int64_t step,
                             int64_t n) {
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

void BlockRunner::store(size_t r, int64_t offset, int64_t first, int64_t n) {
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

}  // namespace opdock::formula
