// SPDX-License-Identifier: Apache-2.0
#include "formula/cpu_source.h"

#include <algorithm>
#include <limits>

#include "formula/cpu_steps.h"
#include "formula/device_expressions.h"

namespace opdock::formula {
namespace {

using What = CpuStep::What;

// Rows whose kept values have more bytes than this would push each other out of the second-level
// cache: their passes compute the values again.
constexpr int64_t kMaxKeptBytes = 512 << 10;

// Returns about how many instructions a step takes.
int cost_of(const CpuStep& step) {
  if (step.what != What::kCompute) return 1;
  static constexpr const char* kCheap[] = {
      "neg",     "abs",       "relu",      "add",   "sub",   "mul",   "fma",  "maximum",
      "minimum", "clamp_min", "clamp_max", "where", "eq",    "ne",    "lt",   "le",
      "gt",      "ge",        "floor",     "ceil",  "trunc", "round", "sign", "copysign"};
  for (const char* cheap : kCheap)
    if (step.function == cheap) return 1;
  return step.function.starts_with("to_") ? 2 : 8;
}

// Writes one function. A formula without reductions has one pass over a row; one with reductions
// has a pass for each step of reductions that need earlier ones, and one for the results.
class Writer {
 public:
  Writer(const Graph& graph, std::string_view name, bool is_named)
      : graph_(graph), steps_(cpu_steps(graph, is_named)), name_(name) {}

  std::string write() {
    line("// Made of a formula by Opdock.");
    line("#include \"opdock/formula_cpu.hpp\"");
    line("");
    line("namespace opdock {");
    line("namespace formula {");
    line("namespace OPDOCK_SIMD_LEVEL {");
    line("");
    const std::string parameters = "(const opdock_formula_call* call, int64_t begin, int64_t end)";
    line("void " + name_ + parameters + ";");
    line("void " + name_ + parameters + " {");
    ++depth_;
    write_function();
    --depth_;
    line("}");
    line("");
    line("}  // namespace OPDOCK_SIMD_LEVEL");
    line("}  // namespace formula");
    line("}  // namespace opdock");
    line("");
    line("#ifdef OPDOCK_SIMD_ONLY");
    line("extern \"C\" __attribute__((visibility(\"default\")))");
    line("void " + name_ + parameters + ";");
    line("void " + name_ + parameters + " {");
    line("  opdock::formula::OPDOCK_SIMD_LEVEL::" + name_ + "(call, begin, end);");
    line("}");
    line("#endif");
    return std::move(text_);
  }

 private:
  struct Kept {
    int step;
    int pass;  // that computes it
    int64_t offset;
  };

  const CpuStep& at(int i) const { return steps_.all[static_cast<size_t>(i)]; }
  int count() const { return static_cast<int>(steps_.all.size()); }
  Type result_type(size_t i) const { return graph_[graph_.results()[i]].type; }
  bool is_row_result(size_t i) const { return !graph_.has_columns(i); }
  bool is_summed(size_t i) const { return is_sum(graph_.output(i)); }
  bool is_column_sum(size_t i) const { return graph_.output(i) == Output::kColumnSums; }
  // Whether a result is the sum of all numbers of columns, which each row adds up first.
  bool is_total(size_t i) const { return graph_.output(i) == Output::kTotal && !is_row_result(i); }
  static bool has_variable(const CpuStep& step) { return step.what != What::kConstant; }
  bool is_once(const CpuStep& step) const {
    return step.extent == kOnce && step.stage == 0 && step.what != What::kReduce;
  }

  void line(const std::string& text) {
    if (!text.empty()) text_.append(static_cast<size_t>(2 * depth_), ' ');
    text_ += text + "\n";
  }

  void write_function() {
    find_kept();
    line("static constexpr TensorForm tensors[] = {");
    for (size_t i = 0; i < graph_.inputs().size(); ++i)
      line("    {" + std::to_string(size_of(graph_.inputs()[i].type)) + ", " + yes(is_read(i)) +
           "},");
    for (size_t i = 0; i < graph_.results().size(); ++i)
      line("    {" + (is_summed(i) ? "8" : std::to_string(size_of(result_type(i)))) + ", " +
           yes(is_summed(i) ? is_column_sum(i) : !is_row_result(i)) +
           (is_summed(i) ? ", true}," : "},"));
    line("};");
    std::vector<int> once;
    for (int i = 0; i < count(); ++i)
      if (!at(i).is_full() && is_once(at(i))) once.push_back(i);
    write_steps(once, {}, "");
    if (!kept_.empty()) {
      int64_t bytes = 0;
      for (const Kept& kept : kept_) bytes += kept_bytes(kept);
      line("// Short rows keep values from one pass to the next.");
      line("if (call->columns <= " + std::to_string(kMaxKeptBytes / bytes) + ") {");
      ++depth_;
      write_rows(bytes);
      line("return;");
      --depth_;
      line("}");
      kept_.clear();
    }
    write_rows(0);
  }

  // Whether a pass reads the input's columns. Those of others are not copied for it.
  bool is_read(size_t input) const {
    for (int pass = 0; pass < steps_.passes; ++pass)
      for (const int i : steps_of(pass))
        if (at(i).what == What::kInput && at(i).index == input) return true;
    return false;
  }
  static std::string yes(bool value) { return value ? "true" : "false"; }
  int64_t kept_bytes(const Kept& kept) const {
    return cpu_value_type(at(kept.step).type) == "Doubles" ||
                   cpu_value_type(at(kept.step).type) == "Longs"
               ? 8
               : 4;
  }

  // Finds the values that a later pass needs again and that take long to compute again.
  void find_kept() {
    std::vector<bool> is_computed(steps_.all.size());
    int64_t offset = 0;
    for (int pass = 0; pass < steps_.passes; ++pass) {
      std::vector<int> targets = targets_of(pass);
      std::vector<bool> is_needed(steps_.all.size());
      for (const int i : targets) is_needed[static_cast<size_t>(i)] = true;
      for (int i = count() - 1; i >= 0; --i) {
        const auto k = static_cast<size_t>(i);
        if (!is_needed[k] || !at(i).is_full()) continue;
        if (pass > 0 && is_computed[k] && at(i).what == What::kCompute &&
            at(i).type != Type::kBool && work_of(i) >= 8) {
          if (!is_kept(i)) {
            kept_.push_back({i, at(i).stage, offset});
            offset += kept_bytes(kept_.back());
          }
          continue;
        }
        for (const int arg : at(i).args)
          if (arg >= 0) is_needed[static_cast<size_t>(arg)] = true;
      }
      for (size_t k = 0; k < is_needed.size(); ++k)
        if (is_needed[k] && at(static_cast<int>(k)).is_full()) is_computed[k] = true;
    }
    // The pass that computes a value is the first that needs it.
    for (Kept& kept : kept_) kept.pass = first_pass_of(kept.step);
  }
  int work_of(int i) const {
    int work = cost_of(at(i));
    for (const int arg : at(i).args)
      if (arg >= 0 && at(arg).is_full() && at(arg).what == What::kCompute)
        work = std::min(work + work_of_cached(arg), 1000);
    return work;
  }
  // The work of an argument; what is shared counts twice, up to a depth that keeps this cheap.
  int work_of_cached(int i) const {
    if (work_.empty()) {
      work_.resize(steps_.all.size());
      for (int k = 0; k < count(); ++k) {
        int work = cost_of(at(k));
        for (const int arg : at(k).args)
          if (arg >= 0 && at(arg).is_full() && at(arg).what == What::kCompute)
            work = std::min(work + work_[static_cast<size_t>(arg)], 1000);
        work_[static_cast<size_t>(k)] = work;
      }
    }
    return work_[static_cast<size_t>(i)];
  }
  const Kept* find(int step) const {
    for (const Kept& kept : kept_)
      if (kept.step == step) return &kept;
    return nullptr;
  }
  bool is_kept(int step) const { return find(step) != nullptr; }

  // Returns the values of columns that a pass is for.
  std::vector<int> targets_of(int pass) const {
    std::vector<int> targets;
    for (int i = 0; i < count(); ++i)
      if (at(i).what == What::kReduce && at(i).stage == pass + 1) targets.push_back(at(i).args[0]);
    if (pass + 1 == steps_.passes)
      for (size_t i = 0; i < steps_.results.size(); ++i)
        if (!is_row_result(i)) targets.push_back(steps_.results[i]);
    return targets;
  }
  // Returns the steps of columns that a pass computes, in their order. Kept ones are loaded from
  // later passes.
  std::vector<int> steps_of(int pass) const {
    std::vector<bool> is_needed(steps_.all.size());
    for (const int i : targets_of(pass)) is_needed[static_cast<size_t>(i)] = true;
    for (int i = count() - 1; i >= 0; --i) {
      if (!is_needed[static_cast<size_t>(i)] || !at(i).is_full()) continue;
      const Kept* const kept = find(i);
      if (kept != nullptr && kept->pass < pass) continue;
      for (const int arg : at(i).args)
        if (arg >= 0) is_needed[static_cast<size_t>(arg)] = true;
    }
    std::vector<int> steps;
    for (int i = 0; i < count(); ++i)
      if (is_needed[static_cast<size_t>(i)] && at(i).is_full()) steps.push_back(i);
    return steps;
  }
  int first_pass_of(int step) const {
    for (int pass = 0; pass < steps_.passes; ++pass) {
      const std::vector<int> steps = steps_of(pass);
      if (std::find(steps.begin(), steps.end(), step) != steps.end()) return pass;
    }
    return 0;
  }

  void write_rows(int64_t bytes) {
    const std::string form = bytes != 0 ? "keeping_form" : "form";
    bool has_places = false;
    for (const CpuStep& step : steps_.all)
      has_places = has_places || step.what == What::kRow || step.what == What::kColumn ||
                   step.extent == kPerRow;
    line("static constexpr Form " + form + " = {" + std::to_string(graph_.inputs().size()) + ", " +
         std::to_string(graph_.results().size()) + ", tensors, " + yes(steps_.has_whole_rows) +
         ", " + yes(has_places) + ", " + std::to_string(bytes) + "};");
    const std::string for_each = graph_.has_sums() ? "for_each_row_of_chunks(" : "for_each_row(";
    line(for_each + form + ", call, begin, end, [&](const Row& row) {");
    ++depth_;
    for (int i = 0; i < count(); ++i) {
      const CpuStep& step = at(i);
      if (step.what != What::kInput || !step.is_full() || !is_read(step.index)) continue;
      const std::string type = cpu_element_type(step.type);
      line("const Column<" + type + "> from_" + step.name + " = row.input<" + type + ">(" +
           std::to_string(step.index) + ");");
    }
    for (size_t i = 0; i < graph_.results().size(); ++i) {
      const std::string type = is_summed(i) ? "double" : cpu_element_type(result_type(i));
      line(type + "* const to" + std::to_string(i) + " = row.result<" + type + ">(" +
           std::to_string(graph_.inputs().size() + i) + ");");
    }
    for (const Kept& kept : kept_) {
      const std::string type = element_of(at(kept.step));
      line(type + "* const kept_" + at(kept.step).name + " = row.kept<" + type + ">(" +
           std::to_string(kept.offset) + ");");
    }
    for (int pass = 0; pass < steps_.passes; ++pass) write_pass(pass);
    write_row_steps(steps_.passes, std::numeric_limits<int>::max());
    for (size_t i = 0; i < graph_.results().size(); ++i)
      if (is_row_result(i))
        line((is_summed(i) ? "add_to_sums(Part{1}, " : "store_vector(Part{1}, ") +
             use(steps_.results[i]) + ", to" + std::to_string(i) + ");");
    --depth_;
    line("});");
  }
  std::string element_of(const CpuStep& step) const {
    const std::string value = cpu_value_type(step.type);
    return value == "Floats"    ? "float"
           : value == "Doubles" ? "double"
           : value == "Longs"   ? "int64_t"
                                : "int32_t";
  }

  // Writes the values that are the same in the row, of stages first … last.
  void write_row_steps(int first, int last) {
    std::vector<int> steps;
    for (int i = 0; i < count(); ++i) {
      const CpuStep& step = at(i);
      if (!step.is_full() && !is_once(step) && step.what != What::kReduce && step.stage >= first &&
          step.stage <= last)
        steps.push_back(i);
    }
    write_steps(steps, {}, "");
  }

  void write_pass(int pass) {
    write_row_steps(pass, pass);
    std::vector<int> reductions;
    for (int i = 0; i < count(); ++i)
      if (at(i).what == What::kReduce && at(i).stage == pass + 1) reductions.push_back(i);
    const bool is_last = pass + 1 == steps_.passes;
    std::vector<std::pair<int, std::string>> uses;  // and what is done with them
    for (const int i : reductions) {
      const CpuStep& step = at(i);
      const bool needs_columns = step.function.starts_with("Mean");
      line(step.function + " all_" + step.name + (needs_columns ? "(row.columns);" : ";"));
      uses.emplace_back(step.args[0], "all_" + step.name + ".add(part, @);");
    }
    for (const Kept& kept : kept_)
      if (kept.pass == pass)
        uses.emplace_back(kept.step, "write(@, kept_" + at(kept.step).name + " + i);");
    for (size_t i = 0; is_last && i < graph_.results().size(); ++i) {
      if (is_row_result(i)) continue;
      const std::string number = std::to_string(i);
      const char* const how =
          is_column_sum(i) ? "add_to_sums(part, @, to" : "store_vector(part, @, to";
      if (is_total(i)) line("Sum<" + cpu_value_type(result_type(i)) + "> total" + number + ";");
      uses.emplace_back(steps_.results[i], is_total(i) ? "total" + number + ".add(part, @);"
                                                       : how + number + " + i);");
    }
    if (!uses.empty()) {
      line("for_each_vector(row.count, [&](auto part, int64_t i) OPDOCK_BODY {");
      ++depth_;
      pass_ = pass;
      write_steps(steps_of(pass), uses, "part");
      pass_ = -1;
      --depth_;
      line("});");
    }
    for (size_t i = 0; is_last && i < graph_.results().size(); ++i)
      if (is_total(i))
        line("*to" + std::to_string(i) + " += total" + std::to_string(i) + ".number();");
    for (const int i : reductions)
      line("const " + cpu_value_type(at(i).type) + " " + at(i).name + " = all_" + at(i).name +
           ".total();");
  }

  // Writes the variables of these steps, and then what is done with some values, in which "@"
  // stands for one. A value that one step uses is written inside the expression of that step.
  void write_steps(const std::vector<int>& steps,
                   const std::vector<std::pair<int, std::string>>& uses, const std::string&) {
    std::vector<int> count(steps_.all.size()), length(steps_.all.size(), 1);
    for (const int i : steps)
      for (const int arg : at(i).args)
        if (arg >= 0) ++count[static_cast<size_t>(arg)];
    for (const auto& [i, text] : uses) count[static_cast<size_t>(i)] += 2;
    inline_.assign(steps_.all.size(), {});
    for (const int i : steps) {
      const CpuStep& step = at(i);
      if (!has_variable(step)) continue;
      const auto k = static_cast<size_t>(i);
      for (const int arg : step.args)
        if (arg >= 0 && !inline_[static_cast<size_t>(arg)].empty())
          length[k] += length[static_cast<size_t>(arg)];
      const std::string text = value(i);
      const bool is_local = step.is_full() == (pass_ >= 0);
      const bool is_read = step.is_full() && is_loaded(i);
      if (step.what == What::kCompute && count[k] == 1 && is_local && pass_ >= 0 && !is_read &&
          !step.is_named && length[k] < 6) {
        inline_[k] = text;
      } else {
        line("const " + cpu_value_type(step.type) + " " + step.name + " = " + text + ";");
      }
    }
    for (const auto& [i, text] : uses) {
      const size_t place = text.find('@');
      line(text.substr(0, place) + use(i) + text.substr(place + 1));
    }
    inline_.clear();
  }

  // Whether a pass loads the value, which an earlier one has kept.
  bool is_loaded(int i) const {
    const Kept* const kept = find(i);
    return kept != nullptr && pass_ > kept->pass;
  }

  // Returns the expression of a step that is a variable, is inside an expression, or a constant.
  std::string use(int i) const {
    if (at(i).what == What::kConstant) return value(i);
    if (!inline_.empty() && !inline_[static_cast<size_t>(i)].empty())
      return inline_[static_cast<size_t>(i)];
    return at(i).name;
  }
  std::string value(int i) const {
    const CpuStep& step = at(i);
    const std::string index = std::to_string(step.index);
    switch (step.what) {
      case What::kInput: {
        if (step.is_full()) return "load_vector(part, from_" + step.name + ".at(i))";
        const std::string type = cpu_element_type(step.type);
        if (step.extent == kOnce)
          return "load_one(static_cast<const " + type + "*>(call->inputs[" + index + "].data))";
        return "load_one(row.one<" + type + ">(" + index + "))";
      }
      case What::kScalar:
        return step.type == Type::kBool    ? "bools(call->numbers[" + index + "].integer != 0)"
               : step.type == Type::kInt64 ? "longs(call->numbers[" + index + "].integer)"
                                           : "doubles(call->numbers[" + index + "].real)";
      case What::kConstant:
        return constant(step);
      case What::kRow:
        return "longs(row.number)";
      case What::kColumn:
        return "columns_from(row.column + i)";
      case What::kColumns:
        return "longs(call->columns)";
      default:
        break;
    }
    if (step.is_full() && is_loaded(i)) return "read(kept_" + step.name + " + i)";
    std::string text = step.function + "(";
    for (const int arg : step.args)
      if (arg >= 0) text += (text.back() == '(' ? "" : ", ") + use(arg);
    return text + ")";
  }

  static std::string constant(const CpuStep& step) {
    std::string text = cpu_value_type(step.type);
    text[0] = static_cast<char>(text[0] - 'A' + 'a');
    return text + "(" + constant_text(step.type, step.value) + ")";
  }

  const Graph& graph_;
  const CpuSteps steps_;
  const std::string name_;
  std::vector<Kept> kept_;
  mutable std::vector<int> work_;
  int pass_ = -1;                    // whose loop is being written
  std::vector<std::string> inline_;  // values inside other expressions
  std::string text_;
  int depth_ = 0;
};

}  // namespace

std::string cpu_source(const Graph& graph, std::string_view function_name, bool is_named) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  const bool is_name = !function_name.empty() && is_letter(function_name[0]) &&
                       std::all_of(function_name.begin(), function_name.end(),
                                   [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
  if (!is_name)
    throw Error("found the function name \"" + std::string(function_name) +
                "\", wanted letters, digits and _; please report this");
  return Writer(graph, function_name, is_named).write();
}

std::vector<std::string> cpu_source_arguments() {
  return {"-std=c++17", "-O2", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"};
}

}  // namespace opdock::formula
