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
  // name: of a template; empty: the kernel is none, and is called kernel.
  Writer(const Graph& graph, const DeviceShape& shape, const std::string& name)
      : graph_(graph),
        shape_(shape),
        name_(name),
        has_rows_(graph.has_reductions()),
        has_sums_(graph.has_sums()),
        vector_(std::to_string(vector_elements(graph, shape.repeated))),
        plan_(graph, keeps(graph, shape)),
        is_written_(graph.nodes().size(), false) {}

  std::string write() {
    line("// Made of a formula by Opdock.");
    line(has_sums_ ? "#include \"opdock/formula_sums.cuh\"" : "#include \"opdock/formula.cuh\"");
    line("");
    // Inside this namespace its functions hide the compiler's own, such as ::round.
    line("namespace opdock::formula {");
    line("");
    if (!name_.empty()) line("template <int>");
    line(bounds());
    line((name_.empty() ? "kernel" : name_) + "(" + parameters() + ") {");
    ++depth_;
    line("constexpr int kVector = " + vector_ + ";");
    if (has_rows_) {
      write_rows();
    } else if (shape_.transposed != 0) {
      write_tiles();
    } else {
      write_elements();
    }
    --depth_;
    line("}");
    line("");
    line("}  // namespace opdock::formula");
    return std::move(text_);
  }

  std::string write_sums() {
    line("// Made of a formula by Opdock.");
    line("#include \"opdock/formula_sums.cuh\"");
    line("");
    line("namespace opdock::formula {");
    line("");
    int count = 0;
    for (size_t i = 0; i < graph_.results().size(); ++i) count += is_sum(i) ? 1 : 0;
    line("OPDOCK_KERNEL(kTotalThreads)");
    line("sums(PartialSums<" + std::to_string(count) + "> p) {");
    ++depth_;
    line("pdl_wait_and_trigger();");
    for (size_t i = 0, s = 0; i < graph_.results().size(); ++i) {
      if (!is_sum(i)) continue;
      const std::string n = std::to_string(s++);
      line("if (block_index_y() == " + n + ") add_partial_sums<" + number_type(result_type(i)) +
           ", " + element_type(result_type(i)) + ">(p, " + n + ");");
    }
    --depth_;
    line("}");
    line("");
    line("}  // namespace opdock::formula");
    return std::move(text_);
  }

 private:
  bool is_sum(size_t i) const { return formula::is_sum(graph_.output(i)); }
  bool is_column_sum(size_t i) const { return graph_.output(i) == Output::kColumnSums; }
  // Whether what a pass computes stays in registers for later ones: where that is dear to compute
  // again, and the registers are there.
  static bool keeps(const Graph& graph, const DeviceShape& shape) {
    return shape.held != 0 && shape.held <= 4 && !is_short(graph);
  }

  // The threads of a block and, of kernels that hold rows, how many blocks a multiprocessor should
  // have at once: those of about 128 KiB of rows.
  std::string bounds() const {
    const std::string threads = std::to_string(shape_.threads);
    int bytes = 0, registers = 26;
    for (size_t i = 0; i < graph_.inputs().size(); ++i)
      if (is_held(i))
        bytes += vector_elements(graph_, shape_.repeated) * size_of(graph_.inputs()[i].type);
    bytes *= shape_.held;
    registers += bytes / 4;
    const int blocks =
        bytes == 0
            ? 1
            : std::min({(128 << 10) / (bytes * shape_.threads),
                        (64 << 10) / (registers * shape_.threads), 2048 / shape_.threads, 20});
    if (blocks <= 1 || graph_.size() > 60 || has_rows_ == false || has_sums_)
      return "OPDOCK_KERNEL(" + threads + ")";
    return "OPDOCK_KERNEL_BLOCKS(" + threads + ", " + std::to_string(blocks) + ")";
  }

  bool is_held(size_t input) const {
    return shape_.held > 0 && has_rows_ && formula::is_held(graph_, input, shape_.repeated);
  }
  bool is_transposed(size_t input) const {
    return input < 64 && (shape_.transposed >> input & 1) != 0;
  }
  bool is_repeated(size_t input) const { return (shape_.repeated >> input & 1) != 0; }
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
    if (has_sums_) text += ", int64_t rows_of_chunk, int64_t lanes";
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
  // Returns the expression of a node that has been written, of a leaf, or of one that is inline.
  std::string use(Id id) const {
    id = plan_.same(id);
    if (plan_.is_inline(id)) return value(id);
    if (is_leaf(graph_[id].op) && graph_[id].op != Op::kInput) return leaf(id);
    if (graph_[id].op == Op::kInput) return leaf(id);
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

  // Returns which of the elements' nodes pass `now` computes for `targets`.
  std::vector<bool> needed(const std::vector<Id>& targets, int now) const {
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

  // Begins the loop over a vector's elements, with the numbers of the inputs that it needs.
  void begin_elements(const std::vector<bool>& is_needed) {
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
  void end_elements() {
    --depth_;
    line("}");
    end_scope();
  }

  // Writes the needed nodes, in the order of the graph.
  void write_element_nodes(const std::vector<bool>& is_needed) {
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
  // Writes the load of this vector of input i.
  void write_load(size_t i, const std::string& to) {
    const std::string n = std::to_string(i);
    line(to + " = " +
         (is_repeated(i) ? "repeat<kVector>(from" + n + "[0]);"
          : shape_.is_even
              ? "load_whole<kVector>(from" + n + " + column);"
              : "load<kVector>(from" + n + ", p.step[" + n + "], column, count, p.whole);"));
  }
  void write_store(size_t i) {
    const std::string n = std::to_string(i), t = std::to_string(graph_.inputs().size() + i);
    const std::string pack = "to_pack<" + element_type(result_type(i)) + ">(out" + n + ")";
    line(shape_.is_even ? "store_whole(to" + n + " + column, " + pack + ");"
                        : "store<kVector>(to" + n + ", p.step[" + t +
                              "], column, count, p.whole, " + pack + ");");
  }
  std::string pack(Type type) const { return "Pack<" + element_type(type) + ", kVector>"; }
  std::string element(size_t i) const {
    return "ToElement<" + element_type(result_type(i)) + ">::of(" + use(graph_.results()[i]) + ")";
  }
  // Writes the results that have columns, of a vector whose inputs are loaded. sum_at: the place of
  // element k among the columns that a thread adds up.
  void write_results_of_vector(int now, const std::string& sum_at) {
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
  // Writes what becomes of element k of a result.
  void write_element_result(size_t i, const std::string& sum_at) {
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

  void write_elements() {
    const std::string index = shape_.is_wide ? "int64_t" : "uint32_t";
    const std::string column = shape_.is_wide ? "int64_t" : "int";
    line("pdl_wait_and_trigger();");
    if (has_sums_) return write_element_chunks(index, column);
    line("const " + index + " number = vector_number<" + index + ">();");
    line("if (number >= static_cast<" + index + ">(p.rows * p.slots.divisor)) return;");
    if (shape_.dims == 0) {
      line("const " + index + " row = 0;");
      line("const " + column + " column = static_cast<" + column + ">(number) * kVector;");
    } else {
      line("const " + index + " row = p.slots.quotient(number);");
      line("const " + column + " column = static_cast<" + column + ">(number - row * static_cast<" +
           index + ">(p.slots.divisor)) * kVector;");
    }
    write_count();
    line("const RowPlace<" + index + ", " + std::to_string(shape_.dims) + "> place(p, row);");
    write_elements_of_row();
  }

  // Writes what computes a vector of a row.
  void write_elements_of_row() {
    write_bases();
    write_row_numbers(1);
    for (size_t i = 0; i < graph_.inputs().size(); ++i)
      if (graph_.inputs()[i].has_columns())
        write_load(i, "const " + pack(graph_.inputs()[i].type) + " in" + std::to_string(i));
    write_results_of_vector(0, "k");
  }

  // Writes the variables in which a thread adds up rows. size: of the vectors that it holds; empty
  // if it holds none.
  void write_sum_variables(const std::string& size) {
    for (size_t i = 0; i < graph_.results().size(); ++i) {
      const std::string type = number_type(result_type(i)), n = std::to_string(i);
      if (graph_.output(i) == Output::kTotal) line(type + " total" + n + " = 0;");
      if (is_column_sum(i) && !size.empty()) line(type + " sum" + n + "[" + size + "] = {};");
    }
  }
  // Returns where the partial sums of result i begin.
  std::string partial(size_t i) const {
    return "static_cast<" + number_type(result_type(i)) + "*>(p.data[" +
           std::to_string(graph_.inputs().size() + i) + "])";
  }
  // Returns the half of `scratch` that the next reduction uses.
  std::string next_scratch() { return num_reductions_++ % 2 == 0 ? "scratch" : "scratch + 32"; }

  // Writes an elementwise kernel with sums over rows. Of a block's threads, `lanes` neighbours
  // share a row, and each of these groups takes every height-th row of the chunk.
  void write_element_chunks(const std::string& index, const std::string& column) {
    line("OPDOCK_SHARED(long long, scratch, 64);");
    line("const int width = static_cast<int>(lanes), height = kColumnThreads / width;");
    line("const int64_t slot = block_index() * width + thread_index() % width;");
    line("const int64_t first_column = slot * kVector;");
    line("const " + column + " column = static_cast<" + column + ">(first_column);");
    line("const int count =");
    line(
        "    first_column < p.columns ? static_cast<int>(min_of(p.columns - column, kVector)) : "
        "0;");
    line("const int64_t begin = block_index_y() * rows_of_chunk;");
    line("const int64_t stop = begin + rows_of_chunk < p.rows ? begin + rows_of_chunk : p.rows;");
    write_sum_variables("kVector");
    line("const int64_t first = count > 0 ? begin + thread_index() / width : stop;");
    line("for (int64_t number = first; number < stop; number += height) {");
    ++depth_;
    line("const RowPlace<" + index + ", " + std::to_string(shape_.dims) +
         "> place(p, static_cast<" + index + ">(number));");
    write_elements_of_row();
    end_vectors();
    for (size_t i = 0; i < graph_.results().size(); ++i) {
      const std::string n = std::to_string(i);
      if (is_column_sum(i))
        line("store_column_sums(sum" + n + ", width, p.columns, " + partial(i) +
             " + block_index_y() * p.columns);");
      if (graph_.output(i) != Output::kTotal) continue;
      line("total" + n + " = RowTeam<true, kColumnThreads>().reduce<SumOf>(total" + n + ", " +
           next_scratch() + ");");
      line("if (thread_index() == 0)");
      line("  " + partial(i) + "[block_index_y() * grid_blocks() + block_index()] = total" + n +
           ";");
    }
  }

  // Writes a kernel whose blocks have a tile each: they load the tiles of transposed inputs along
  // the rows, and then compute vectors of the tile's rows.
  void write_tiles() {
    const std::string dims = std::to_string(shape_.dims);
    line("constexpr int kTile = " + std::to_string(formula::kTile) + ";");
    line("constexpr int kVectors = kTile * kTile / kVector / " + std::to_string(shape_.threads) +
         ";");
    const auto for_each_transposed = [&](const auto& f) {
      for (size_t i = 0; i < graph_.inputs().size(); ++i)
        if (is_transposed(i)) f(i, element_type(graph_.inputs()[i].type), std::to_string(i));
    };
    for_each_transposed([&](size_t, const std::string& type, const std::string& n) {
      line("OPDOCK_SHARED(" + type + ", tile" + n + ", (kTile * tile_step<kTile, " + type + ">));");
    });
    line("pdl_wait_and_trigger();");
    line("const Tile<kTile, " + dims + "> tile(p);");
    for_each_transposed([&](size_t, const std::string& type, const std::string& n) {
      line("tile.load<" + type + ">(p, " + n + ", tile" + n + ");");
    });
    line("block_barrier();");
    line("OPDOCK_UNROLL");
    line("for (int i = 0; i < kVectors; ++i) {");
    ++depth_;
    line("const int vector = thread_index() + i * " + std::to_string(shape_.threads) + ";");
    line("const int below = vector / (kTile / kVector);");
    line("const int beside = vector % (kTile / kVector) * kVector;");
    line("if (below >= tile.rows || beside >= tile.columns) continue;");
    line("const uint32_t row = tile.row + static_cast<uint32_t>(below);");
    line("const int column = tile.column + beside;");
    write_count();
    line("const RowPlace<uint32_t, " + dims + "> place(p, row);");
    write_bases();
    write_row_numbers(1);
    for (size_t i = 0; i < graph_.inputs().size(); ++i) {
      if (!graph_.inputs()[i].has_columns()) continue;
      const std::string n = std::to_string(i);
      const std::string to = "const " + pack(graph_.inputs()[i].type) + " in" + n;
      if (is_transposed(i)) {
        line(to + " = tile.vector<kVector>(tile" + n + ", below, beside);");
      } else {
        write_load(i, to);
      }
    }
    write_results_of_vector(0, "k");
    end_vectors();
  }

  void write_count() {
    if (!shape_.is_even)
      line("const int count = static_cast<int>(min_of(p.columns - column, kVector));");
  }

  // Returns how many elements a vector of sums has.
  std::string count() const { return shape_.is_even ? "kVector" : "count"; }

  // Begins the loop over this thread's vectors: `column` and `count` are those of a vector.
  void begin_vectors() {
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
  void end_vectors() {
    --depth_;
    line("}");
  }

  void write_rows() {
    if (shape_.held > 0) line("constexpr int kHeld = " + std::to_string(shape_.held) + ";");
    line("OPDOCK_SHARED(long long, scratch, 128);");
    line("pdl_wait_and_trigger();");
    line(std::string("const RowTeam<") + (shape_.is_block ? "true" : "false") + ", " +
         (shape_.is_full ? std::to_string(shape_.threads) : "0") + "> team;");
    const std::string index = shape_.is_wide ? "int64_t" : "uint32_t";
    const std::string block = "block_index_y() * grid_blocks() + block_index()";
    if (shape_.is_block) {
      line("const int64_t number = " + block + ";");
    } else {
      line("const int64_t number = (" + block + ") * (" + std::to_string(shape_.threads) +
           " / warp_width()) + thread_index() / warp_width();");
    }
    if (has_sums_) {
      // Each team has a chunk of rows.
      line("const int64_t begin = number * rows_of_chunk;");
      line("if (begin >= p.rows) return;");
      line("const int64_t stop = begin + rows_of_chunk < p.rows ? begin + rows_of_chunk : p.rows;");
      write_sum_variables(shape_.held > 0 ? "kHeld * kVector" : "");
      line("for (int64_t row = begin; row < stop; ++row) {");
      ++depth_;
    } else {
      line("if (number >= p.rows) return;");
    }
    line("const RowPlace<" + index + ", " + std::to_string(shape_.dims) +
         "> place(p, static_cast<" + index + ">(" + (has_sums_ ? "row" : "number") + "));");
    write_bases();
    write_row_numbers(1);
    if (shape_.held > 0) {
      for (size_t i = 0; i < graph_.inputs().size(); ++i)
        if (is_held(i))
          line(pack(graph_.inputs()[i].type) + " in" + std::to_string(i) + "[kHeld];");
      for (const Id id : all())
        if (plan_.is_kept(id))
          line(number_type(graph_[id].type) + " " + variable_name(graph_, id) +
               "[kHeld * kVector];");
      begin_vectors();
      for (size_t i = 0; i < graph_.inputs().size(); ++i)
        if (is_held(i)) write_load(i, "in" + std::to_string(i) + "[i]");
      end_vectors();
    }
    write_first_loads();
    for (int now = 0; now < plan_.last(); ++now) {
      write_reductions(now);
      write_row_numbers(now + 2);
    }
    write_results();
    if (!has_sums_) return;
    // The first reduction of the next row must not use what the last one of this row does.
    if (shape_.is_block && num_reductions_ % 2 != 0) line("block_barrier();");
    end_vectors();
    write_partial_sums();
  }

  // Writes a team's sums of its chunk of rows.
  void write_partial_sums() {
    for (size_t i = 0; i < graph_.results().size(); ++i) {
      const std::string n = std::to_string(i);
      if (graph_.output(i) == Output::kTotal) {
        line("total" + n + " = team.reduce<SumOf>(total" + n + ", " + next_scratch() + ");");
        line("if (team.rank() == 0) " + partial(i) + "[number] = total" + n + ";");
      }
    }
    if (shape_.held == 0) return;  // they are written already
    begin_vectors();
    for (size_t i = 0; i < graph_.results().size(); ++i)
      if (is_column_sum(i))
        line("store_partial<kVector>(" + partial(i) + " + number * p.columns, column, " + count() +
             ", sum" + std::to_string(i) + " + i * kVector);");
    end_vectors();
  }

  // Whether an input that is the same in all rows is loaded one vector ahead in the last pass, and
  // the first vector before the reductions: otherwise the store of each vector would wait for it.
  bool is_ahead(size_t input) const {
    return shape_.held > 0 && shape_.is_even && !is_held(input) && !is_repeated(input) &&
           graph_.inputs()[input].has_columns();
  }
  void write_load_ahead(size_t i, const std::string& vector) {
    const std::string n = std::to_string(i), type = shape_.is_wide ? "int64_t" : "int";
    const std::string load = "next" + n + " = load_whole<kVector>(from" + n + " + next);";
    line("const " + type + " next = team.column<" + type + ", kVector, kHeld>(" + vector + ");");
    line(shape_.is_full ? load : "if (next < p.columns) " + load);
  }
  void write_first_loads() {
    std::vector<Id> full;
    for (const Id id : graph_.results())
      if (is_full(id)) full.push_back(id);
    const std::vector<bool> is_last_needed = needed(full, plan_.last());
    for (const Id id : all()) {
      const Node& node = graph_[id];
      if (node.op != Op::kInput || !is_ahead(node.index) ||
          !is_last_needed[static_cast<size_t>(id)])
        continue;
      line(pack(node.type) + " next" + std::to_string(node.index) + ";");
      line("{");
      ++depth_;
      write_load_ahead(node.index, "0");
      end_vectors();
    }
  }

  // Writes the loads of the needed inputs that are not held.
  void write_needed_loads(const std::vector<bool>& is_needed, bool is_last) {
    for (const Id id : all()) {
      const Node& node = graph_[id];
      if (node.op != Op::kInput || !is_needed[static_cast<size_t>(id)]) continue;
      if (is_held(node.index)) continue;
      if (is_last && is_ahead(node.index)) {
        const std::string n = std::to_string(node.index);
        line("const " + pack(node.type) + " in" + n + " = next" + n + ";");
        line("if (i + 1 < kHeld) {");
        ++depth_;
        write_load_ahead(node.index, "i + 1");
        end_vectors();
        continue;
      }
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
    const std::vector<bool> is_needed = needed(targets, now);
    write_needed_loads(is_needed, false);
    begin_elements(is_needed);
    if (!shape_.is_even) line("if (k >= count) continue;");
    write_element_nodes(is_needed);
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
    end_elements();
    end_vectors();
    for (const Id id : reductions) {
      const Node& node = graph_[id];
      const std::string name = variable_name(graph_, id), part = "part_" + name;
      std::string all = is_index(node.op) ? "best_column(team, " + part + ", scratch + 64)"
                                          : "team.reduce<" + combination(node.op) + ">(" + part +
                                                ", " + next_scratch() + ")";
      if (node.type == Type::kBool) all = "(" + all + " != 0)";
      if (graph_.exact() && compute_type(node.type) != node.type)
        all = "rounded<" + element_type(node.type) + ">(" + all + ")";
      line("const " + number_type(node.type) + " " + name + " = " + all + ";");
      is_written_[static_cast<size_t>(id)] = true;
    }
  }

  void write_results() {
    std::vector<Id> full;
    size_t columns = 0;  // results that have a number for each
    for (size_t i = 0; i < graph_.results().size(); ++i) {
      if (!graph_.has_columns(i)) continue;
      ++columns;
      full.push_back(graph_.results()[i]);
    }
    if (columns < graph_.results().size()) {
      line("if (team.rank() == 0) {");
      ++depth_;
      for (size_t i = 0; i < graph_.results().size(); ++i) {
        if (graph_.has_columns(i)) continue;
        const std::string n = std::to_string(i);
        line(is_sum(i) ? "total" + n + " += " + bare(use(graph_.results()[i])) + ";"
                       : "to" + n + "[0] = " + element(i) + ";");
      }
      --depth_;
      line("}");
    }
    if (columns == 0) return;
    begin_vectors();
    write_needed_loads(needed(full, plan_.last()), true);
    const bool is_held = shape_.held > 0;
    for (size_t i = 0; !is_held && i < graph_.results().size(); ++i)
      if (is_column_sum(i))
        line(number_type(result_type(i)) + " sum" + std::to_string(i) + "[kVector] = {};");
    write_results_of_vector(plan_.last(), is_held ? "i * kVector + k" : "k");
    for (size_t i = 0; !is_held && i < graph_.results().size(); ++i)
      if (is_column_sum(i))
        line("add_to_partial<kVector>(" + partial(i) + " + number * p.columns, column, " + count() +
             ", row == begin, sum" + std::to_string(i) + ");");
    end_vectors();
  }

  const Graph& graph_;
  const DeviceShape& shape_;
  const std::string name_;
  const bool has_rows_, has_sums_;
  const std::string vector_;
  const DevicePlan plan_;
  std::vector<bool> is_written_;  // has a variable in scope
  std::vector<Id> unscoped_;
  std::string text_;
  int depth_ = 0;
  int num_reductions_ = 0;  // written so far; two in a row use different memory
};

}  // namespace

int vector_elements(const Graph& graph, uint64_t repeated) {
  int most = 2;
  for (size_t i = 0; i < graph.inputs().size(); ++i)
    if (graph.inputs()[i].has_columns() && (repeated >> i & 1) == 0)
      most = std::max(most, size_of(graph.inputs()[i].type));
  for (size_t i = 0; i < graph.results().size(); ++i) {
    const Node& node = graph[graph.results()[i]];
    const bool is_stored = graph.output(i) == Output::kWhole ||
                           ((node.extent & kPerColumn) != 0 && !is_sum(graph.output(i)));
    if (is_stored) most = std::max(most, size_of(node.type));
  }
  return 16 / most;
}

bool is_held(const Graph& graph, size_t input, uint64_t repeated) {
  return graph.inputs()[input].has_columns() && graph.inputs()[input].rank > 1 &&
         (repeated >> input & 1) == 0;
}

std::string device_source(const Graph& graph, const DeviceShape& shape) {
  return Writer(graph, shape, "").write();
}

std::string device_template(const Graph& graph, const DeviceShape& shape, const std::string& name) {
  return Writer(graph, shape, name).write();
}

std::string device_sums_source(const Graph& graph) {
  return Writer(graph, {}, "").write_sums();
}

}  // namespace opdock::formula
