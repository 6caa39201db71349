// Writes device source: what the kernels of formulas have in common, line by line. Kernels of rows
// are written by device_row_kernels.cc, all others by device_element_kernels.cc.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "formula/device_expressions.h"
#include "formula/device_plan.h"
#include "formula/device_source.h"

namespace opdock::formula {

// Writes one kernel. A kernel without reductions has one pass over its elements. One with
// reductions has a pass for each step of reductions that need earlier ones, and a last one for the
// results. Each class that derives from it writes the kernels of one kind.
class DeviceWriter {
 public:
  // name: that of a template; if it is empty, the kernel is no template, and its name is "kernel".
  DeviceWriter(const Graph& graph, const DeviceShape& shape, const std::string& name);
  virtual ~DeviceWriter() = default;
  DeviceWriter(const DeviceWriter&) = delete;
  DeviceWriter& operator=(const DeviceWriter&) = delete;

  // Returns the source. Called once.
  std::string write();

 protected:
  // Writes the kernel's statements.
  virtual void write_body() = 0;

  bool is_sum(size_t i) const { return formula::is_sum(graph_.output(i)); }
  bool is_column_sum(size_t i) const { return graph_.output(i) == Output::kColumnSums; }
  bool is_held(size_t input) const;
  bool is_transposed(size_t input) const;
  bool is_repeated(size_t input) const { return (shape_.repeated >> input & 1) != 0; }
  // Whether an input that is the same in all rows is loaded one vector ahead in the last pass, and
  // the first vector before the reductions: otherwise the store of each vector would wait for it.
  bool is_ahead(size_t input) const {
    return shape_.held > 0 && shape_.is_even && !is_held(input) && !is_repeated(input) &&
           graph_.inputs()[input].has_columns();
  }
  size_t num_tensors() const { return graph_.inputs().size() + graph_.results().size(); }
  Type result_type(size_t i) const { return graph_[graph_.results()[i]].type; }
  bool is_full(Id id) const { return (graph_[id].extent & kPerColumn) != 0; }
  void line(const std::string& text);
  // Returns the expression of a node that has been written, of a leaf, or of one that is inline.
  std::string use(Id id) const;
  // Returns a text without the parentheses around it.
  static std::string bare(const std::string& text);
  // Writes the variables of all nodes that are the same in the whole row and known before pass
  // `before`.
  void write_row_numbers(int before);
  // Returns which of the elements' nodes pass `now` computes for `targets`.
  std::vector<bool> needed(const std::vector<Id>& targets, int now) const;
  // Begins the loop over a vector's elements, with the numbers of the inputs that it needs.
  void begin_elements(const std::vector<bool>& is_needed);
  void end_elements();
  // Writes the needed nodes, in the order of the graph.
  void write_element_nodes(const std::vector<bool>& is_needed);
  std::vector<Id> all() const;
  void write_bases();
  // Writes the load of this vector of input i.
  void write_load(size_t i, const std::string& to);
  void write_store(size_t i);
  std::string pack(Type type) const { return "Pack<" + element_type(type) + ", kVector>"; }
  std::string element(size_t i) const;
  // Writes the results that have columns, of a vector whose inputs are loaded. sum_at: the place of
  // element k among the columns that a thread adds up.
  void write_results_of_vector(int now, const std::string& sum_at);
  // Writes what computes a vector of a row.
  void write_elements_of_row();
  // Writes the variables in which a thread adds up rows. size: of the vectors that it holds; empty
  // if it holds none.
  void write_sum_variables(const std::string& size);
  // Returns where the partial sums of result i begin.
  std::string partial(size_t i) const;
  // Returns the half of `scratch` that the next reduction uses.
  std::string next_scratch() { return num_reductions_++ % 2 == 0 ? "scratch" : "scratch + 32"; }
  void write_count();
  // Returns how many elements a vector of sums has.
  std::string count() const { return shape_.is_even ? "kVector" : "count"; }
  // Begins the loop over this thread's vectors: `column` and `count` are those of a vector.
  void begin_vectors();
  void end_vectors();

  const Graph& graph_;
  const DeviceShape& shape_;
  const bool has_rows_, has_sums_;
  const DevicePlan plan_;
  std::vector<bool> is_written_;  // has a variable in scope
  int depth_ = 0;
  int num_reductions_ = 0;  // written so far; two in a row use different memory

 private:
  // Whether what a pass computes stays in registers for later ones: where that is dear to compute
  // again, and the registers are there.
  static bool keeps(const Graph& graph, const DeviceShape& shape);
  // The threads of a block and, of kernels that hold rows, how many blocks a multiprocessor should
  // have at once: those of about 128 KiB of rows.
  std::string bounds() const;
  std::string parameters() const;
  // Returns a name as a comment may show it.
  static std::string plain(const std::string& name);
  // Returns the expression of a leaf where the elements' column is `column` and the row is `row`.
  std::string leaf(Id id) const;
  std::string value(Id id) const;
  void end_scope();
  // Writes what becomes of element k of a result.
  void write_element_result(size_t i, const std::string& sum_at);

  const std::string name_;
  const std::string vector_;
  std::vector<Id> unscoped_;
  std::string text_;
};

}  // namespace opdock::formula
