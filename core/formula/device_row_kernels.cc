// SPDX-License-Identifier: Apache-2.0
#include "formula/device_row_kernels.h"

#include "formula/device_writer.h"

namespace opdock::formula {
namespace {

// A row a team of threads.
class RowWriter : public DeviceWriter {
 public:
  using DeviceWriter::DeviceWriter;

 private:
  bool is_cluster() const { return shape_.cluster > 1; }
  // Returns the argument for the memory of a reduction's exchanges, if there are any.
  std::string next_gather(int count) {
    if (!is_cluster()) return "";
    num_exchanges_ += count;
    return ", gathers + " + std::to_string(num_exchanges_ - count);
  }

  void write_body() override {
    if (shape_.held > 0) line("constexpr int kHeld = " + std::to_string(shape_.held) + ";");
    line("OPDOCK_SHARED(long long, scratch, 128);");
    const std::string threads = shape_.is_full ? std::to_string(shape_.threads) : "0";
    const std::string blocks = std::to_string(shape_.cluster);
    if (is_cluster())
      line("OPDOCK_SHARED(ClusterGather<uint64_t>, gathers, " + std::to_string(exchanges(graph_)) +
           ");");
    line("pdl_wait_and_trigger();");
    if (is_cluster()) {
      line("const ClusterTeam<" + threads + ", " + blocks + "> team;");
    } else {
      line(std::string("const RowTeam<") + (shape_.is_block ? "true" : "false") + ", " + threads +
           "> team;");
    }
    const std::string index = shape_.is_wide ? "int64_t" : "uint32_t";
    const std::string block = is_cluster()
                                  ? "(block_index_y() * grid_blocks() + block_index()) / " + blocks
                                  : "block_index_y() * grid_blocks() + block_index()";
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
    if (is_cluster()) line("team.open(gathers, " + std::to_string(exchanges(graph_)) + ");");
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
    // A block writes to another one only when that has begun.
    if (is_cluster() && now == 0) line("cluster_opened();");
    for (const Id id : reductions) {
      const Node& node = graph_[id];
      const std::string name = variable_name(graph_, id), part = "part_" + name;
      const std::string gather = next_gather(is_index(node.op) ? 2 : 1);
      std::string all = is_index(node.op)
                            ? "best_column(team, " + part + ", scratch + 64" + gather + ")"
                            : "team.reduce<" + combination(node.op) + ">(" + part + ", " +
                                  next_scratch() + gather + ")";
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

  int num_exchanges_ = 0;  // written so far
};

}  // namespace

std::string device_row_kernel(const Graph& graph, const DeviceShape& shape,
                              const std::string& name) {
  return RowWriter(graph, shape, name).write();
}

}  // namespace opdock::formula
