// SPDX-License-Identifier: Apache-2.0
#include "formula/device_source.h"

#include <algorithm>
#include <string>
#include <vector>

#include "formula/device_expressions.h"
#include "formula/device_plan.h"

namespace opdock::formula {
namespace {

// Writes one kernel. A kernel without reductions has one pass over its elements. One with
// reductions has a pass for each step of reductions that need earlier ones, and a last one for the
// results.
class Writer {
 public:
  Writer(const Graph& graph, const DeviceShape& shape)
      : graph_(graph),
        shape_(shape),
        has_rows_(graph.has_reductions()),
        vector_(std::to_string(vector_elements(graph))),
        plan_(graph, shape.held != 0),
        is_written_(graph.nodes().size(), false) {}

  std::string write() {
    line("// Made of a formula by Opdock.");
    line("#include \"opdock/formula.cuh\"");
    line("");
    // Inside this namespace its functions hide the compiler's own, such as ::round.
    line("namespace opdock::formula {");
    line("");
    const int threads = !has_rows_ ? kElementThreads : shape_.is_block ? kMaxThreads : 128;
    line("OPDOCK_KERNEL(" + std::to_string(threads) + ")");
    line("kernel(" + parameters() + ") {");
    ++depth_;
    line("constexpr int kVector = " + vector_ + ";");
    if (has_rows_) {
      write_rows();
    } else {
      write_elements();
    }
    --depth_;
    line("}");
    line("");
    line("}  // namespace opdock::formula");
    return std::move(text_);
  }

 private:
  size_t num_tensors() const { return graph_.inputs().size() + graph_.results().size(); }
  Type result_type(size_t i) const { return graph_[graph_.results()[i]].type; }
  bool is_full(Id id) const { return (graph_[id].extent & kPerColumn) != 0; }

  void line(const std::string& text) {
    if (!text.empty()) text_.append(static_cast<size_t>(2 * depth_), ' ');
    text_ += text + "\n";
  }

  std::string parameters() const {
    std::string text = "FormulaSpace<" + std::to_string(shape_.dims) + ", " +
                       std::to_string(num_tensors()) + "> p";
    for (size_t i = 0; i < graph_.scalars().size(); ++i) {
      const Scalar& scalar = graph_.scalars()[i];
      text += std::string(", ") + (scalar.type == Type::kFloat64 ? "double" : "int64_t") +
              " number" + std::to_string(i) + " /* " + plain(scalar.name) + " */";
    }
    return text;
  }

  // Returns a name as a comment may show it.
  static std::string plain(const std::string& name) {
    std::string text;
    for (const char c : name.substr(0, 60))
      text += (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ? c : '_';
    return text;
  }

  // Returns the expression of a leaf where the elements' column is `column` and the row is `row`.
  std::string leaf(Id id) const {
    const Node& node = graph_[id];
    const std::string index = std::to_string(node.index);
    switch (node.op) {
      case Op::kInput: {
        const std::string element = is_full(id) ? "in" + index + pack_index() : "one" + index;
        return node.type == Type::kBool                            ? "(" + element + " != 0)"
               : number_type(node.type) == element_type(node.type) ? element
               : is_float(node.type) ? "from_element(" + element + ")"
                                     : "static_cast<int32_t>(" + element + ")";
      }
      case Op::kScalar:
        return node.type == Type::kBool ? "(number" + index + " != 0)" : "number" + index;
      case Op::kRow:
        return "place.row";
      case Op::kColumn:
        return "(column + k)";
      case Op::kColumns:
        return "static_cast<int64_t>(p.columns)";
      default:
        return constant_text(node.type, node.value);
    }
  }
  std::string pack_index() const { return shape_.held > 0 && has_rows_ ? "[i].at[k]" : ".at[k]"; }

  // Returns the expression of a node that has been written, of a leaf, or of one that is inline.
  std::string use(Id id) const {
    id = plan_.same(id);
    if (plan_.is_inline(id)) return value(id);
    if (is_leaf(graph_[id].op) && graph_[id].op != Op::kInput) return leaf(id);
    if (graph_[id].op == Op::kInput && !is_written_[static_cast<size_t>(id)]) return leaf(id);
    const std::string name = variable_name(graph_, id);
    return plan_.is_kept(id) ? name + "[i * kVector + k]" : name;
  }

  // Returns a text without the parentheses around it.
  static std::string bare(const std::string& text) {
    if (text.empty() || text.front() != '(' || text.back() != ')') return text;
    int open = 0;
    for (size_t i = 0; i + 1 < text.size(); ++i) {
      open += text[i] == '(' ? 1 : text[i] == ')' ? -1 : 0;
      if (open == 0) return text;
    }
    return text.substr(1, text.size() - 2);
  }

  std::string value(Id id) const {
    std::array<std::string, 3> args;
    for (size_t i = 0; i < 3; ++i)
      if (graph_[id].args[i] != kNone) args[i] = use(graph_[id].args[i]);
    return expression(graph_, id, args);
  }

  // Writes the variables of all nodes that are the same in the whole row and known before pass
  // `before`.
  void write_row_numbers(int before) {
    for (Id id = 0; id < graph_.size(); ++id) {
      const auto at = static_cast<size_t>(id);
      const Node& node = graph_[id];
      if (is_full(id) || is_written_[at] || plan_.pass(id) >= before || plan_.is_inline(id))
        continue;
      if (is_leaf(node.op) || is_reduction(node.op)) continue;
      line("const " + number_type(node.type) + " " + variable_name(graph_, id) + " = " +
           bare(value(id)) + ";");
      is_written_[at] = true;
    }
  }

  // Writes the elements' nodes that `targets` need, in the order of the graph.
  void write_element_nodes(const std::vector<Id>& targets, int now) {
    std::vector<bool> is_needed(graph_.nodes().size(), false);
    for (const Id id : targets) is_needed[static_cast<size_t>(id)] = true;
    for (Id id = graph_.size() - 1; id >= 0; --id) {
      const auto at = static_cast<size_t>(id);
      if (!is_needed[at] || !is_full(id) || (plan_.is_kept(id) && plan_.pass(id) < now)) continue;
      for (const Id arg : graph_[id].args)
        if (arg != kNone && is_full(arg)) is_needed[static_cast<size_t>(arg)] = true;
    }
    for (Id id = 0; id < graph_.size(); ++id) {
      const auto at = static_cast<size_t>(id);
      if (!is_needed[at] || !is_full(id) || (plan_.is_kept(id) && plan_.pass(id) < now)) continue;
      const Node& node = graph_[id];
      if ((is_leaf(node.op) && node.op != Op::kInput) || plan_.is_inline(id)) continue;
      const std::string name = variable_name(graph_, id);
      const std::string text = bare(node.op == Op::kInput ? leaf(id) : value(id));
      if (plan_.is_kept(id)) {
        line(name + "[i * kVector + k] = " + text + ";");
      } else {
        line("const " + number_type(node.type) + " " + name + " = " + text + ";");
      }
      is_written_[at] = true;
    }
    // The variables end with the loop.
    for (const Id id : all()) {
      if (is_full(id) && !plan_.is_kept(id)) unscoped_.push_back(id);
    }
  }
  std::vector<Id> all() const {
    std::vector<Id> ids;
    for (Id id = 0; id < graph_.size(); ++id) ids.push_back(id);
    return ids;
  }
  void end_scope() {
    for (const Id id : unscoped_) is_written_[static_cast<size_t>(id)] = false;
    unscoped_.clear();
  }

  void write_bases() {
    for (size_t t = 0; t < num_tensors(); ++t) {
      const size_t inputs = graph_.inputs().size();
      const std::string n = std::to_string(t < inputs ? t : t - inputs);
      const Type type = t < inputs ? graph_.inputs()[t].type : result_type(t - inputs);
      line(element_type(type) + "* const " + (t < inputs ? "from" : "to") + n + " = place.first<" +
           element_type(type) + ">(p, " + std::to_string(t) + ");");
    }
    for (size_t i = 0; i < graph_.inputs().size(); ++i) {
      if (graph_.inputs()[i].has_columns()) continue;
      const std::string n = std::to_string(i);
      line("const " + element_type(graph_.inputs()[i].type) + " one" + n + " = from" + n + "[0];");
    }
  }
  void write_load(size_t i, const std::string& to) {
    const std::string n = std::to_string(i);
    line(to + " = load<kVector>(from" + n + ", p.step[" + n + "], column, count, p.whole);");
  }
  void write_store(size_t i, const std::string& from) {
    const std::string t = std::to_string(graph_.inputs().size() + i);
    line("store<kVector>(to" + std::to_string(i) + ", p.step[" + t + "], column, count, p.whole, " +
         from + ");");
  }
  std::string pack(Type type) const { return "Pack<" + element_type(type) + ", kVector>"; }
  std::string stored(size_t i) const {
    const Id id = graph_.results()[i];
    return "ToElement<" + element_type(result_type(i)) + ">::of(" + use(id) + ")";
  }

  void write_elements() {
    const std::string index = shape_.is_wide ? "int64_t" : "uint32_t";
    line("pdl_wait_and_trigger();");
    line("const " + index + " number = vector_number<" + index + ">();");
    line("if (number >= static_cast<" + index + ">(p.rows * p.slots.divisor)) return;");
    line("const " + index + " row = p.slots.quotient(number);");
    line("const int64_t column = static_cast<int64_t>(number - row * static_cast<" + index +
         ">(p.slots.divisor)) * kVector;");
    line("const int count = static_cast<int>(min_of(p.columns - column, kVector));");
    line("const RowPlace<" + index + ", " + std::to_string(shape_.dims) + "> place(p, row);");
    write_bases();
    write_row_numbers(1);
    for (size_t i = 0; i < graph_.inputs().size(); ++i)
      if (graph_.inputs()[i].has_columns())
        write_load(i, "const " + pack(graph_.inputs()[i].type) + " in" + std::to_string(i));
    for (size_t i = 0; i < graph_.results().size(); ++i)
      line(pack(result_type(i)) + " out" + std::to_string(i) + ";");
    line("OPDOCK_UNROLL");
    line("for (int k = 0; k < kVector; ++k) {");
    ++depth_;
    write_element_nodes(graph_.results(), 0);
    for (size_t i = 0; i < graph_.results().size(); ++i)
      line("out" + std::to_string(i) + ".at[k] = " + stored(i) + ";");
    --depth_;
    line("}");
    end_scope();
    for (size_t i = 0; i < graph_.results().size(); ++i) write_store(i, "out" + std::to_string(i));
  }

  // Begins the loop over this thread's vectors: `column` and `count` are those of a vector.
  void begin_vectors() {
    if (shape_.held > 0) {
      line("OPDOCK_UNROLL");
      line("for (int i = 0; i < kHeld; ++i) {");
      ++depth_;
      line(
          "const int64_t column = (team.rank() + static_cast<int64_t>(i) * team.size()) * "
          "kVector;");
      line("const int count = static_cast<int>(min_of(p.columns - column, kVector));");
    } else {
      line(
          "for (int64_t column = static_cast<int64_t>(team.rank()) * kVector; "
          "column < p.columns; column += static_cast<int64_t>(team.size()) * kVector) {");
      ++depth_;
      line("const int count = static_cast<int>(min_of(p.columns - column, kVector));");
    }
  }
  void end_vectors() {
    --depth_;
    line("}");
  }

  void write_rows() {
    if (shape_.held > 0) line("constexpr int kHeld = " + std::to_string(shape_.held) + ";");
    line("OPDOCK_SHARED(long long, scratch, 64);");
    line("pdl_wait_and_trigger();");
    line(std::string("const RowTeam<") + (shape_.is_block ? "true" : "false") + "> team;");
    const std::string index = shape_.is_wide ? "int64_t" : "uint32_t";
    const std::string block = "block_index_y() * grid_blocks() + block_index()";
    if (shape_.is_block) {
      line("const int64_t number = " + block + ";");
    } else {
      line("const int64_t number = (" + block +
           ") * (block_threads() / warp_width()) + thread_index() / warp_width();");
    }
    line("if (number >= p.rows) return;");
    line("const RowPlace<" + index + ", " + std::to_string(shape_.dims) +
         "> place(p, static_cast<" + index + ">(number));");
    write_bases();
    write_row_numbers(1);
    if (shape_.held > 0) {
      for (size_t i = 0; i < graph_.inputs().size(); ++i)
        if (graph_.inputs()[i].has_columns())
          line(pack(graph_.inputs()[i].type) + " in" + std::to_string(i) + "[kHeld];");
      for (const Id id : all())
        if (plan_.is_kept(id))
          line(number_type(graph_[id].type) + " " + variable_name(graph_, id) +
               "[kHeld * kVector];");
      begin_vectors();
      for (size_t i = 0; i < graph_.inputs().size(); ++i)
        if (graph_.inputs()[i].has_columns()) write_load(i, "in" + std::to_string(i) + "[i]");
      end_vectors();
    }
    for (int now = 0; now < plan_.last(); ++now) {
      write_reductions(now);
      write_row_numbers(now + 2);
    }
    write_results();
  }

  // Writes the loads of the inputs that `targets` need, if the row is not held.
  void write_needed_loads(const std::vector<Id>& targets) {
    if (shape_.held > 0) return;
    std::vector<bool> is_needed(graph_.nodes().size(), false);
    for (const Id id : targets) is_needed[static_cast<size_t>(id)] = true;
    for (Id id = graph_.size() - 1; id >= 0; --id) {
      if (!is_needed[static_cast<size_t>(id)] || !is_full(id)) continue;
      for (const Id arg : graph_[id].args)
        if (arg != kNone && is_full(arg)) is_needed[static_cast<size_t>(arg)] = true;
      const Node& node = graph_[id];
      if (node.op == Op::kInput)
        write_load(node.index, "const " + pack(node.type) + " in" + std::to_string(node.index));
    }
  }

  static std::string combination(Op op) {
    switch (op) {
      case Op::kProd:
        return "ProductOf";
      case Op::kAmax:
      case Op::kAny:
        return "MaximumOf";
      case Op::kAmin:
      case Op::kAll:
        return "MinimumOf";
      default:
        return "SumOf";
    }
  }
  // bools are reduced as integers.
  static std::string sum_type(const Node& node) {
    return node.type == Type::kBool ? "int32_t" : number_type(node.type);
  }
  static std::string start(const Node& node) {
    switch (node.op) {
      case Op::kProd:
        return sum_type(node) + "(1)";
      case Op::kAll:
        return "1";
      case Op::kAmax:
        return "lowest<" + sum_type(node) + ">()";
      case Op::kAmin:
        return "highest<" + sum_type(node) + ">()";
      default:
        return sum_type(node) + "(0)";
    }
  }
  bool is_index(Op op) const { return op == Op::kArgmax || op == Op::kArgmin; }

  void write_reductions(int now) {
    std::vector<Id> reductions, targets;
    for (Id id = 0; id < graph_.size(); ++id) {
      if (!is_reduction(graph_[id].op) || plan_.pass(id) != now) continue;
      reductions.push_back(id);
      targets.push_back(graph_[id].args[0]);
    }
    // Numbers that this pass computes and a later one uses.
    for (const Id id : all())
      if (plan_.is_kept(id) && plan_.pass(id) == now) targets.push_back(id);
    for (const Id id : reductions) {
      const Node& node = graph_[id];
      const std::string name = variable_name(graph_, id);
      if (is_index(node.op)) {
        line("Best<" + number_type(graph_[node.args[0]].type) + ", " +
             (node.op == Op::kArgmax ? "1" : "-1") + "> part_" + name + " = {0, -1};");
      } else {
        line(sum_type(node) + " part_" + name + " = " + start(node) + ";");
      }
    }
    begin_vectors();
    write_needed_loads(targets);
    line("OPDOCK_UNROLL");
    line("for (int k = 0; k < kVector; ++k) {");
    ++depth_;
    line("if (k >= count) continue;");
    write_element_nodes(targets, now);
    for (const Id id : reductions) {
      const Node& node = graph_[id];
      const std::string part = "part_" + variable_name(graph_, id);
      if (is_index(node.op)) {
        line(part + ".add(" + use(node.args[0]) + ", column + k);");
      } else {
        line(part + " = " + combination(node.op) + "::combine(" + part + ", " +
             (number_type(graph_[node.args[0]].type) == sum_type(node)
                  ? bare(use(node.args[0]))
                  : "static_cast<" + sum_type(node) + ">(" + use(node.args[0]) + ")") +
             ");");
      }
    }
    --depth_;
    line("}");
    end_scope();
    end_vectors();
    for (const Id id : reductions) {
      const Node& node = graph_[id];
      const std::string name = variable_name(graph_, id), part = "part_" + name;
      std::string all = is_index(node.op)
                            ? "best_column(team, " + part + ", scratch)"
                            : "team.reduce<" + combination(node.op) + ">(" + part + ", scratch)";
      if (node.type == Type::kBool) all = "(" + all + " != 0)";
      if (graph_.exact() && compute_type(node.type) != node.type)
        all = "rounded<" + element_type(node.type) + ">(" + all + ")";
      line("const " + number_type(node.type) + " " + name + " = " + all + ";");
      is_written_[static_cast<size_t>(id)] = true;
    }
  }

  void write_results() {
    std::vector<Id> full;
    bool has_row_results = false;
    for (const Id id : graph_.results()) {
      if (is_full(id)) full.push_back(id);
      has_row_results = has_row_results || !is_full(id);
    }
    if (has_row_results) {
      line("if (team.rank() == 0) {");
      ++depth_;
      for (size_t i = 0; i < graph_.results().size(); ++i)
        if (!is_full(graph_.results()[i]))
          line("to" + std::to_string(i) + "[0] = " + stored(i) + ";");
      --depth_;
      line("}");
    }
    if (full.empty()) return;
    begin_vectors();
    write_needed_loads(full);
    for (size_t i = 0; i < graph_.results().size(); ++i)
      if (is_full(graph_.results()[i]))
        line(pack(result_type(i)) + " out" + std::to_string(i) + ";");
    line("OPDOCK_UNROLL");
    line("for (int k = 0; k < kVector; ++k) {");
    ++depth_;
    write_element_nodes(full, plan_.last());
    for (size_t i = 0; i < graph_.results().size(); ++i)
      if (is_full(graph_.results()[i]))
        line("out" + std::to_string(i) + ".at[k] = " + stored(i) + ";");
    --depth_;
    line("}");
    end_scope();
    for (size_t i = 0; i < graph_.results().size(); ++i)
      if (is_full(graph_.results()[i])) write_store(i, "out" + std::to_string(i));
    end_vectors();
  }

  const Graph& graph_;
  const DeviceShape& shape_;
  const bool has_rows_;
  const std::string vector_;
  const DevicePlan plan_;
  std::vector<bool> is_written_;  // has a variable in scope
  std::vector<Id> unscoped_;
  std::string text_;
  int depth_ = 0;
};

}  // namespace

int vector_elements(const Graph& graph) {
  int least = 8;
  for (const Input& input : graph.inputs())
    if (input.has_columns()) least = std::min(least, size_of(input.type));
  for (const Id id : graph.results())
    if ((graph[id].extent & kPerColumn) != 0) least = std::min(least, size_of(graph[id].type));
  return std::min(8, 16 / least);
}

std::string device_source(const Graph& graph, const DeviceShape& shape) {
  return Writer(graph, shape).write();
}

}  // namespace opdock::formula
