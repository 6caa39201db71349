// SPDX-License-Identifier: Apache-2.0
#include "formula/device_writer.h"

#include <algorithm>
#include <array>
#include <utility>

namespace opdock::formula {

DeviceWriter::DeviceWriter(const Graph& graph, const DeviceShape& shape, const std::string& name)
    : graph_(graph),
      shape_(shape),
      has_rows_(graph.has_reductions()),
      has_sums_(graph.has_sums()),
      plan_(graph, keeps(graph, shape)),
      is_written_(graph.nodes().size(), false),
      name_(name),
      vector_(std::to_string(vector_elements(graph, shape.repeated))) {}

std::string DeviceWriter::write() {
  line("// Made of a formula by Opdock.");
  const std::string header = has_sums_            ? "formula_sums"
                             : shape_.cluster > 1 ? "formula_cluster"
                                                  : "formula";
  line("#include \"opdock/" + header + ".cuh\"");
  line("");
  // Inside this namespace its functions hide the compiler's own, such as ::round.
  line("namespace opdock::formula {");
  line("");
  if (!name_.empty()) line("template <int>");
  line(bounds());
  line((name_.empty() ? "kernel" : name_) + "(" + parameters() + ") {");
  ++depth_;
  line("constexpr int kVector = " + vector_ + ";");
  write_body();
  --depth_;
  line("}");
  line("");
  line("}  // namespace opdock::formula");
  return std::move(text_);
}

bool DeviceWriter::keeps(const Graph& graph, const DeviceShape& shape) {
  return shape.held != 0 && shape.held <= 4 && !is_short(graph);
}

std::string DeviceWriter::bounds() const {
  const std::string threads = std::to_string(shape_.threads);
  int bytes = 0, ahead = 0;
  for (size_t i = 0; i < graph_.inputs().size(); ++i) {
    if (is_held(i))
      bytes += vector_elements(graph_, shape_.repeated) * size_of(graph_.inputs()[i].type);
    if (is_ahead(i)) ++ahead;
  }
  bytes *= shape_.held;
  const auto resident = [&](int registers) {
    return std::min((128 << 10) / (bytes * shape_.threads),
                    (64 << 10) / (registers * shape_.threads));
  };
  int blocks = 1;
  if (bytes != 0) {
    const int registers = 26 + bytes / 4;
    blocks = std::min({resident(registers), 2048 / shape_.threads, 20});
    // A thread has two vectors of each further tensor: without the registers for them, it spills.
    if (ahead > 1 && blocks > 2)
      blocks = std::clamp(resident(registers + 8 * (ahead - 1)), 2, blocks);
    // Blocks of several rows on a multiprocessor do not wait for each other. NVRTC fits 64 held
    // registers into the 80 that each of these threads has.
    if (shape_.cluster > 1 && shape_.threads <= 256) blocks = std::max(blocks, 3);
  }
  if (blocks <= 1 || graph_.size() > 60 || has_rows_ == false || has_sums_)
    return "OPDOCK_KERNEL(" + threads + ")";
  return "OPDOCK_KERNEL_BLOCKS(" + threads + ", " + std::to_string(blocks) + ")";
}

bool DeviceWriter::is_held(size_t input) const {
  return shape_.held > 0 && has_rows_ && formula::is_held(graph_, input, shape_.repeated);
}

bool DeviceWriter::is_transposed(size_t input) const {
  return input < 64 && (shape_.transposed >> input & 1) != 0;
}

void DeviceWriter::line(const std::string& text) {
  if (!text.empty()) text_.append(static_cast<size_t>(2 * depth_), ' ');
  text_ += text + "\n";
}

std::string DeviceWriter::parameters() const {
  std::string text =
      "FormulaSpace<" + std::to_string(shape_.dims) + ", " + std::to_string(num_tensors()) + "> p";
  for (size_t i = 0; i < graph_.scalars().size(); ++i) {
    const Scalar& scalar = graph_.scalars()[i];
    text += std::string(", ") + (scalar.type == Type::kFloat64 ? "double" : "int64_t") + " number" +
            std::to_string(i) + " /* " + plain(scalar.name) + " */";
  }
  if (has_sums_) text += ", int64_t rows_of_chunk, int64_t lanes";
  return text;
}

std::string DeviceWriter::plain(const std::string& name) {
  std::string text;
  for (const char c : name.substr(0, 60))
    text += (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ? c : '_';
  return text;
}

std::string DeviceWriter::leaf(Id id) const {
  const Node& node = graph_[id];
  const std::string index = std::to_string(node.index);
  switch (node.op) {
    case Op::kInput: {
      if (is_full(id)) return variable_name(graph_, id) + ".at[k]";
      const std::string element = "one" + index;
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
      return "static_cast<int64_t>(column + k)";
    case Op::kColumns:
      return "static_cast<int64_t>(p.columns)";
    default:
      return constant_text(node.type, node.value);
  }
}

std::string DeviceWriter::use(Id id) const {
  id = plan_.same(id);
  if (plan_.is_inline(id)) return value(id);
  if (is_leaf(graph_[id].op) && graph_[id].op != Op::kInput) return leaf(id);
  if (graph_[id].op == Op::kInput) return leaf(id);
  const std::string name = variable_name(graph_, id);
  return plan_.is_kept(id) ? name + "[i * kVector + k]" : name;
}

std::string DeviceWriter::bare(const std::string& text) {
  if (text.empty() || text.front() != '(' || text.back() != ')') return text;
  int open = 0;
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    open += text[i] == '(' ? 1 : text[i] == ')' ? -1 : 0;
    if (open == 0) return text;
  }
  return text.substr(1, text.size() - 2);
}

std::string DeviceWriter::value(Id id) const {
  std::array<std::string, 3> args;
  for (size_t i = 0; i < 3; ++i)
    if (graph_[id].args[i] != kNone) args[i] = use(graph_[id].args[i]);
  return expression(graph_, id, args);
}

void DeviceWriter::write_row_numbers(int before) {
  for (Id id = 0; id < graph_.size(); ++id) {
    const auto at = static_cast<size_t>(id);
    const Node& node = graph_[id];
    if (is_full(id) || is_written_[at] || plan_.pass(id) >= before || plan_.is_inline(id)) continue;
    if (is_leaf(node.op) || is_reduction(node.op)) continue;
    line("const " + number_type(node.type) + " " + variable_name(graph_, id) + " = " +
         bare(value(id)) + ";");
    is_written_[at] = true;
  }
}

std::vector<bool> DeviceWriter::needed(const std::vector<Id>& targets, int now) const {
  std::vector<bool> is_needed(graph_.nodes().size(), false);
  for (const Id id : targets) is_needed[static_cast<size_t>(id)] = true;
  for (Id id = graph_.size() - 1; id >= 0; --id) {
    const auto at = static_cast<size_t>(id);
    is_needed[at] = is_needed[at] && is_full(id) && !(plan_.is_kept(id) && plan_.pass(id) < now);
    if (!is_needed[at]) continue;
    for (const Id arg : graph_[id].args)
      if (arg != kNone && is_full(arg)) is_needed[static_cast<size_t>(arg)] = true;
  }
  return is_needed;
}

void DeviceWriter::begin_elements(const std::vector<bool>& is_needed) {
  for (const Id id : all()) {
    const Node& node = graph_[id];
    if (node.op != Op::kInput || !is_needed[static_cast<size_t>(id)]) continue;
    const std::string index = std::to_string(node.index);
    line("const auto " + variable_name(graph_, id) + " = to_numbers<" + number_type(node.type) +
         ">(in" + index + (is_held(node.index) ? "[i]" : "") + ");");
  }
  line("OPDOCK_UNROLL");
  line("for (int k = 0; k < kVector; ++k) {");
  ++depth_;
}

void DeviceWriter::end_elements() {
  --depth_;
  line("}");
  end_scope();
}

void DeviceWriter::write_element_nodes(const std::vector<bool>& is_needed) {
  for (Id id = 0; id < graph_.size(); ++id) {
    const auto at = static_cast<size_t>(id);
    if (!is_needed[at] || is_leaf(graph_[id].op) || plan_.is_inline(id)) continue;
    const std::string name = variable_name(graph_, id);
    const std::string text = bare(value(id));
    if (plan_.is_kept(id)) {
      line(name + "[i * kVector + k] = " + text + ";");
    } else {
      line("const " + number_type(graph_[id].type) + " " + name + " = " + text + ";");
    }
    is_written_[at] = true;
  }
  // The variables end with the loop.
  for (const Id id : all()) {
    if (is_full(id) && !plan_.is_kept(id)) unscoped_.push_back(id);
  }
}

std::vector<Id> DeviceWriter::all() const {
  std::vector<Id> ids;
  for (Id id = 0; id < graph_.size(); ++id) ids.push_back(id);
  return ids;
}

void DeviceWriter::end_scope() {
  for (const Id id : unscoped_) is_written_[static_cast<size_t>(id)] = false;
  unscoped_.clear();
}

void DeviceWriter::write_bases() {
  const size_t inputs = graph_.inputs().size();
  for (size_t t = 0; t < num_tensors(); ++t) {
    if (is_transposed(t) || (t >= inputs && is_sum(t - inputs))) continue;
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

void DeviceWriter::write_load(size_t i, const std::string& to) {
  const std::string n = std::to_string(i);
  line(to + " = " +
       (is_repeated(i) ? "repeat<kVector>(from" + n + "[0]);"
        : shape_.is_even
            ? "load_whole<kVector>(from" + n + " + column);"
            : "load<kVector>(from" + n + ", p.step[" + n + "], column, count, p.whole);"));
}

void DeviceWriter::write_store(size_t i) {
  const std::string n = std::to_string(i), t = std::to_string(graph_.inputs().size() + i);
  const std::string pack = "to_pack<" + element_type(result_type(i)) + ">(out" + n + ")";
  line(shape_.is_even ? "store_whole(to" + n + " + column, " + pack + ");"
                      : "store<kVector>(to" + n + ", p.step[" + t + "], column, count, p.whole, " +
                            pack + ");");
}

std::string DeviceWriter::element(size_t i) const {
  return "ToElement<" + element_type(result_type(i)) + ">::of(" + use(graph_.results()[i]) + ")";
}

void DeviceWriter::write_results_of_vector(int now, const std::string& sum_at) {
  std::vector<Id> targets;
  const auto for_each = [&](const auto& f) {
    for (size_t i = 0; i < graph_.results().size(); ++i)
      if (graph_.has_columns(i)) f(i);
  };
  for_each([&](size_t i) { targets.push_back(graph_.results()[i]); });
  for_each([&](size_t i) {
    if (!is_sum(i))
      line("Numbers<" + number_type(result_type(i)) + ", kVector> out" + std::to_string(i) + ";");
  });
  const std::vector<bool> is_needed = needed(targets, now);
  begin_elements(is_needed);
  write_element_nodes(is_needed);
  for_each([&](size_t i) { write_element_result(i, sum_at); });
  end_elements();
  for_each([&](size_t i) {
    if (!is_sum(i)) write_store(i);
  });
}

void DeviceWriter::write_element_result(size_t i, const std::string& sum_at) {
  const std::string n = std::to_string(i), value = bare(use(graph_.results()[i]));
  switch (graph_.output(i)) {
    case Output::kColumnSums:
      return line("sum" + n + "[" + sum_at + "] += " + value + ";");
    case Output::kTotal:
      return line((shape_.is_even ? "total" : "if (k < count) total") + n + " += " + value + ";");
    default:
      return line("out" + n + ".at[k] = " + value + ";");
  }
}

void DeviceWriter::write_elements_of_row() {
  write_bases();
  write_row_numbers(1);
  for (size_t i = 0; i < graph_.inputs().size(); ++i)
    if (graph_.inputs()[i].has_columns())
      write_load(i, "const " + pack(graph_.inputs()[i].type) + " in" + std::to_string(i));
  write_results_of_vector(0, "k");
}

void DeviceWriter::write_sum_variables(const std::string& size) {
  for (size_t i = 0; i < graph_.results().size(); ++i) {
    const std::string type = number_type(result_type(i)), n = std::to_string(i);
    if (graph_.output(i) == Output::kTotal) line(type + " total" + n + " = 0;");
    if (is_column_sum(i) && !size.empty()) line(type + " sum" + n + "[" + size + "] = {};");
  }
}

std::string DeviceWriter::partial(size_t i) const {
  return "static_cast<" + number_type(result_type(i)) + "*>(p.data[" +
         std::to_string(graph_.inputs().size() + i) + "])";
}

void DeviceWriter::write_count() {
  if (!shape_.is_even)
    line("const int count = static_cast<int>(min_of(p.columns - column, kVector));");
}

void DeviceWriter::begin_vectors() {
  const std::string type = shape_.is_wide ? "int64_t" : "int";
  if (shape_.held > 0) {
    line("OPDOCK_UNROLL");
    line("for (int i = 0; i < kHeld; ++i) {");
    ++depth_;
    line("const " + type + " column = team.column<" + type + ", kVector, kHeld>(i);");
    if (!shape_.is_full) line("if (column >= p.columns) continue;");
  } else {
    line("OPDOCK_UNROLL_4");
    line("for (" + type + " column = static_cast<" + type +
         ">(team.rank()) * kVector; column < p.columns; column += static_cast<" + type +
         ">(team.size()) * kVector) {");
    ++depth_;
  }
  write_count();
}

void DeviceWriter::end_vectors() {
  --depth_;
  line("}");
}

}  // namespace opdock::formula
