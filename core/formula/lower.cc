// Lowers a parsed formula to a graph, for one combination of types, optional arguments and choices.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "formula/program.h"
#include "formula/syntax_error.h"

namespace opdock::formula {
namespace {

// The value of an expression. Which members count depends on its kind.
struct Lowered {
  Id id = kNone;           // a value's node; kNone if an optional parameter is not there
  bool is_present = true;  // of an optional parameter
  bool flag = false;       // a choice
  Type type = Type::kFloat32;
  std::string_view text;
};

class Lowering {
 public:
  // views: the nodes of each of the program's; empty where the tensor is not there.
  Lowering(const Program& program, Graph* graph, std::vector<Lowered> parameters,
           std::vector<std::vector<Id>> views)
      : program_(program),
        graph_(*graph),
        parameters_(std::move(parameters)),
        views_(std::move(views)),
        lowered_(program.exprs.size()) {}
  std::vector<Id> results();

 private:
  void run(size_t end);
  Lowered lower(const Expr& expr);
  Lowered conditional(const Expr& expr);
  bool is_same(const Expr& expr) const;
  Id call(const Expr& expr);
  Id operation(Op op, const Expr& expr);
  Id softmax(Id x, bool is_log);
  Id variance(const Expr& expr);
  Id clamp(const Expr& expr);
  Id gelu(const Expr& expr);
  Lowered view(size_t number, size_t part) const;
  Id value(ExprId id);
  Type type(ExprId id) const;
  bool choice(ExprId id) const;

  const Lowered& at(ExprId id) const { return lowered_[static_cast<size_t>(id)]; }
  Id apply(Op op, Id a, Id b = kNone) { return graph_.apply(op, a, b); }
  [[noreturn]] void refuse(const Expr& expr, const std::string& text) const {
    fail(program_.source, expr.place, text);
  }

  const Program& program_;
  Graph& graph_;
  std::vector<Lowered> parameters_;
  std::vector<std::vector<Id>> views_;
  std::vector<Lowered> lowered_;  // of the expressions
  size_t step_ = 0;
};

Id Lowering::value(ExprId id) {
  const Expr& expr = program_[id];
  const Lowered& known = at(id);
  if (expr.kind == Kind::kFlag) return graph_.constant(known.flag);
  if (!known.is_present)
    refuse(expr, "found a use of " + quoted(expr.text) +
                     ", which is None in this call, wanted it only where it is there: \"… if " +
                     std::string(expr.text) + " else …\"");
  return known.id;
}

bool Lowering::choice(ExprId id) const {
  const Expr& expr = program_[id];
  if (expr.kind == Kind::kChoice || expr.kind == Kind::kFlag)
    return at(id).is_present && at(id).flag;
  return at(id).is_present;
}

Lowered Lowering::conditional(const Expr& expr) {
  const ExprId taken = choice(expr.args[1]) ? expr.args[0] : expr.args[2];
  Lowered result = at(taken);
  if (expr.kind == Kind::kValue) result.id = value(taken);
  return result;
}

bool Lowering::is_same(const Expr& expr) const {
  const Expr &left = program_[expr.args[0]], &right = program_[expr.args[1]];
  const Lowered &a = at(expr.args[0]), &b = at(expr.args[1]);
  if (left.kind == Kind::kNothing) return !b.is_present;
  if (right.kind == Kind::kNothing) return !a.is_present;
  // An absent argument differs from every present one.
  if (a.is_present != b.is_present) return false;
  if (left.kind == Kind::kString) return a.text == b.text;
  if (left.kind == Kind::kType) return a.type == b.type;
  return a.flag == b.flag;
}

Id Lowering::softmax(Id x, bool is_log) {
  // Without the row's maximum exp() could overflow. The result does not depend on it, so that its
  // gradient is 0, which would cost two reductions to compute.
  const Id most = apply(Op::kDetach, apply(Op::kAmax, x));
  const Id shifted = apply(Op::kSub, x, most);
  const Id exponential = apply(Op::kExp, shifted);
  const Id sum = apply(Op::kSum, exponential);
  return is_log ? apply(Op::kSub, shifted, apply(Op::kLog, sum))
                : apply(Op::kDiv, exponential, sum);
}

Id Lowering::variance(const Expr& expr) {
  const Id x = value(expr.args[0]);
  const Id difference = apply(Op::kSub, x, apply(Op::kMean, x));
  const Id mean = apply(Op::kMean, apply(Op::kMul, difference, difference));
  if (expr.args[1] == kNoExpr) return mean;
  const Id correction = value(expr.args[1]);
  const Node& node = graph_[correction];
  const bool is_none = node.op == Op::kConstant && node.value.real == 0 && node.value.integer == 0;
  if (is_none) return mean;
  const Id n = graph_.columns();
  return apply(Op::kMul, mean, apply(Op::kDiv, n, apply(Op::kSub, n, correction)));
}

Id Lowering::clamp(const Expr& expr) {
  Id x = value(expr.args[0]);
  const auto limit = [&](ExprId id, Op op) {
    if (id != kNoExpr && program_[id].kind != Kind::kNothing) x = apply(op, x, value(id));
  };
  limit(expr.args[1], Op::kClampMin);
  limit(expr.args[2], Op::kClampMax);
  return x;
}

Id Lowering::gelu(const Expr& expr) {
  const Id x = value(expr.args[0]);
  if (expr.args[1] == kNoExpr) return apply(Op::kGelu, x);
  const std::string_view how = at(expr.args[1]).text;
  if (!at(expr.args[1]).is_present || (how != "none" && how != "tanh"))
    refuse(
        program_[expr.args[1]],
        "found approximate=" + (at(expr.args[1]).is_present ? quoted(how) : std::string("None")) +
            ", wanted \"none\" or \"tanh\"");
  return apply(how == "tanh" ? Op::kGeluTanh : Op::kGelu, x);
}

Id Lowering::operation(Op op, const Expr& expr) {
  std::array<Id, 3> args = {kNone, kNone, kNone};
  for (size_t i = 0; i < args.size(); ++i)
    if (expr.args[i] != kNoExpr) args[i] = value(expr.args[i]);
  return graph_.apply(op, args[0], args[1], args[2]);
}

Id Lowering::call(const Expr& expr) {
  const Function& function = *expr.function;
  switch (function.builtin) {
    case Builtin::kOperation:
      return operation(function.op, expr);
    case Builtin::kClamp:
      return clamp(expr);
    case Builtin::kGelu:
      return gelu(expr);
    case Builtin::kSquare: {
      const Id x = value(expr.args[0]);
      return apply(Op::kMul, x, x);
    }
    case Builtin::kMax:
      return operation(expr.args[1] == kNoExpr ? Op::kAmax : Op::kMaximum, expr);
    case Builtin::kMin:
      return operation(expr.args[1] == kNoExpr ? Op::kAmin : Op::kMinimum, expr);
    case Builtin::kLerp: {
      const Id a = value(expr.args[0]), b = value(expr.args[1]), weight = value(expr.args[2]);
      return apply(Op::kAdd, a, apply(Op::kMul, weight, apply(Op::kSub, b, a)));
    }
    case Builtin::kSoftmax:
    case Builtin::kLogSoftmax:
      return softmax(value(expr.args[0]), function.builtin == Builtin::kLogSoftmax);
    case Builtin::kVar:
      return variance(expr);
    case Builtin::kRow:
      return graph_.row();
    case Builtin::kColumn:
      return graph_.column();
    case Builtin::kColumns:
      return graph_.columns();
    case Builtin::kTo:
      return graph_.cast(value(expr.args[0]), function.type ? *function.type : type(expr.args[1]));
    case Builtin::kChunk:
    case Builtin::kCat:
    case Builtin::kGrouped:
      break;
  }
  return kNone;
}

Type Lowering::type(ExprId id) const {
  const Expr& expr = program_[id];
  if (!at(id).is_present)
    refuse(expr, "found a use of " + quoted(expr.text) +
                     ", which is None in this call, wanted it only where it is there: \"" +
                     std::string(expr.text) + " if " + std::string(expr.text) + " else …\"");
  return at(id).type;
}

// Returns the node of part number `part` of a view of a tensor.
Lowered Lowering::view(size_t number, size_t part) const {
  Lowered out;
  const std::vector<Id>& nodes = views_[number];
  out.is_present = !nodes.empty();
  if (out.is_present) out.id = nodes[part];
  return out;
}

Lowered Lowering::lower(const Expr& expr) {
  Lowered out;
  switch (expr.form) {
    case Form::kInteger:
      out.id = graph_.constant(expr.integer);
      break;
    case Form::kReal:
    case Form::kNamedNumber:
      out.id = graph_.constant(expr.real);
      break;
    case Form::kTrue:
      out.flag = true;
      break;
    case Form::kFalse:
    case Form::kNothing:
      break;
    case Form::kString:
      out.text = expr.text;
      break;
    case Form::kType:
      out.type = expr.type;
      break;
    case Form::kParameter:
      return parameters_[expr.parameter];
    case Form::kVariable:
      return at(expr.definition);
    case Form::kUnary:
      out.id = value(expr.args[0]);
      if (expr.op != Op::kConstant) out.id = apply(expr.op, out.id);
      break;
    case Form::kBinary:
      out.id = operation(expr.op, expr);
      break;
    case Form::kSame:
      out.flag = is_same(expr) == (expr.op == Op::kEqual);
      break;
    case Form::kNot:
      out.flag = !choice(expr.args[0]);
      break;
    case Form::kAnd:
      out.flag = choice(expr.args[0]) && choice(expr.args[1]);
      break;
    case Form::kOr:
      out.flag = choice(expr.args[0]) || choice(expr.args[1]);
      break;
    case Form::kConditional:
      return conditional(expr);
    case Form::kCall:
      if (expr.function->builtin == Builtin::kGrouped) return view(expr.view, 0);
      out.id = call(expr);
      break;
    case Form::kDtype:
      // A tensor that is seen in parts only has no node.
      out.type = at(expr.args[0]).id == kNone && at(expr.args[0]).is_present
                     ? at(expr.args[0]).type
                     : graph_[value(expr.args[0])].type;
      break;
    case Form::kPart:
      return view(program_[expr.args[0]].view, static_cast<size_t>(expr.integer));
  }
  return out;
}

// Evaluates the steps up to `end`.
void Lowering::run(size_t end) {
  for (; step_ < end; ++step_) {
    const Step& step = program_.steps[step_];
    if (step.skip != 0) {
      if (choice(step.expr) == step.when) step_ += step.skip;
      continue;
    }
    const Expr& expr = program_[step.expr];
    try {
      lowered_[static_cast<size_t>(step.expr)] = lower(expr);
    } catch (const SyntaxError&) {
      throw;
    } catch (const Error& error) {
      refuse(expr, error.what());
    }
  }
}

std::vector<Id> Lowering::results() {
  for (const Statement& one : program_.statements) {
    run(one.end);
    const Expr& value = program_[one.value];
    const bool is_part = value.form == Form::kPart && at(one.value).is_present;
    if (is_part || value.kind == Kind::kValue) graph_.name(at(one.value).id, one.name);
  }
  run(program_.steps.size());
  std::vector<Id> ids;
  for (const ExprId id : program_.results) ids.push_back(value(id));
  return ids;
}

// Returns the first place where a parameter is used, for errors about the parameter as a whole.
size_t place_of(const Program& program, size_t parameter) {
  for (const Expr& expr : program.exprs)
    if (expr.form == Form::kParameter && expr.parameter == parameter) return expr.place;
  return 0;
}

// Adds the inputs of the views of a parameter.
void add_views(const Program& program, size_t parameter, const Input& whole, Graph* graph,
               std::vector<std::vector<Id>>* views) {
  for (size_t i = 0; i < program.views.size(); ++i) {
    const View& view = program.views[i];
    if (view.parameter != parameter) continue;
    if (!view.is_grouped && whole.rank == 0)
      throw Error("found " + quoted(whole.name) + " without dimensions, wanted a tensor with " +
                  std::to_string(view.parts) + " parts along its last dimension");
    for (uint32_t part = 0; part < view.parts; ++part) {
      Input input = whole;
      input.part = {part, view.parts};
      input.is_grouped = view.is_grouped;
      (*views)[i].push_back(graph->input(std::move(input)));
    }
  }
}

// Returns the first place of a call of the function.
size_t place_of(const Program& program, Builtin builtin) {
  for (const Expr& expr : program.exprs)
    if (expr.form == Form::kCall && expr.function->builtin == builtin) return expr.place;
  return 0;
}

// Refuses parts of a result that has no columns. Beside groups, whose elements are the columns of
// the space, it refuses whatever has columns of its own: reductions, parts, row, column and
// columns.
void check_views(const Program& program, const Graph& graph) {
  const std::vector<Id>& results = graph.results();
  for (size_t i = 0; i < results.size(); ++i)
    if (graph.result_parts()[i].parts > 1 && graph.has_reductions() &&
        (graph[results[i]].extent & kPerColumn) == 0)
      fail(program.source, program[program.results[i]].place,
           "found a part of cat that is the same in the whole row, wanted one that has a number "
           "for each column");
  const std::vector<Input>& inputs = graph.inputs();
  const auto is_grouped = [](const Input& input) { return input.is_grouped; };
  if (std::none_of(inputs.begin(), inputs.end(), is_grouped)) return;
  const size_t place = place_of(program, Builtin::kGrouped);
  if (std::all_of(inputs.begin(), inputs.end(), is_grouped))
    fail(program.source, place,
         "found no other tensor than grouped ones, wanted one whose elements the groups have");
  const auto has_parts = [](const auto& one) { return one.parts > 1; };
  bool has_rows = std::any_of(graph.result_parts().begin(), graph.result_parts().end(), has_parts);
  for (const Input& input : inputs) has_rows = has_rows || has_parts(input.part);
  for (const Node& node : graph.nodes())
    has_rows = has_rows || node.op == Op::kRow || node.op == Op::kColumn ||
               node.op == Op::kColumns || (!is_leaf(node.op) && is_reduction(node.op));
  if (has_rows)
    fail(program.source, place,
         "found grouped beside a reduction, chunk, cat, row, column or columns, wanted it without "
         "these, because groups cross rows; use a formula of its own");
}

}  // namespace

Graph Formula::graph(const std::vector<Argument>& arguments, bool exact) const {
  if (arguments.size() != parameters_.size())
    throw Error("found " + std::to_string(arguments.size()) + " arguments of a formula, wanted " +
                std::to_string(parameters_.size()) + ", one for each parameter");
  Graph graph(exact);
  std::vector<Lowered> lowered(parameters_.size());
  std::vector<std::vector<Id>> views(program_->views.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Argument& argument = arguments[i];
    const Parameter& parameter = parameters_[i];
    Lowered& out = lowered[i];
    out.is_present = argument.is_present;
    if (!argument.is_present) continue;
    out.flag = argument.flag;
    out.text = argument.text;
    out.type = argument.type;
    try {
      if (parameter.kind == Parameter::Kind::kTensor) {
        if (program_->is_whole[i])
          out.id = graph.input(parameter.name, argument.type, argument.rank);
        add_views(*program_, i, {parameter.name, argument.type, argument.rank, false, {}, false},
                  &graph, &views);
      }
      if (parameter.kind == Parameter::Kind::kFloat)
        out.id = graph.scalar(parameter.name, Type::kFloat64);
      if (parameter.kind == Parameter::Kind::kInt)
        out.id = graph.scalar(parameter.name, Type::kInt64);
    } catch (const Error& error) {
      fail(program_->source, place_of(*program_, i), error.what());
    }
  }
  const std::vector<Id> results =
      Lowering(*program_, &graph, std::move(lowered), std::move(views)).results();
  for (size_t i = 0; i < results.size(); ++i)
    graph.add_result(results[i], program_->result_parts[i]);
  graph = graph.simplified();
  check_views(*program_, graph);
  return graph;
}

std::vector<Id> Formula::expand(Graph* graph, const std::map<std::string_view, Id>& nodes) const {
  std::vector<Lowered> lowered(parameters_.size());
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto node = nodes.find(parameters_[i].name);
    if (node == nodes.end() || parameters_[i].kind == Parameter::Kind::kBool ||
        parameters_[i].kind == Parameter::Kind::kString)
      fail(program_->source, place_of(*program_, i),
           "found the parameter " + quoted(parameters_[i].name) + ", wanted one that has a node");
    lowered[i].id = node->second;
  }
  return Lowering(*program_, graph, std::move(lowered), {}).results();
}

}  // namespace opdock::formula
