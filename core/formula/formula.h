// Formulas as texts: docs/reference/formulas.md has the language. A formula is parsed once, and
// lowered to a graph for each combination of types, optional arguments and choices.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "formula/graph.h"

namespace opdock::formula {

// Limits of a text, so that a hostile one costs little. Exceeding one throws SyntaxError.
inline constexpr size_t kMaxText = 64 << 10;  // bytes
inline constexpr int kMaxDepth = 200;         // nested parentheses, calls, signs and powers

// A faulty text. what(): "line 2, column 5: found …, wanted …", and the line with a mark below.
class SyntaxError : public Error {
 public:
  SyntaxError(int at_line, int at_column, const std::string& text)
      : Error(text), line(at_line), column(at_column) {}
  int line, column;  // from 1
};

struct Parameter {
  // A bool, a string and a type are choices: they are known when a kernel is chosen. Floats and
  // ints are numbers that the kernel is passed.
  enum class Kind : uint8_t { kTensor, kFloat, kInt, kBool, kString, kType };
  std::string name;
  Kind kind = Kind::kTensor;
  bool is_optional = false;  // may be None; whether it is there is a choice
};

// Properties of an argument for which a graph is made; there is one for each parameter.
struct Argument {
  bool is_present = true;
  Type type = Type::kFloat32;  // of a tensor, or the argument itself
  int rank = 2;                // of a tensor
  bool flag = false;           // of a bool
  std::string text;            // of a string
};

struct Program;  // the parsed text

class Formula {
 public:
  // Parses a formula over these parameters. Throws SyntaxError.
  Formula(std::string_view text, std::vector<Parameter> parameters);
  // Parses a formula whose parameters are the names that it uses and does not define, all of them
  // tensors, in the order of their first use.
  explicit Formula(std::string_view text);

  const std::vector<Parameter>& parameters() const { return parameters_; }
  // Returns how many results the formula returns; cat(a, b) is one.
  size_t num_results() const;
  // Returns the formula in its own layout: one statement a line, spaces around operators, no
  // needless parentheses, comments dropped. Parsing it gives the same formula.
  std::string text() const;

  // Returns the texts with which the formula compares its strings, each once.
  std::vector<std::string> strings() const;

  // Lowers the formula to a graph, simplified, whose inputs are the tensors that are present and
  // whose scalars are the floats and ints that are present, in the order of the parameters. A
  // tensor that the formula takes in parts is one input for each part, behind that of the whole
  // tensor, if the formula uses it as well. Throws SyntaxError, with the place in the text, where
  // Graph throws Error, and for a use of a tensor that is not there.
  Graph graph(const std::vector<Argument>& arguments, bool exact = false) const;

  // Lowers the formula into a graph, with its parameters standing for the nodes of these names.
  // Returns the results, which are not added to the graph's. For formulas without choices.
  std::vector<Id> expand(Graph* graph, const std::map<std::string_view, Id>& nodes) const;

 private:
  std::vector<Parameter> parameters_;
  std::shared_ptr<const Program> program_;
};

}  // namespace opdock::formula
