// SPDX-License-Identifier: Apache-2.0
#include "formula/evaluate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "formula/evaluate_element.h"

namespace opdock::formula {
namespace {

using Shape = std::vector<int64_t>;

int64_t count(const Shape& shape) {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

std::string text_of(const Shape& shape) {
  std::string text = "[";
  for (const int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

// Returns the shape to which both are broadcast. `what` names them for the error.
Shape broadcast(const Shape& a, const Shape& b, const std::string& what) {
  Shape shape(std::max(a.size(), b.size()), 1);
  for (size_t i = 0; i < shape.size(); ++i) {
    const int64_t left = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t right = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (left != right && left != 1 && right != 1)
      throw Error(what + ": found the shapes " + text_of(a) + " and " + text_of(b) +
                  ", wanted shapes that can be broadcast: sizes equal, or one of them 1");
    shape[shape.size() - 1 - i] = left == 1 ? right : left;
  }
  return shape;
}

Array make_array(Type type, Shape shape) {
  Array array;
  array.type = type;
  const auto size = static_cast<size_t>(count(shape));
  (is_float(type) ? array.real.resize(size) : array.integer.resize(size));
  array.shape = std::move(shape);
  return array;
}

Value get(const Array& array, size_t place) {
  return is_float(array.type) ? Value{array.real[place], 0} : Value{0, array.integer[place]};
}

void set(Array* array, size_t place, const Value& value) {
  if (is_float(array->type))
    array->real[place] = value.real;
  else
    array->integer[place] = value.integer;
}

// Returns the place in an array of shape `from` of element `place` of the shape to which it is
// broadcast.
size_t source(const Shape& from, const Shape& to, size_t place) {
  size_t result = 0, stride = 1;
  for (size_t i = 0; i < to.size(); ++i) {
    const auto size = static_cast<size_t>(to[to.size() - 1 - i]);
    const size_t index = place % size;
    place /= size;
    if (i >= from.size()) break;
    const auto own = static_cast<size_t>(from[from.size() - 1 - i]);
    if (own != 1) result += index * stride;
    stride *= own;
  }
  return result;
}

// Returns the columns [begin, begin + columns) of an array.
Array columns_of(const Array& from, size_t begin, size_t columns) {
  Shape shape = from.shape;
  const auto all = static_cast<size_t>(shape.back());
  shape.back() = static_cast<int64_t>(columns);
  Array array = make_array(from.type, std::move(shape));
  for (size_t i = 0; i < array.real.size() + array.integer.size(); ++i)
    set(&array, i, get(from, i / columns * all + begin + i % columns));
  return array;
}

// Returns the parts of one tensor as a whole.
Array joined(const std::vector<Array>& parts) {
  Array whole = parts[0];
  const auto columns = static_cast<size_t>(whole.shape.back());
  whole.shape.back() *= static_cast<int64_t>(parts.size());
  whole = make_array(whole.type, whole.shape);
  for (size_t i = 0; i < whole.real.size() + whole.integer.size(); ++i) {
    const size_t row = i / columns / parts.size(), part = i / columns % parts.size();
    set(&whole, i, get(parts[part], row * columns + i % columns));
  }
  return whole;
}

// Returns an array of that shape in which each group of elements has the group's number.
Array grouped(const Array& numbers, const Shape& shape, const std::string& name) {
  const int64_t groups = count(numbers.shape), all = count(shape);
  if (groups == 0 ? all != 0 : all % groups != 0)
    throw Error(name + ": found " + std::to_string(groups) + " numbers, wanted one for each of " +
                "equal groups of the " + std::to_string(all) + " elements of the other tensors");
  Array array = make_array(numbers.type, shape);
  for (int64_t i = 0; i < all; ++i)
    set(&array, static_cast<size_t>(i), get(numbers, static_cast<size_t>(i / (all / groups))));
  return array;
}

Value reduce_floats(Op op, const double* row, size_t columns) {
  double sum = 0, product = 1;
  double largest = -std::numeric_limits<double>::infinity(), least = -largest;
  bool has_nan = false;
  for (size_t i = 0; i < columns; ++i) {
    sum += row[i];
    product *= row[i];
    has_nan = has_nan || std::isnan(row[i]);
    largest = std::max(largest, row[i]);
    least = std::min(least, row[i]);
  }
  const double nan = std::numeric_limits<double>::quiet_NaN();
  switch (op) {
    case Op::kSum:
      return {sum, 0};
    case Op::kMean:
      return {sum / static_cast<double>(columns), 0};
    case Op::kProd:
      return {product, 0};
    case Op::kAmax:
      return {has_nan ? nan : largest, 0};
    case Op::kAmin:
      return {has_nan ? nan : least, 0};
    case Op::kLogsumexp: {
      // The largest number is subtracted, so that no exponential overflows; an infinite one is not,
      // because the difference of two infinities is NaN.
      const double shift = std::isinf(largest) ? 0 : largest;
      double exponentials = 0;
      for (size_t i = 0; i < columns; ++i) exponentials += std::exp(row[i] - shift);
      return {shift + std::log(exponentials), 0};
    }
    default: {  // kArgmax, kArgmin
      const double wanted = op == Op::kArgmax ? largest : least;
      for (size_t i = 0; i < columns; ++i)
        if (has_nan ? std::isnan(row[i]) : row[i] == wanted) return {0, static_cast<int64_t>(i)};
      return {};
    }
  }
}

Value reduce_integers(Op op, const int64_t* row, size_t columns) {
  uint64_t sum = 0, product = 1;
  for (size_t i = 0; i < columns; ++i) {
    sum += static_cast<uint64_t>(row[i]);
    product *= static_cast<uint64_t>(row[i]);
  }
  const int64_t* const end = row + columns;
  const bool is_min = op == Op::kAmin || op == Op::kArgmin;
  switch (op) {
    case Op::kSum:
      return {0, static_cast<int64_t>(sum)};
    case Op::kProd:
      return {0, static_cast<int64_t>(product)};
    case Op::kAny:
      return {0, std::any_of(row, end, [](int64_t x) { return x != 0; }) ? 1 : 0};
    case Op::kAll:
      return {0, std::all_of(row, end, [](int64_t x) { return x != 0; }) ? 1 : 0};
    default: {  // kAmax, kAmin, kArgmax, kArgmin
      const int64_t* const found = is_min ? std::min_element(row, end) : std::max_element(row, end);
      const bool is_place = op == Op::kArgmax || op == Op::kArgmin;
      return {0, is_place ? found - row : *found};
    }
  }
}

class Evaluator {
 public:
  Evaluator(const Graph& graph, const std::vector<Array>& inputs,
            const std::vector<double>& scalars)
      : graph_(graph), inputs_(inputs), scalars_(scalars) {
    check();
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (graph_.inputs()[i].is_grouped)
        inputs_[i] = grouped(inputs_[i], space_, graph_.inputs()[i].name);
    if (!space_.empty()) rows_ = Shape(space_.begin(), space_.end() - 1);
    if (!space_.empty()) columns_ = space_.back();
  }

  std::vector<Array> run() {
    for (const Node& node : graph_.nodes()) values_.push_back(value_of(node));
    std::vector<Array> results;
    std::vector<Array> parts;
    for (size_t i = 0; i < graph_.results().size(); ++i) {
      const Id id = graph_.results()[i];
      const Array& value = values_[static_cast<size_t>(id)];
      const Part part = graph_.result_parts()[i];
      const Output output = graph_.output(i);
      const bool is_whole = output == Output::kWhole || output == Output::kColumnSums;
      // A part has all columns, also where they are the same.
      const bool has_columns = is_whole || (graph_[id].extent & kPerColumn) != 0 || part.parts > 1;
      // Arrays of values that are the same in the whole row have one column here, or no dimensions.
      Shape shape = space_;
      if (!has_columns && !shape.empty()) shape.back() = 1;
      Array result = make_array(value.type, shape);
      for (size_t place = 0; place < result.real.size() + result.integer.size(); ++place)
        set(&result, place, get(value, source(value.shape, shape, place)));
      if (!has_columns && !shape.empty()) result.shape.pop_back();
      parts.push_back(is_sum(output) ? summed(result, output) : std::move(result));
      if (part.part + 1 < part.parts) continue;
      results.push_back(part.parts == 1 ? std::move(parts[0]) : joined(parts));
      parts.clear();
    }
    return results;
  }

 private:
  void check() {
    const auto refuse = [](const std::string& found, const std::string& wanted) {
      throw Error("found " + found + ", wanted " + wanted);
    };
    const std::vector<Input>& known = graph_.inputs();
    if (inputs_.size() != known.size())
      refuse(std::to_string(inputs_.size()) + " tensors", std::to_string(known.size()));
    if (scalars_.size() != graph_.scalars().size())
      refuse(std::to_string(scalars_.size()) + " numbers", std::to_string(graph_.scalars().size()));
    for (size_t i = 0; i < inputs_.size(); ++i) {
      Array& array = inputs_[i];
      const std::string what = known[i].name + ": ";
      if (array.type != known[i].type)
        refuse(what + std::string(name_of(array.type)), std::string(name_of(known[i].type)));
      const size_t size = is_float(array.type) ? array.real.size() : array.integer.size();
      if (size != static_cast<size_t>(count(array.shape)))
        refuse(what + std::to_string(size) + " elements",
               "as many as the shape has: " + std::to_string(count(array.shape)));
      if (known[i].rank < 2 && array.shape.size() > static_cast<size_t>(known[i].rank))
        refuse(what + "the shape " + text_of(array.shape),
               "at most " + std::to_string(known[i].rank) + " dimensions");
      if (known[i].is_per_row && (array.shape.empty() || array.shape.back() != 1))
        refuse(what + "the shape " + text_of(array.shape), "a last dimension of size 1");
      if (known[i].is_grouped) continue;
      if (known[i].part.parts > 1) array = part_of(array, known[i]);
      space_ = broadcast(space_, array.shape, known[i].name + " and the tensors before it");
    }
  }

  static Array part_of(const Array& whole, const Input& input) {
    const Part part = input.part;
    if (whole.shape.empty() || whole.shape.back() % part.parts != 0)
      throw Error(input.name + ": found the shape " + text_of(whole.shape) +
                  ", wanted a last dimension that has " + std::to_string(part.parts) +
                  " equal parts");
    const auto columns = static_cast<size_t>(whole.shape.back() / part.parts);
    return columns_of(whole, part.part * columns, columns);
  }

  const Array& arg(const Node& node, size_t i) const {
    return values_[static_cast<size_t>(node.args[i])];
  }

  Array value_of(const Node& node) const {
    if (is_leaf(node.op)) return leaf(node);
    Array array = node.op == Op::kConvert || node.op == Op::kCast ? converted(node)
                  : is_reduction(node.op)                         ? reduced(node)
                                                                  : elementwise(node);
    if (graph_.exact()) {
      // A number that meets a tensor is rounded to the type that is computed with only, as PyTorch
      // multiplies and divides by it.
      const bool is_number = node.op == Op::kConvert && node.level == Level::kNumber;
      const Type type = is_number ? compute_type(node.type) : node.type;
      for (double& real : array.real) real = round_element(type, real);
    }
    return array;
  }

  // Leaves are given, and not rounded: a constant may have more digits than its type.
  Array leaf(const Node& node) const {
    if (node.op == Op::kInput) return inputs_[node.index];
    Array array = make_array(node.type, shape_of_leaf(node.op));
    for (size_t i = 0; i < array.real.size() + array.integer.size(); ++i) {
      Value value = node.value;
      if (node.op == Op::kScalar)
        value = convert_element({scalars_[node.index], 0}, Type::kFloat64, node.type);
      if (node.op == Op::kRow || node.op == Op::kColumn) value.integer = static_cast<int64_t>(i);
      if (node.op == Op::kColumns) value.integer = columns_;
      set(&array, i, value);
    }
    return array;
  }

  Shape shape_of_leaf(Op op) const {
    Shape shape;
    if (op == Op::kColumn && !space_.empty()) shape = {columns_};
    if (op == Op::kRow && !space_.empty()) {
      shape = rows_;
      shape.push_back(1);
    }
    return shape;
  }

  // A conversion that the formula asks for rounds to a narrower float. To float32 only what was
  // float64: the others are float32 in a kernel, and this evaluation shall not add to its errors.
  Array converted(const Node& node) const {
    const Array& from = arg(node, 0);
    Array array = make_array(node.type, from.shape);
    const bool rounds = node.op == Op::kCast && is_float(node.type) &&
                        (compute_type(node.type) != node.type || from.type == Type::kFloat64);
    for (size_t i = 0; i < from.real.size() + from.integer.size(); ++i) {
      Value value = convert_element(get(from, i), from.type, node.type);
      if (rounds) value.real = round_element(node.type, value.real);
      set(&array, i, value);
    }
    return array;
  }

  Array elementwise(const Node& node) const {
    const auto arguments = static_cast<size_t>(operation(node.op).arguments);
    Shape shape;
    for (size_t i = 0; i < arguments; ++i)
      shape = broadcast(shape, arg(node, i).shape, std::string(operation(node.op).name));
    Array array = make_array(node.type, shape);
    // The operands of all operations are of one type, except the condition of where.
    const Type operands = arg(node, arguments - 1).type;
    std::array<Value, 3> values;
    for (size_t place = 0; place < array.real.size() + array.integer.size(); ++place) {
      for (size_t i = 0; i < arguments; ++i)
        values[i] = get(arg(node, i), source(arg(node, i).shape, shape, place));
      set(&array, place, evaluate_element(node.op, node.type, operands, values));
    }
    return array;
  }

  // Adds up the numbers of each column, or all of them.
  Array summed(const Array& all, Output output) const {
    const bool is_total = output == Output::kTotal || space_.empty();
    Array sums = make_array(all.type, is_total ? Shape{} : Shape{columns_});
    for (size_t i = 0; i < all.real.size(); ++i)
      sums.real[is_total ? 0 : i % static_cast<size_t>(columns_)] += all.real[i];
    return sums;
  }

  Array reduced(const Node& node) const {
    const Array& from = arg(node, 0);
    const std::string what(operation(node.op).name);
    Shape shape = from.shape;
    const int64_t found = shape.empty() ? 1 : shape.back();
    if (found != columns_)
      throw Error(
          what + ": found an argument with " + std::to_string(found) +
          " columns, wanted as many as the other tensors have: " + std::to_string(columns_));
    const bool is_choice = node.op == Op::kAmax || node.op == Op::kAmin || node.op == Op::kArgmax ||
                           node.op == Op::kArgmin;
    if (columns_ == 0 && is_choice)
      throw Error(what + ": found a row without elements, wanted at least one");
    if (!shape.empty()) shape.back() = 1;
    Array array = make_array(node.type, shape);
    const auto columns = static_cast<size_t>(columns_);
    for (size_t row = 0; row < array.real.size() + array.integer.size(); ++row) {
      const Value value =
          is_float(from.type)
              ? reduce_floats(node.op, from.real.data() + row * columns, columns)
              : reduce_integers(node.op, from.integer.data() + row * columns, columns);
      set(&array, row, {value.real, wrap_element(node.type, value.integer)});
    }
    return array;
  }

  const Graph& graph_;
  std::vector<Array> inputs_;
  const std::vector<double>& scalars_;
  Shape space_, rows_;
  int64_t columns_ = 1;
  std::vector<Array> values_;
};

}  // namespace

std::vector<Array> evaluate(const Graph& graph, const std::vector<Array>& inputs,
                            const std::vector<double>& scalars) {
  return Evaluator(graph, inputs, scalars).run();
}

}  // namespace opdock::formula
