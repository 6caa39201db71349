// SPDX-License-Identifier: Apache-2.0
#include "formula/cpu_program.h"

#include <algorithm>
#include <optional>

namespace opdock::formula {
namespace {

using What = Number::What;

// Returns the link for an operation on floats, one of whose arguments is the value before it.
// `before`: its place among the arguments, 0, 1 or 2.
std::optional<Link::Op> link_of(Code code, size_t before) {
  using L = Link::Op;
  switch (code) {
    case Code::kNegative:
      return L::kNegative;
    case Code::kAbs:
      return L::kAbs;
    case Code::kRelu:
      return L::kRelu;
    case Code::kSqrt:
      return L::kSqrt;
    case Code::kReciprocal:
      return L::kReciprocal;
    case Code::kExp:
      return L::kExp;
    case Code::kAdd:
      return L::kAdd;
    case Code::kSub:
      return before == 0 ? L::kSub : L::kSubFrom;
    case Code::kMul:
      return L::kMul;
    case Code::kDiv:
      return before == 0 ? L::kDiv : L::kDivFrom;
    case Code::kMaximum:
    case Code::kClampMin:
      return L::kMaximum;
    case Code::kMinimum:
    case Code::kClampMax:
      return L::kMinimum;
    case Code::kFma:
      return before == 2 ? L::kFmaAddend : L::kFma;
    default:
      return std::nullopt;
  }
}

class Compiler {
 public:
  Compiler(const Numbers& numbers, const Kernels& kernels, Layout layout)
      : kernels_(kernels), layout_(layout) {
    program_.numbers = numbers;
    program_.is_flat = layout == Layout::kFlat;
  }

  CpuProgram run() {
    const size_t count = all().size();
    int last = 0;
    for (const Number& number : all()) {
      const bool is_uniform =
          program_.is_flat ? number.extent == kOnce : (number.extent & kPerColumn) == 0;
      program_.is_uniform.push_back(is_uniform);
      if (number.what == What::kReduce) last = std::max(last, number.stage - 1);
    }
    const Numbers& numbers = program_.numbers;
    for (size_t i = 0; i < numbers.results.size(); ++i) {
      const int32_t result = numbers.results[i];
      const bool is_row = !numbers.has_columns[i];
      (is_row ? program_.row_stores : program_.stores).push_back(i);
      if (!is_row) last = std::max(last, at(result).stage);
    }
    program_.passes.resize(static_cast<size_t>(last) + 1);
    for (int32_t i = 0; i < static_cast<int32_t>(count); ++i) {
      if (!is_uniform(i) || at(i).what == What::kReduce) continue;
      if (at(i).stage == 0 && at(i).extent == kOnce) {
        program_.once.push_back(i);
      } else if (at(i).stage <= last) {
        program_.passes[static_cast<size_t>(at(i).stage)].before.push_back(i);
      } else {
        program_.after.push_back(i);
      }
    }
    is_kept_.resize(count);
    is_computed_.resize(count);
    for (int pass = 0; pass <= last; ++pass) add_pass(pass, pass == last);
    // The kept numbers are known only now.
    for (Pass& pass : program_.passes) {
      const bool is_last = &pass == &program_.passes.back();
      find_uses(pass, is_last);
      make_chains(&pass);
      if (is_last) find_direct(&pass);
      find_uses(pass, is_last);
      assign_registers(&pass);
    }
    return std::move(program_);
  }

 private:
  const std::vector<Number>& all() const { return program_.numbers.all; }
  const Number& at(int32_t i) const { return all()[static_cast<size_t>(i)]; }
  bool is_uniform(int32_t i) const { return program_.is_uniform[static_cast<size_t>(i)]; }

  void add_pass(int stage, bool is_last) {
    Pass& pass = program_.passes[static_cast<size_t>(stage)];
    std::vector<bool> needed(all().size());
    const auto need = [&](int32_t i) {
      if (i >= 0 && !is_uniform(i)) needed[static_cast<size_t>(i)] = true;
    };
    const auto count = static_cast<int32_t>(all().size());
    for (int32_t i = 0; i < count; ++i) {
      if (at(i).what != What::kReduce || at(i).stage != stage + 1) continue;
      pass.reductions.push_back(i);
      need(at(i).args[0]);
    }
    if (is_last)
      for (const size_t i : program_.stores) need(program_.numbers.results[i]);
    for (int32_t i = count - 1; i >= 0; --i) {
      const auto k = static_cast<size_t>(i);
      if (!needed[k]) continue;
      if (layout_ == Layout::kKept && at(i).what == What::kCompute && at(i).stage < stage &&
          is_computed_[k]) {
        if (!is_kept_[k]) keep(i);
        pass.kept.push_back(i);
        needed[k] = false;
        continue;
      }
      for (const int32_t arg : at(i).args) need(arg);
    }
    for (int32_t i = 0; i < count; ++i) {
      if (!needed[static_cast<size_t>(i)]) continue;
      is_computed_[static_cast<size_t>(i)] = true;
      Instruction one;
      one.out = i;
      one.args = at(i).args;
      one.kernel = at(i).kernel;
      one.what = at(i).what == What::kInput    ? Instruction::What::kInput
                 : at(i).what == What::kRow    ? Instruction::What::kRow
                 : at(i).what == What::kColumn ? Instruction::What::kColumn
                                               : Instruction::What::kCompute;
      pass.block.push_back(std::move(one));
      for (const int32_t reduction : pass.reductions) {
        if (at(reduction).args[0] != i) continue;
        Instruction reduce;
        reduce.what = Instruction::What::kReduce;
        reduce.out = reduction;
        reduce.args[0] = i;
        reduce.reduce = at(reduction).reduce;
        pass.block.push_back(std::move(reduce));
      }
    }
    // Reductions of what an earlier pass has kept.
    for (const int32_t reduction : pass.reductions) {
      const int32_t arg = at(reduction).args[0];
      if (std::find(pass.kept.begin(), pass.kept.end(), arg) == pass.kept.end()) continue;
      Instruction reduce;
      reduce.what = Instruction::What::kReduce;
      reduce.out = reduction;
      reduce.args[0] = arg;
      reduce.reduce = at(reduction).reduce;
      pass.block.push_back(std::move(reduce));
    }
    in_pass_.push_back(std::move(needed));
  }

  // Keeps a number that an earlier pass computes.
  void keep(int32_t i) {
    is_kept_[static_cast<size_t>(i)] = true;
    program_.kept.push_back(i);
    for (size_t p = 0; p < in_pass_.size(); ++p) {
      if (!in_pass_[p][static_cast<size_t>(i)]) continue;
      program_.passes[p].kept.push_back(i);
      break;
    }
  }

  // Calls body(number) for what an instruction reads.
  template <class Body>
  void for_each_arg(const Instruction& one, const Body& body) const {
    if (one.what == Instruction::What::kChain) {
      for (const LinkPlan& link : one.links)
        for (const int32_t arg : link.args)
          if (arg >= 0 && !is_uniform(arg)) body(arg);
    } else {
      for (const int32_t arg : one.args)
        if (arg >= 0 && !is_uniform(arg)) body(arg);
    }
  }

  // Notes the last instruction that reads each number.
  void find_uses(const Pass& pass, bool is_last) {
    last_use_.assign(all().size(), -1);
    for (size_t i = 0; i < pass.block.size(); ++i)
      for_each_arg(pass.block[i], [&](int32_t arg) {
        last_use_[static_cast<size_t>(arg)] = static_cast<int64_t>(i);
      });
    const auto end = static_cast<int64_t>(pass.block.size());
    if (is_last)
      for (const size_t i : program_.stores)
        last_use_[static_cast<size_t>(program_.numbers.results[i])] = end;
    for (const int32_t i : pass.kept) last_use_[static_cast<size_t>(i)] = end;
  }

  // Returns the link that computes this instruction after one that computed `before`, or as the
  // first one (before = -1).
  std::optional<LinkPlan> make_link(const Instruction& one, int32_t before) const {
    const Number& number = at(one.out);
    if (one.what != Instruction::What::kCompute || number.kind != CpuKind::kFloat)
      return std::nullopt;
    if (number.code == Code::kFma && !kernels_.chain_rounds_fma) return std::nullopt;
    LinkPlan link;
    link.out = one.out;
    const auto& args = one.args;
    if (number.code == Code::kMul && args[0] == args[1]) {
      link.op = Link::Op::kSquare;
      return args[0] == before || before < 0 ? std::optional(link) : std::nullopt;
    }
    size_t place = 0;
    if (before >= 0) {
      if (std::count(args.begin(), args.end(), before) != 1) return std::nullopt;
      place = static_cast<size_t>(std::find(args.begin(), args.end(), before) - args.begin());
    } else if (std::count(args.begin(), args.end(), args[0]) != 1) {
      return std::nullopt;
    }
    const std::optional<Link::Op> op = link_of(number.code, place);
    if (op) {
      link.op = *op;
    } else if (args[1] < 0 && at(args[0]).kind == CpuKind::kFloat) {
      link.op = Link::Op::kCall;
      link.kernel = number.kernel;
    } else {
      return std::nullopt;
    }
    size_t next = 0;
    for (size_t i = 0; i < 3; ++i)
      if (i != place && args[i] >= 0) link.args[next++] = args[i];
    return link;
  }

  // Joins instructions each of which uses the one before it.
  void make_chains(Pass* pass) {
    std::vector<Instruction> out;
    for (size_t i = 0; i < pass->block.size();) {
      std::vector<LinkPlan> links;
      const auto store = [&](int32_t number) {
        LinkPlan link;
        link.op = Link::Op::kStore;
        link.out = number;
        links.push_back(link);
      };
      const Instruction& first = pass->block[i];
      const std::optional<LinkPlan> begin = make_link(first, -1);
      size_t end = i + 1;
      if (begin) {
        LinkPlan load;
        load.args[0] = first.args[0];
        links = {load, *begin};
        for (; end < pass->block.size(); ++end) {
          const int32_t before = pass->block[end - 1].out;
          const std::optional<LinkPlan> link = make_link(pass->block[end], before);
          if (!link) break;
          if (last_use_[static_cast<size_t>(before)] > static_cast<int64_t>(end)) store(before);
          links.push_back(*link);
        }
        store(pass->block[end - 1].out);
      }
      if (end < i + 2) {
        out.push_back(std::move(pass->block[i]));
      } else {
        Instruction chain;
        chain.what = Instruction::What::kChain;
        chain.out = pass->block[end - 1].out;
        chain.links = std::move(links);
        find_places(&chain);
        out.push_back(std::move(chain));
      }
      i = end;
    }
    pass->block = std::move(out);
  }

  void find_places(Instruction* chain) {
    chain->first_link = program_.num_links;
    program_.num_links += chain->links.size();
    for (uint32_t i = 0; i < chain->links.size(); ++i) {
      const LinkPlan& link = chain->links[i];
      for (uint32_t k = 0; k < 2; ++k)
        if (link.args[k] >= 0 && !is_uniform(link.args[k]))
          chain->places.push_back({i, k, link.args[k]});
      if (link.op == Link::Op::kStore) chain->places.push_back({i, 2, link.out});
    }
  }

  // Finds results that may be written to their memory at once. The memory may be that of an input,
  // so nothing may read an input later.
  void find_direct(Pass* pass) const {
    const std::vector<int32_t>& results = program_.numbers.results;
    for (const size_t r : program_.stores) {
      if (is_sum(program_.numbers.outputs[r])) continue;
      const Type type = program_.numbers.result_types[r];
      if (type != Type::kFloat32 && type != Type::kFloat64 && type != Type::kInt64) continue;
      if (std::count(results.begin(), results.end(), results[r]) != 1) continue;
      for (size_t i = pass->block.size(); i-- > 0;) {
        Instruction& one = pass->block[i];
        const bool computes =
            one.what == Instruction::What::kCompute || one.what == Instruction::What::kChain;
        if (computes && one.out == results[r] && !is_kept_[static_cast<size_t>(one.out)])
          one.direct = static_cast<int32_t>(r);
        bool reads = one.what == Instruction::What::kInput;
        for_each_arg(one, [&](int32_t arg) { reads |= at(arg).what == What::kInput; });
        if (reads || one.direct == static_cast<int32_t>(r)) break;
      }
    }
  }

  void assign_registers(Pass* pass) {
    struct Pool {
      std::vector<int32_t> free;
      int32_t count = 0;
      int32_t take() {
        if (free.empty()) return count++;
        const int32_t taken = free.back();
        free.pop_back();
        return taken;
      }
    };
    Pool small, large;
    std::vector<int32_t> place(all().size(), -1);
    const auto pool_of = [&](int32_t i) -> Pool& {
      return size_of(at(i).kind) == 4 ? small : large;
    };
    const auto take = [&](int32_t i) {
      if (std::find(pass->kept.begin(), pass->kept.end(), i) != pass->kept.end()) return;
      const int32_t taken = place[static_cast<size_t>(i)] = pool_of(i).take();
      (size_of(at(i).kind) == 4 ? pass->small : pass->large).emplace_back(i, taken);
    };
    const auto release = [&](size_t instruction) {
      for_each_arg(pass->block[instruction], [&](int32_t arg) {
        int32_t& taken = place[static_cast<size_t>(arg)];
        const bool ends = last_use_[static_cast<size_t>(arg)] == static_cast<int64_t>(instruction);
        if (!ends || taken < 0) return;
        pool_of(arg).free.push_back(taken);
        taken = -1;
      });
    };
    for (size_t i = 0; i < pass->block.size(); ++i) {
      const Instruction& one = pass->block[i];
      if (one.what == Instruction::What::kChain) {
        // A chain stores a group of vectors before it reads the next ones.
        for (const LinkPlan& link : one.links)
          if (link.op == Link::Op::kStore) take(link.out);
        release(i);
      } else {
        release(i);
        if (one.what != Instruction::What::kReduce) take(one.out);
      }
    }
    program_.num_small = std::max(program_.num_small, static_cast<size_t>(small.count));
    program_.num_large = std::max(program_.num_large, static_cast<size_t>(large.count));
  }

  const Kernels& kernels_;
  Layout layout_;
  CpuProgram program_;
  std::vector<bool> is_kept_, is_computed_;
  std::vector<std::vector<bool>> in_pass_;  // what each pass computes
  std::vector<int64_t> last_use_;
};

}  // namespace

CpuProgram compile(const Numbers& numbers, const Kernels& kernels, Layout layout) {
  return Compiler(numbers, kernels, layout).run();
}

}  // namespace opdock::formula
