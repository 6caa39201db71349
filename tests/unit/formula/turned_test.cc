// Tests inputs whose neighbours in memory are in one column, such as transposed matrices: several
// rows of them are computed in parts.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tensors.h"

namespace opdock::formula {
namespace {

// Returns a tensor that is contiguous but for its last two dimensions, which are the wrong way
// round.
Tensor turned(Type type, std::vector<int64_t> shape) {
  const size_t last = shape.size() - 1;
  std::swap(shape[last], shape[last - 1]);
  std::vector<int64_t> strides = Tensor::contiguous(shape);
  std::swap(shape[last], shape[last - 1]);
  std::swap(strides[last], strides[last - 1]);
  return {type, shape, strides};
}

void put(Tensor* tensor, int64_t i, int64_t value) {
  const auto put_as = [&](auto as) { tensor->put(i, static_cast<decltype(as)>(value)); };
  switch (size_of(tensor->type)) {
    case 1:
      return put_as(int8_t{});
    case 2:
      return put_as(int16_t{});
    case 4:
      return tensor->type == Type::kFloat32 ? put_as(float{}) : put_as(int32_t{});
    default:
      return tensor->type == Type::kFloat64 ? put_as(double{}) : put_as(int64_t{});
  }
}

int64_t number_of(Tensor* tensor, int64_t i) {
  const Any value = tensor->get(i);
  return is_float(tensor->type) ? static_cast<int64_t>(value.real) : value.integer;
}

// x + y * scale, where x is turned and y is not, and x * 2, which is written over x.
void check(Type type, const std::vector<int64_t>& shape, int64_t parts) {
  Graph graph;
  const int rank = static_cast<int>(shape.size());
  const Id x = graph.input("x", type, rank), y = graph.input("y", type, rank);
  const Id scale = graph.input("scale", type, rank);
  graph.add_result(graph.apply(Op::kAdd, x, graph.apply(Op::kMul, y, scale)));
  graph.add_result(graph.apply(Op::kAdd, x, x));
  std::vector<int64_t> of_rows = shape;
  of_rows.back() = 1;
  Tensor a = turned(type, shape), b(type, shape), rows(type, of_rows), out(type, shape);
  for (int64_t i = 0; i < a.numel(); ++i) {
    put(&a, i, i % 31);
    put(&b, i, i % 7);
  }
  for (int64_t i = 0; i < rows.numel(); ++i) put(&rows, i, i % 5);
  run(graph, {&a, &b, &rows}, {&out, &a}, {}, parts);
  for (int64_t i = 0; i < a.numel(); ++i) {
    ASSERT_EQ(number_of(&out, i), i % 31 + i % 7 * (i / shape.back() % 5)) << i;
    ASSERT_EQ(number_of(&a, i), i % 31 * 2) << i;
  }
}

TEST(Turned, InputsAreReadInTiles) {
  for (const Type type :
       {Type::kInt8, Type::kInt16, Type::kInt32, Type::kFloat32, Type::kFloat64, Type::kInt64})
    for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{
             {2, 65}, {31, 256}, {33, 257}, {70, 700}, {3, 40, 300}, {2, 3, 5, 1100}, {1, 300}})
      for (const int64_t parts : {1, 3}) check(type, shape, parts);
}

// Parts that begin and end inside of a row.
TEST(Turned, LongRowsAreSeveralPieces) {
  for (const int64_t parts : {1, 4, 7}) check(Type::kFloat32, {5, 40000}, parts);
}

}  // namespace
}  // namespace opdock::formula
