// The graph of a formula: a list of typed nodes, each of which computes one number for each element
// of the formula's index space. The space has rows (all dimensions but the last, of the shape to
// which the tensors are broadcast) and columns (the last dimension).
//
// Each node is made once: asking for an equal one returns the node that is there, and nodes of
// constants are computed at once. So a graph has no common subexpressions.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "formula/type.h"

namespace opdock::formula {

// Limits of a graph, so that a hostile formula costs little. Exceeding one throws Error.
inline constexpr size_t kMaxNodes = 4096;
inline constexpr size_t kMaxInputs = 48;
inline constexpr size_t kMaxScalars = 32;
inline constexpr size_t kMaxResults = 32;

// A faulty formula; the text says what was found and what was wanted.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Which types an operation takes and returns. Operands are first converted to one type, the
// promoted one, unless the rule says otherwise.
enum class Rule : uint8_t {
  kArithmetic,   // numbers of the operands' type; no bools
  kRounding,     // the same; integers stay as they are
  kFloat,        // floats; integers and bools become float32
  kCompare,      // bools, of operands of any type
  kLogical,      // bools, of operands that count as bools: is it not 0
  kTest,         // bools, of one operand
  kBits,         // integers or bools
  kShift,        // integers
  kSame,         // the operand's type, of any operand
  kWhere,        // the type of the second and third operand; the first counts as a bool
  kReduce,       // the operand's type
  kReduceSum,    // the operand's type; bools and integers become int64
  kReduceFloat,  // the operand's type, a float
  kReduceIndex,  // int64
  kReduceBool,   // bool, of an operand that counts as a bool
};

enum class Op : uint8_t {
  // Leaves.
  kInput,     // an element of tensor `index`
  kScalar,    // number `index`, passed with each call
  kConstant,  // `value`
  kRow,       // the row's number, from 0
  kColumn,    // the column's number, from 0
  kColumns,   // how many columns a row has
  // A conversion of an operand to the node's type. Like all nodes but kCast it does not round to
  // float16 or bfloat16, unless the graph is exact (Graph::rounds()).
  kConvert,
  kCast,  // a conversion that the formula asks for: it rounds to the node's type
#define OPDOCK_OPERATION(identifier, name, arguments, rule, derivatives) identifier,
#include "formula/operations.def"
#undef OPDOCK_OPERATION
};

struct Operation {
  std::string_view name;
  int arguments;
  Rule rule;
  std::string_view derivatives;
};
// Returns the operation's row of operations.def, to which neither leaves nor conversions belong.
const Operation& operation(Op op);
// Returns the operation of that name, or nullptr; "gelu" is the one by the normal distribution.
const Op* find_operation(std::string_view name);
inline bool is_leaf(Op op) {
  return op < Op::kConvert;
}
inline bool is_reduction(Op op) {
  return op >= Op::kSum;
}

// In which directions the values of a node may differ: bits.
enum Extent : uint8_t { kOnce = 0, kPerRow = 1, kPerColumn = 2, kFull = 3 };

// Says which numbers of a result are stored.
enum class Output : uint8_t {
  kOwn,    // a number for each element, or one for each row if it is the same in the whole row
  kWhole,  // a number for each element
  // Sums of floats: over the rows, a number for each column; and over all numbers of kOwn, so that
  // a result that is the same in the whole row counts once for the row. They are made for the
  // gradients of inputs that all rows share.
  kColumnSums,
  kTotal,
};
inline bool is_sum(Output output) {
  return output == Output::kColumnSums || output == Output::kTotal;
}

using Id = int32_t;  // a node's position in Graph::nodes
inline constexpr Id kNone = -1;

// A constant of type bool or an integer type is in `integer`, another one in `real`, rounded to
// compute_type() of its type.
struct Value {
  double real = 0;
  int64_t integer = 0;
};

struct Node {
  Op op = Op::kConstant;
  Type type = Type::kFloat64;
  Level level = Level::kNumber;
  uint8_t extent = kOnce;
  std::array<Id, 3> args = {kNone, kNone, kNone};
  uint32_t index = 0;  // kInput, kScalar
  Value value;         // kConstant
};

// Which of several equal parts along the last dimension: part 0 of 1 is the whole tensor.
struct Part {
  uint32_t part = 0;
  uint32_t parts = 1;
};

struct Input {
  std::string name;  // of the tensor: several inputs may be parts of one
  Type type = Type::kFloat32;
  // Number of dimensions. A tensor without dimensions is one number; one with a single dimension is
  // the same in each row.
  int rank = 2;
  // Whether the last dimension has the size 1, so that the tensor is the same in the whole row: the
  // gradient of a result that is.
  bool is_per_row = false;
  // The part of the tensor that it is. The caller passes the part's memory.
  Part part;
  // Whether the tensor has one element for each of G groups of equally many elements of the shape
  // to which the other tensors are broadcast, counted in row-major order.
  bool is_grouped = false;

  // Returns whether a row may have more than one number of it.
  bool has_columns() const { return rank > 0 && !is_per_row; }
};
struct Scalar {
  std::string name;
  Type type = Type::kFloat64;  // kBool, kInt64 or kFloat64
};

class Graph {
 public:
  // An `exact` graph rounds each node to its type, as computing op by op does. In any other the
  // numbers of 16-bit floats are float32 until a result is stored or a kCast rounds them.
  explicit Graph(bool exact = false) : exact_(exact) {}

  Id input(std::string name, Type type, int rank, bool is_per_row = false);
  Id input(Input input);
  Id scalar(std::string name, Type type);
  Id constant(double value);   // a number, as Python's float
  Id constant(int64_t value);  // a number, as Python's int
  Id constant(bool value);
  Id constant(Type type, Level level, Value value);
  Id row();
  Id column();
  Id columns();
  // Converts `a` as x.to(type) does: with rounding to that type.
  Id cast(Id a, Type type);
  // Converts `a` without rounding it to 16 bits, unless the graph is exact and `a` no number.
  Id convert(Id a, Type type);
  // Applies an operation to as many arguments as it has; the others are kNone. Throws Error if a
  // type does not fit the rule, or if a reduction's operand does not vary along the row.
  Id apply(Op op, Id a, Id b = kNone, Id c = kNone);
  // Adds a node of another graph, with these arguments of this graph: nothing is converted. Inputs
  // and scalars have the numbers that they have there.
  Id copy(const Node& node, const std::array<Id, 3>& args);
  // Gives the node a name, for the text and for generated code, if it has none.
  void name(Id id, std::string_view name);
  // part: results that follow each other may be the parts of one tensor.
  void add_result(Id id, Output output, Part part = {});
  void add_result(Id id, Part part = {}) { add_result(id, Output::kOwn, part); }

  bool exact() const { return exact_; }
  // Returns whether the node rounds to its type, if that is float16 or bfloat16. In an exact graph
  // numbers that meet a tensor do not, as PyTorch multiplies and divides by them in float32.
  bool rounds(Id id) const;
  const Node& operator[](Id id) const { return nodes_[static_cast<size_t>(id)]; }
  Id size() const { return static_cast<Id>(nodes_.size()); }
  // Arguments come before the nodes that use them.
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<Input>& inputs() const { return inputs_; }
  const std::vector<Scalar>& scalars() const { return scalars_; }
  const std::vector<Id>& results() const { return results_; }
  // The part of a tensor that each result is.
  const std::vector<Part>& result_parts() const { return result_parts_; }
  // Returns how many tensors the results are.
  size_t num_outputs() const;
  Output output(size_t result) const { return outputs_[result]; }
  // Returns whether a result has a number for each column, before sums over rows.
  bool has_columns(size_t result) const;
  // Returns whether a result is summed over rows.
  bool has_sums() const;
  const std::map<Id, std::string>& names() const { return names_; }
  // Whether a row is computed as a whole: for a reduction, or because a result is the same in the
  // whole row, as an input is.
  bool has_reductions() const;

  // Returns the graph with only the nodes that its results need, in an order that depends on
  // nothing else: neither on that in which they were made, nor on which argument of a sum, product
  // or the like stood first. All inputs and scalars stay, so that their numbers do.
  Graph simplified() const;
  // Returns a text that is equal for graphs that compute the same in the same way, and different
  // for all others: names do not matter. For keys.
  std::string key() const;

 private:
  Id add(Node node);
  Id leaf(Op op, Type type, Level level, uint8_t extent, size_t index);
  Id convert(Op how, Id a, Type type);
  Id as_bool(Id a);
  Id simpler(Op op, Id a, Id b);

  bool exact_;
  std::vector<Node> nodes_;
  std::vector<Input> inputs_;
  std::vector<Scalar> scalars_;
  std::vector<Id> results_;
  std::vector<Output> outputs_;  // of the results
  std::vector<Part> result_parts_;
  std::map<Id, std::string> names_;
  std::map<std::string, Id> known_;  // by the text of the node
};

}  // namespace opdock::formula
