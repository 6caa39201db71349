// SPDX-License-Identifier: Apache-2.0
#include "formula/gradient.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "formula/formula.h"

namespace opdock::formula {
namespace {

// A sum along the row is written as this many sums at most, found in products and sums that are
// nested this deep.
constexpr size_t kMaxTerms = 6;
constexpr int kMaxTermDepth = 8;

// The derivatives of one operation; an argument that has none is absent.
using Derivatives = std::array<std::optional<Formula>, 3>;

const Derivatives& derivatives(Op op) {
  static const std::vector<Derivatives>& all = *[] {
    auto* const made = new std::vector<Derivatives>;
    for (int i = static_cast<int>(Op::kCast) + 1; i <= static_cast<int>(Op::kAll); ++i) {
      std::string_view left = operation(static_cast<Op>(i)).derivatives;
      Derivatives parsed;
      for (std::optional<Formula>& one : parsed) {
        const std::string_view text = left.substr(0, left.find(';'));
        if (!text.empty()) one.emplace(text);
        left.remove_prefix(std::min(text.size() + 1, left.size()));
      }
      made->push_back(std::move(parsed));
    }
    return made;
  }();
  return all[static_cast<size_t>(op) - static_cast<size_t>(Op::kCast) - 1];
}

// Part of a sum along the row: `factor`, which is the same in the whole row, times the sum of
// `core`. An absent one is 1.
struct Term {
  Id core = kNone;
  Id factor = kNone;
  bool is_negative = false;
};

// Reverse mode: from the results back to the inputs, each node passes the gradient that it has on
// to its arguments.
//
// A node that is the same in the whole row has one gradient for the row: the sum of the gradients
// of its uses in each column. That sum is a reduction, and it is only made where it must be: if the
// gradient goes on into a reduction, or is added to one that is for the row already. Else it goes
// on column by column, to an input whose caller sums (gradient.h).
class Differentiator {
 public:
  Differentiator(const Graph& graph, const std::vector<size_t>& wanted)
      : from_(graph), out_(graph.exact()), wanted_(wanted) {}

  Gradient run() {
    Gradient gradient;
    for (const auto& [input, id] : gradients()) {
      const Part part = from_.inputs()[input].part;
      out_.add_result(part.parts > 1 ? with_columns(id) : id, part);
      gradient.inputs.push_back(input);
    }
    gradient.graph = out_.simplified();
    return gradient;
  }

  // how: how the gradient of each input of `wanted` is summed.
  Graph run(const std::vector<Wanted>& how) {
    const std::vector<std::pair<size_t, Id>> found = gradients();
    for (size_t i = 0; i < how.size(); ++i) {
      const Input& input = from_.inputs()[how[i].input];
      if (!is_float(input.type))
        throw Error("\"" + input.name + "\": found " + std::string(name_of(input.type)) +
                    ", wanted a float, which has a gradient");
      Id id = found[i].second;
      // The gradient of an input that is the same in the whole row is for the row if it has no
      // columns, and that of any other is for each column.
      const bool is_for_row = !input.has_columns() && !has_columns(out_, id);
      if (how[i].is_partial) id = out_.convert(id, compute_type(input.type));
      if (how[i].over_rows && how[i].over_columns) {
        if (!is_for_row && !has_columns(out_, id)) id = sum_of_columns(id);
        out_.add_result(id, Output::kTotal);
      } else if (how[i].over_rows) {
        out_.add_result(id, Output::kColumnSums);
      } else if (how[i].over_columns) {
        out_.add_result(is_for_row ? id : sum_of_columns(id));
      } else {
        out_.add_result(id, is_for_row ? Output::kOwn : Output::kWhole);
      }
    }
    return out_.simplified();
  }

 private:
  // Returns the wanted inputs that are floats, and their gradients.
  std::vector<std::pair<size_t, Id>> gradients() {
    copy_forward();
    find_active();
    in_columns_.assign(place_.size(), kNone);
    in_row_.assign(place_.size(), kNone);
    gradients_.assign(from_.inputs().size(), kNone);
    for (size_t i = 0; i < from_.results().size(); ++i) {
      const Id result = from_.results()[i];
      if (is_active(result))
        add_to(&slot(result, !has_columns(out_, of_results_[i])), of_results_[i]);
    }
    for (Id id = from_.size() - 1; id >= 0; --id)
      if (is_active(id)) pass_on(id);
    std::vector<std::pair<size_t, Id>> found;
    for (const size_t input : wanted_) {
      const Type type = from_.inputs()[input].type;
      if (!is_float(type)) continue;
      const Id id = gradients_[input];
      found.emplace_back(input, id != kNone ? id : out_.constant(type, Level::kTensor, Value{}));
    }
    return found;
  }

  static bool has_columns(const Graph& graph, Id id) {
    return (graph[id].extent & kPerColumn) != 0;
  }
  // Returns the number as one of each column, which the parts of a result have to be.
  Id with_columns(Id id) {
    if (has_columns(out_, id) || !out_.has_reductions()) return id;  // result_shape()
    const Id is_there = out_.apply(Op::kGreaterEqual, out_.column(), out_.constant(int64_t{0}));
    return out_.apply(Op::kWhere, is_there, id, id);
  }
  bool is_active(Id id) const { return is_active_[static_cast<size_t>(id)]; }
  Id forward(Id id) const { return place_[static_cast<size_t>(id)]; }
  Id& slot(Id id, bool is_for_row) {
    return (is_for_row ? in_row_ : in_columns_)[static_cast<size_t>(id)];
  }
  void add_to(Id* sum, Id term) {
    if (*sum != kNone) sums_.insert(term = out_.apply(Op::kAdd, *sum, term));
    *sum = term;
  }

  // Makes the nodes of the graph, of which simplified() leaves those that gradients need.
  void copy_forward() {
    std::vector<Id> inputs, scalars;
    int rank = 0;
    for (const Input& input : from_.inputs()) {
      inputs.push_back(out_.input(input));
      rank = std::max(rank, input.rank);
    }
    for (const Scalar& scalar : from_.scalars())
      scalars.push_back(out_.scalar(scalar.name, scalar.type));
    const std::vector<Id>& results = from_.results();
    size_t output = 0;
    for (size_t i = 0; i < results.size(); ++i) {
      const Part part = from_.result_parts()[i];
      if (i > 0 && part.part == 0) ++output;
      // Without reductions, results have all columns (result_shape()).
      const bool is_per_row = rank > 0 && from_.has_reductions() && !has_columns(from_, results[i]);
      of_results_.push_back(
          out_.input({free_name(output), from_[results[i]].type, rank, is_per_row, part, false}));
    }
    for (const Node& node : from_.nodes()) {
      const auto arg = [&](size_t i) {
        return node.args[i] == kNone ? kNone : forward(node.args[i]);
      };
      Id id = kNone;
      switch (node.op) {
        case Op::kInput:
          id = inputs[node.index];
          break;
        case Op::kScalar:
          id = scalars[node.index];
          break;
        case Op::kConstant:
          id = out_.constant(node.type, node.level, node.value);
          break;
        case Op::kRow:
          id = out_.row();
          break;
        case Op::kColumn:
          id = out_.column();
          break;
        case Op::kColumns:
          id = out_.columns();
          break;
        case Op::kConvert:
          id = out_.convert(arg(0), node.type);
          break;
        case Op::kCast:
          id = out_.cast(arg(0), node.type);
          break;
        default:
          id = out_.apply(node.op, arg(0), arg(1), arg(2));
      }
      place_.push_back(id);
    }
    forward_end_ = out_.size();
  }

  std::string free_name(size_t i) const {
    std::string name = from_.num_outputs() == 1 ? "grad" : "grad_" + std::to_string(i);
    const auto is_taken = [&] {
      return std::any_of(from_.inputs().begin(), from_.inputs().end(),
                         [&](const Input& input) { return input.name == name; });
    };
    while (is_taken()) name = "grad_" + name;
    return name;
  }

  // Finds the nodes that depend smoothly on a wanted input, and those of them that do so by a value
  // for the whole row.
  void find_active() {
    std::vector<bool> is_wanted(from_.inputs().size());
    for (const size_t input : wanted_) {
      if (input >= is_wanted.size())
        throw Error("found input " + std::to_string(input) +
                    " to differentiate for, wanted one of " + std::to_string(is_wanted.size()) +
                    ", counted from 0");
      const Input& what = from_.inputs()[input];
      if (what.is_grouped)
        throw Error("\"" + what.name +
                    "\": found the gradient of grouped numbers wanted, which are sums over the "
                    "groups; wanted the gradients of the other tensors");
      is_wanted[input] = true;
    }
    for (const Node& node : from_.nodes()) {
      bool is_active = false, needs_sum = false;
      if (node.op == Op::kInput) {
        is_active = is_float(node.type) && is_wanted[node.index];
      } else if (!is_leaf(node.op) && is_float(node.type)) {
        for (size_t i = 0; i < node.args.size(); ++i) {
          if (!passes_to(node, i)) continue;
          is_active = true;
          needs_sum =
              needs_sum || is_reduction(node.op) || needs_sum_[static_cast<size_t>(node.args[i])];
        }
      }
      is_active_.push_back(is_active);
      needs_sum_.push_back(needs_sum);
    }
  }

  bool passes_to(const Node& node, size_t i) const {
    if (node.args[i] == kNone || !is_active(node.args[i])) return false;
    return is_conversion(node.op) || derivatives(node.op)[i].has_value();
  }
  static bool is_conversion(Op op) { return op == Op::kConvert || op == Op::kCast; }

  void pass_on(Id id) {
    const Node& node = from_[id];
    const Id columns = slot(id, false);
    Id gradient = slot(id, true);
    const bool is_for_row =
        !has_columns(from_, id) && (gradient != kNone || needs_sum_[static_cast<size_t>(id)]);
    if (!is_for_row)
      gradient = columns;
    else if (columns != kNone)
      add_to(&gradient, sum_of_columns(columns));
    if (gradient == kNone) return;
    if (node.op == Op::kInput) {
      // A gradient that is not yet summed along the row must have columns (gradient.h).
      const bool is_ambiguous =
          !has_columns(from_, id) && !is_for_row && !has_columns(out_, gradient);
      gradients_[node.index] = is_ambiguous ? sum_of_columns(gradient) : gradient;
      return;
    }
    // A square has twice the gradient, and that of a row is doubled once.
    const bool is_square = node.op == Op::kMul && node.args[0] == node.args[1];
    if (is_square) add_to(&gradient, gradient);
    for (size_t i = 0; i < (is_square ? 1 : node.args.size()); ++i) {
      if (!passes_to(node, i)) continue;
      const Id arg = node.args[i];
      add_to(&slot(arg, is_for_row && !has_columns(from_, arg)), contribution(id, i, gradient));
    }
  }

  // Returns the gradient of argument `i` of the node, of the argument's type.
  Id contribution(Id id, size_t i, Id gradient) {
    const Node& node = from_[id];
    const Type type = from_[node.args[i]].type;
    if (node.op == Op::kCast) return out_.cast(gradient, type);
    if (node.op == Op::kConvert) return out_.convert(gradient, type);
    // One division for a row, and not one for each column.
    if (node.op == Op::kDiv && i == 0 && !has_columns(from_, node.args[1]) && !out_.exact())
      return out_.apply(Op::kMul, gradient, out_.apply(Op::kReciprocal, forward(node.args[1])));
    std::map<std::string_view, Id> nodes = {{"y", forward(id)}, {"g", gradient}};
    constexpr std::string_view kNames[] = {"a", "b", "c"};
    for (size_t arg = 0; arg < node.args.size(); ++arg)
      if (node.args[arg] != kNone) nodes.emplace(kNames[arg], forward(node.args[arg]));
    return out_.convert(derivatives(node.op)[i]->expand(&out_, nodes).at(0), type);
  }

  // Returns the sum along the row of a gradient. Factors that are the same in the whole row are
  // applied to the sum: that is fewer operations, and sums that do not depend on other reductions
  // can be made in one pass with those.
  Id sum_of_columns(Id gradient) {
    if (!has_columns(out_, gradient)) return out_.apply(Op::kMul, gradient, out_.columns());
    std::vector<Term> terms;
    if (!out_.exact()) terms = terms_of(gradient, 0);
    std::vector<Term> sums;  // one for each factor
    for (const Term& term : terms) {
      const auto same = std::find_if(sums.begin(), sums.end(), [&](const Term& sum) {
        return sum.factor == term.factor && sum.core != kNone && term.core != kNone;
      });
      if (same == sums.end())
        sums.push_back(term);
      else
        same->core = out_.apply(same->is_negative == term.is_negative ? Op::kAdd : Op::kSub,
                                same->core, term.core);
    }
    const bool is_plain = std::all_of(sums.begin(), sums.end(),
                                      [](const Term& term) { return term.factor == kNone; });
    if (is_plain && (sums.size() != 1 || !sums[0].is_negative))
      return out_.apply(Op::kSum, gradient);
    Id total = kNone;
    for (const Term& term : sums) {
      Id sum = term.core == kNone ? out_.columns() : out_.apply(Op::kSum, term.core);
      if (term.factor != kNone) sum = out_.apply(Op::kMul, sum, term.factor);
      if (total != kNone)
        total = out_.apply(term.is_negative ? Op::kSub : Op::kAdd, total, sum);
      else
        total = term.is_negative ? out_.apply(Op::kNegative, sum) : sum;
    }
    return total;
  }

  // Returns terms whose sum is the number: a single one if it is not linear in others. Numbers of
  // the forward pass stay whole, because a formula may divide so that nothing overflows.
  std::vector<Term> terms_of(Id id, int depth) {
    if (!has_columns(out_, id)) return {{kNone, id, false}};
    const std::vector<Term> whole = {{id, kNone, false}};
    if (id < forward_end_ || depth > kMaxTermDepth) return whole;
    const Node node = out_[id];
    std::vector<Term> left;
    switch (node.op) {
      case Op::kNegative:
        left = terms_of(node.args[0], depth + 1);
        for (Term& term : left) term.is_negative = !term.is_negative;
        return left;
      case Op::kAdd: {
        // The sums within a derivative, such as 1 - y * y, stay whole: their parts may cancel.
        if (sums_.count(id) == 0) return whole;
        left = terms_of(node.args[0], depth + 1);
        const std::vector<Term> right = terms_of(node.args[1], depth + 1);
        left.insert(left.end(), right.begin(), right.end());
        break;
      }
      case Op::kMul: {
        const std::vector<Term> a = terms_of(node.args[0], depth + 1);
        const std::vector<Term> b = terms_of(node.args[1], depth + 1);
        for (const Term& x : a)
          for (const Term& y : b)
            left.push_back({product(x.core, y.core), product(x.factor, y.factor),
                            x.is_negative != y.is_negative});
        break;
      }
      case Op::kDiv:
        if (has_columns(out_, node.args[1])) return whole;
        left = terms_of(node.args[0], depth + 1);
        for (Term& term : left)
          term.factor = term.factor == kNone ? out_.apply(Op::kReciprocal, node.args[1])
                                             : out_.apply(Op::kDiv, term.factor, node.args[1]);
        return left;
      default:
        return whole;
    }
    return left.size() <= kMaxTerms ? left : whole;
  }

  Id product(Id a, Id b) { return a == kNone ? b : b == kNone ? a : out_.apply(Op::kMul, a, b); }

  const Graph& from_;
  Graph out_;
  const std::vector<size_t>& wanted_;
  std::vector<Id> of_results_;  // the gradients of the results
  Id forward_end_ = 0;          // nodes from here on belong to the gradients only
  std::set<Id> sums_;           // of gradients of one node
  // For each node of the graph:
  std::vector<Id> place_;  // the same node of `out_`
  std::vector<bool> is_active_, needs_sum_;
  std::vector<Id> in_columns_, in_row_;  // its gradient, as far as it is known
  std::vector<Id> gradients_;            // of inputs
};

}  // namespace

Gradient differentiate(const Graph& graph, const std::vector<size_t>& wanted) {
  return Differentiator(graph, wanted).run();
}

Graph summed_gradients(const Graph& graph, const std::vector<Wanted>& wanted) {
  std::vector<size_t> inputs;
  for (const Wanted& one : wanted) inputs.push_back(one.input);
  return Differentiator(graph, inputs).run(wanted);
}

}  // namespace opdock::formula
