// Tests the index space of a call: each element's address against plain index arithmetic, and the
// errors of shapes that do not fit.
// SPDX-License-Identifier: Apache-2.0
#include "formula/space.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <string>

namespace opdock::formula {
namespace {

using Shape = std::vector<int64_t>;

struct View {
  Shape shape, strides;
  Operand operand() const {
    return {nullptr, static_cast<int>(shape.size()), shape.data(), strides.data()};
  }
  // The offset of an element of `full`, to which the view is broadcast from the right.
  int64_t offset(const Shape& full, const Shape& index) const {
    int64_t at = 0;
    for (size_t d = 0; d < shape.size(); ++d) {
      const size_t own = full.size() - shape.size() + d;
      if (shape[d] != 1) at += index[own] * strides[d];
    }
    return at;
  }
};

// Calls body(index) for all elements of a shape.
template <class Body>
void for_each(const Shape& shape, const Body& body) {
  for (const int64_t size : shape)
    if (size == 0) return;
  Shape index(shape.size());
  for (;;) {
    body(index);
    size_t d = shape.size();
    while (d > 0 && ++index[d - 1] == shape[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}

// Returns the offsets of all tensors for each element of the space, in its order.
std::vector<Shape> offsets_of(const Space& space) {
  std::vector<Shape> all;
  Shape sizes(space.size.begin(), space.size.begin() + space.ndim);
  sizes.push_back(space.columns);
  for_each(sizes, [&](const Shape& index) {
    Shape at;
    for (const auto* list : {&space.inputs, &space.results})
      for (const Steps& steps : *list) {
        int64_t offset = index.back() * steps.column;
        for (size_t d = 0; d + 1 < index.size(); ++d) offset += index[d] * steps.stride[d];
        at.push_back(offset);
      }
    all.push_back(at);
  });
  return all;
}

class Spaces : public ::testing::Test {
 protected:
  int64_t pick(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  Shape strides(const Shape& shape) {
    // Contiguous in a random order of the dimensions, some of them reversed, repeated or with gaps.
    std::vector<size_t> order(shape.size());
    std::iota(order.begin(), order.end(), size_t{0});
    if (pick(2)) std::shuffle(order.begin(), order.end(), random_);
    Shape strides(shape.size());
    int64_t step = 1;
    for (size_t k = shape.size(); k-- > 0; step *= std::max<int64_t>(shape[order[k]], 1)) {
      const int64_t way = pick(8);
      strides[order[k]] = way == 0 ? -step : way == 1 ? 0 : step;
      if (way == 2) step *= 2;
    }
    return strides;
  }
  // A shape that can be broadcast to this one.
  Shape narrower(const Shape& shape) {
    Shape own(shape.begin() + static_cast<std::ptrdiff_t>(
                                  pick(2) ? 0 : pick(static_cast<int64_t>(shape.size()) + 1)),
              shape.end());
    for (int64_t& size : own)
      if (pick(4) == 0) size = 1;
    return own;
  }
  std::mt19937 random_{1};
};

TEST_F(Spaces, HaveTheAddressesOfPlainIndices) {
  for (int round = 0; round < 3000; ++round) {
    Shape shape(static_cast<size_t>(pick(6)));
    for (int64_t& size : shape) size = pick(8) == 0 ? pick(2) : 1 + pick(4);
    const bool reduces = pick(3) == 0 && !shape.empty();
    const bool counts = pick(4) == 0;
    Graph graph;
    std::vector<View> views;
    const int64_t inputs = 1 + pick(3);
    Id sum = kNone;
    for (int64_t i = 0; i < inputs; ++i) {
      View view;
      view.shape = i == 0 ? shape : narrower(shape);
      view.strides = strides(view.shape);
      views.push_back(view);
      const Id id =
          graph.input("x" + std::to_string(i), Type::kFloat32, static_cast<int>(view.shape.size()));
      sum = sum == kNone ? id : graph.apply(Op::kAdd, sum, id);
    }
    if (counts) sum = graph.apply(Op::kAdd, sum, graph.column());
    graph.add_result(sum);
    if (reduces) graph.add_result(graph.apply(Op::kSum, 0));
    std::vector<Operand> in, out;
    for (const View& view : views) in.push_back(view.operand());
    ASSERT_EQ(broadcast_shape(graph, in), shape);
    std::vector<View> results;
    for (size_t r = 0; r < graph.results().size(); ++r) {
      View view;
      view.shape = result_shape(graph, r, shape);
      view.strides = strides(view.shape);
      results.push_back(view);
    }
    ASSERT_EQ(results[0].shape, shape);
    if (reduces) {
      ASSERT_EQ(results[1].shape, Shape(shape.begin(), shape.end() - 1));
    }
    for (const View& view : results) out.push_back(view.operand());
    const Space space = make_space(graph, in, out);

    std::vector<Shape> want;
    for_each(shape, [&](const Shape& index) {
      Shape at;
      for (const View& view : views) at.push_back(view.offset(shape, index));
      for (const View& view : results) {
        // One without columns is the same in the whole row.
        const bool has_columns = view.shape.size() == shape.size();
        at.push_back(has_columns ? view.offset(shape, index)
                                 : view.offset(view.shape, Shape(index.begin(), index.end() - 1)));
      }
      want.push_back(at);
    });
    std::vector<Shape> got = offsets_of(space);
    ASSERT_EQ(space.elements(), static_cast<int64_t>(want.size()));
    if (reduces || counts) {
      ASSERT_EQ(space.columns, shape.empty() ? 1 : shape.back());
    } else {
      // The order is free.
      std::sort(got.begin(), got.end());
      std::sort(want.begin(), want.end());
    }
    ASSERT_EQ(got, want) << "round " << round;
  }
}

TEST_F(Spaces, OfContiguousTensorsAreOneRow) {
  Graph graph;
  graph.add_result(graph.apply(Op::kExp, graph.input("x", Type::kFloat32, 3)));
  const View view{{2, 3, 4}, {12, 4, 1}}, turned{{2, 3, 4}, {1, 2, 6}};
  const Space space = make_space(graph, {view.operand()}, {view.operand()});
  EXPECT_EQ(space.columns, 24);
  EXPECT_EQ(space.rows, 1);
  EXPECT_EQ(space.inputs[0].column, 1);
  const Space other = make_space(graph, {turned.operand()}, {turned.operand()});
  EXPECT_EQ(other.columns, 24);
  EXPECT_EQ(other.results[0].column, 1);
}

TEST_F(Spaces, MayHaveSixteenDimensions) {
  Graph graph;
  graph.add_result(graph.apply(Op::kExp, graph.input("x", Type::kFloat32, 16)));
  View view;
  view.shape.assign(16, 2);
  // Every other dimension is reversed, so that none can be merged.
  for (int d = 15; d >= 0; --d)
    view.strides.insert(view.strides.begin(), (d % 2 ? 1 : -1) * (int64_t{1} << (15 - d)));
  const Space space = make_space(graph, {view.operand()}, {view.operand()});
  EXPECT_EQ(space.elements(), 1 << 16);
  std::set<int64_t> all;
  for (const Shape& at : offsets_of(space)) all.insert(at[0]);
  EXPECT_EQ(all.size(), size_t{1} << 16);
}

std::string error_of(const Graph& graph, const std::vector<View>& views) {
  std::vector<Operand> in;
  for (const View& view : views) in.push_back(view.operand());
  try {
    (void)make_space(graph, in, {});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Errors, NameTheInputsAndTheirShapes) {
  Graph graph;
  const Id a = graph.input("left", Type::kFloat32, 2), b = graph.input("right", Type::kFloat32, 1);
  const Id c = graph.input("third", Type::kFloat32, 3);
  graph.add_result(graph.apply(Op::kAdd, graph.apply(Op::kAdd, a, b), c));
  EXPECT_EQ(
      error_of(graph, {{{2, 3}, {3, 1}}, {{4}, {1}}, {{1, 1, 1}, {1, 1, 1}}}),
      "\"right\": found the shape [4], wanted one that can be broadcast with [2, 3] of \"left\"");
  // The first input fits; the second is the one that the third does not fit.
  EXPECT_EQ(error_of(graph, {{{1, 1}, {1, 1}}, {{4}, {1}}, {{2, 2, 3}, {6, 3, 1}}}),
            "\"third\": found the shape [2, 2, 3], wanted one that can be broadcast with [4] of "
            "\"right\"");
  View deep;
  deep.shape.assign(17, 1);
  deep.strides.assign(17, 1);
  EXPECT_EQ(error_of(graph, {{{2, 3}, {3, 1}}, {{3}, {1}}, deep}),
            "\"third\": found 17 dimensions, wanted at most 16");
}

TEST(Errors, NameTheReductionOfARepeatedColumn) {
  Graph graph;
  const Id x = graph.input("x", Type::kFloat32, 2), y = graph.input("y", Type::kFloat32, 2);
  graph.add_result(graph.apply(Op::kAdd, graph.apply(Op::kSum, x), y));
  EXPECT_EQ(error_of(graph, {{{2, 3}, {3, 1}}, {{2, 3}, {3, 1}}}), "");
  EXPECT_NE(error_of(graph, {{{2, 1}, {1, 1}}, {{2, 3}, {3, 1}}})
                .find("sum: found an argument with 1 column, wanted one with the 3 columns"),
            std::string::npos);
}

}  // namespace
}  // namespace opdock::formula
