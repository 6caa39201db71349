// Tests the interpreter: each operation, type and layout against oracle.h, reductions, conversions,
// results in the memory of inputs, and shares of the work.
// SPDX-License-Identifier: Apache-2.0
#include "formula/interpreter.h"

#include <gtest/gtest.h>

#include <numeric>

#include "oracle.h"
#include "tensors.h"

namespace opdock::formula {
namespace {

constexpr Type kTypes[] = {Type::kBool,    Type::kUint8,  Type::kInt8,    Type::kInt16,
                           Type::kInt32,   Type::kInt64,  Type::kFloat16, Type::kBfloat16,
                           Type::kFloat32, Type::kFloat64};

// A shape, and the strides of up to three inputs and the result, of which missing ones are
// contiguous.
struct Form {
  const char* name;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides[4];
};
const Form kForms[] = {
    {"one", {1}, {}},
    {"short", {7}, {}},
    {"long", {1100}, {}},
    {"steps", {3, 700}, {{1400, 2}, {-700, -1}, {0, 1}, {2100, 3}}},
    {"rows", {5, 130}, {{1, 5}, {130, 1}, {1, 0}, {131, 1}}},
    {"narrow", {301, 3}, {{4, 1}, {0, 1}, {3, 1}, {1, 301}}},
    {"many", {2, 3, 4, 5}, {{60, 20, 1, 4}, {1, 2, 6, 24}, {0, 5, 0, 1}, {-60, 20, 5, -1}}},
};

Tensor make(Type type, const Form& form, size_t i) {
  return form.strides[i].empty() ? Tensor(type, form.shape)
                                 : Tensor(type, form.shape, form.strides[i]);
}

int64_t wrapped(Type type, Wide value) {
  const auto low = static_cast<int64_t>(static_cast<UnsignedWide>(value));
  switch (type) {
    case Type::kUint8:
      return static_cast<uint8_t>(low);
    case Type::kInt8:
      return static_cast<int8_t>(low);
    case Type::kInt16:
      return static_cast<int16_t>(low);
    case Type::kInt32:
      return static_cast<int32_t>(low);
    default:
      return low;
  }
}

// The units in the last place that a result may be off, before it is rounded.
long double tolerance(const Operation& operation, Type type, Real argument, Real want) {
  // The errors of float32 below are up to a hundredth of a unit in 16 bits.
  const bool is_gelu = operation.name == "gelu" || operation.name == "gelu_tanh";
  if (type == Type::kFloat16 || type == Type::kBfloat16) return is_gelu ? 0.52L : 0.502L;
  // Factors below the smallest normal number have lost digits.
  long double all = std::fabs(want) < (type == Type::kFloat32 ? 2e-38L : 1e-307L) ? 64 : 4;
  // Negative numbers have the polynomial's error, and that of 1/2 - x N(x^2) at the border.
  if (operation.name == "gelu" && argument < 0) return type == Type::kFloat32 ? 32 : 16;
  // The exponent of the power is rounded.
  if (operation.name == "gelu_tanh" && std::isfinite(argument))
    return all + 3 * std::fabs(argument) * (1.6L + 0.072L * argument * argument);
  if (operation.name == "sigmoid" || operation.name == "silu") return all;
  if (type == Type::kFloat32)
    return operation.rule == Rule::kArithmetic && operation.name != "pow" ? 1 : 2;
  // The result is the difference of numbers as large as the arguments.
  if (operation.name == "logaddexp" && std::isfinite(argument / want))
    return all + 4 * std::fabs(argument / want);
  return all;
}

void check_operation(Op op, Type type, const Form& form, std::mt19937* random) {
  const Operation& what = operation(op);
  Graph graph;
  std::array<Id, 3> args = {kNone, kNone, kNone};
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < static_cast<size_t>(what.arguments); ++i) {
    const Type own = op == Op::kWhere && i == 0 ? Type::kBool : type;
    args[i] = graph.input(std::string(1, static_cast<char>('a' + i)), own,
                          static_cast<int>(form.shape.size()));
    inputs.push_back(make(own, form, i));
    randomize(&inputs.back(), random);
  }
  Id id;
  try {
    id = graph.apply(op, args[0], args[1], args[2]);
  } catch (const Error&) {
    return;  // no operation on this type
  }
  graph.add_result(id);
  Tensor result = make(graph[id].type, form, 3);
  std::vector<Tensor*> from;
  for (Tensor& input : inputs) from.push_back(&input);
  run(graph, from, {&result}, {}, form.shape[0] % 3 + 1);
  for (int64_t i = 0; i < result.numel(); ++i) {
    Any x[3];
    for (size_t k = 0; k < inputs.size(); ++k) x[k] = inputs[k].get(i);
    const Any got = result.get(i);
    const auto text = [&] {
      std::string all = std::string(what.name) + " " + std::string(name_of(type)) + " " +
                        form.name + " at " + std::to_string(i) + ":";
      for (const Any& one : x)
        all += " " + (is_float(type) ? std::to_string(one.real) : std::to_string(one.integer));
      return all;
    };
    if (result.type == Type::kBool) {
      bool want = is_float(type) ? exact_bool(what.name, x[0].real, x[1].real)
                                 : exact_bool(what.name, x[0].integer, x[1].integer);
      if (op == Op::kWhere) want = x[0].integer != 0 ? x[1].integer != 0 : x[2].integer != 0;
      ASSERT_EQ(got.integer != 0, want) << text();
      ASSERT_LE(*result.at(i), 1) << text();
    } else if (is_float(result.type)) {
      Real y[3];
      for (int k = 0; k < 3; ++k)
        y[k] = is_float(type) && !(op == Op::kWhere && k == 0)
                   ? x[k].real
                   : static_cast<Real>(static_cast<float>(x[k].integer));
      const Real want = real_oracles().at(what.name)(y[0], y[1], y[2]);
      ASSERT_LE(distance(result.type, got.real, want), tolerance(what, result.type, y[0], want))
          << text() << " got " << got.real << " want " << want;
    } else {
      const Wide want = integer_oracles().at(what.name)(x[0].integer, x[1].integer, x[2].integer,
                                                        8 * size_of(type));
      ASSERT_EQ(got.integer, wrapped(type, want)) << text();
    }
  }
}

TEST(Operations, AreThoseOfTheOracle) {
  std::mt19937 random(1);
  for (int op = static_cast<int>(Op::kCast) + 1; op < static_cast<int>(Op::kSum); ++op)
    for (const Type type : kTypes)
      for (const Form& form : kForms) {
        check_operation(static_cast<Op>(op), type, form, &random);
        if (HasFatalFailure()) return;
      }
}

// Float32 functions, at many numbers: the largest error of each.
TEST(Operations, OfFloat32AreAsAccurateAsStated) {
  constexpr int64_t kCount = 1 << 17;
  std::mt19937 random(2);
  for (int op = static_cast<int>(Op::kCast) + 1; op < static_cast<int>(Op::kSum); ++op) {
    const Operation& what = operation(static_cast<Op>(op));
    if (what.rule != Rule::kFloat || what.arguments != 1) continue;
    Graph graph;
    const Id x = graph.input("x", Type::kFloat32, 1);
    graph.add_result(graph.apply(static_cast<Op>(op), x));
    Tensor from(Type::kFloat32, {kCount}), to(Type::kFloat32, {kCount});
    std::uniform_real_distribution<float> near(-110, 110), unit(-1, 1);
    for (int64_t i = 0; i < kCount; ++i) {
      const auto bits = static_cast<uint32_t>(random());
      float any;
      std::memcpy(&any, &bits, sizeof any);
      from.put(i, i % 3 == 0 ? any : i % 3 == 1 ? near(random) : unit(random));
    }
    run(graph, {&from}, {&to});
    long double most = 0;  // of what is allowed
    Real at = 0;
    for (int64_t i = 0; i < kCount; ++i) {
      const Real value = from.get(i).real, want = real_oracles().at(what.name)(value, 0, 0);
      const long double off = distance(Type::kFloat32, to.get(i).real, want) /
                              tolerance(what, Type::kFloat32, value, want);
      if (off > most) at = value;
      most = std::max(most, off);
    }
    EXPECT_LE(most, 1) << what.name << " at " << at;
  }
}

// The reduction of a row, in long double; NaN and the first index as in PyTorch.
Any reduce(Op op, const std::vector<Any>& row, bool is_real) {
  Any all;
  long double total = op == Op::kProd ? 1 : 0, best = 0;
  uint64_t integer = op == Op::kProd ? 1 : 0;
  int64_t index = -1, any = 0, every = 1;
  const bool is_least = op == Op::kAmin || op == Op::kArgmin;
  for (size_t i = 0; i < row.size(); ++i) {
    const long double real = is_real ? row[i].real : static_cast<long double>(row[i].integer);
    const auto whole = static_cast<uint64_t>(row[i].integer);
    total = op == Op::kProd ? total * real : total + real;
    integer = op == Op::kProd ? integer * whole : integer + whole;
    any |= real != 0;
    every &= real != 0;
    const bool is_better = is_least ? real < best : real > best;
    if (index < 0 || (!std::isnan(best) && (is_better || std::isnan(real)))) {
      best = real;
      index = static_cast<int64_t>(i);
    }
  }
  switch (op) {
    case Op::kMean:
      return {total / static_cast<long double>(row.size()), 0};
    case Op::kAmax:
    case Op::kAmin:
      return {best, static_cast<int64_t>(is_real ? 0 : best)};
    case Op::kArgmax:
    case Op::kArgmin:
      return {0, index};
    case Op::kAny:
      return {0, any};
    case Op::kAll:
      return {0, every};
    case Op::kLogsumexp: {
      if (std::isinf(best) && best > 0) return {best, 0};
      long double sum = 0;
      for (const Any& one : row) sum += std::exp(one.real - best);
      return {std::isinf(best) ? best : best + std::log(sum), 0};
    }
    default:
      return {total, static_cast<int64_t>(integer)};
  }
}

TEST(Reductions, AreThoseOfTheOracle) {
  std::mt19937 random(3);
  for (int i = static_cast<int>(Op::kSum); i <= static_cast<int>(Op::kAll); ++i) {
    const Op op = static_cast<Op>(i);
    for (const Type type : kTypes) {
      for (const int64_t columns : {1, 5, 16, 100, 1024, 5003}) {
        for (const bool plain : {true, false}) {
          for (const bool transposed : {true, false}) {
            Graph graph;
            const Id x = graph.input("x", type, 2);
            try {
              graph.add_result(graph.apply(op, x));
            } catch (const Error&) {
              continue;
            }
            constexpr int64_t kRows = 3;
            Tensor from(
                type, {kRows, columns},
                transposed ? std::vector<int64_t>{1, kRows} : std::vector<int64_t>{columns, 1});
            randomize(&from, &random, plain);
            // Products stay finite only for numbers near 1.
            if (op == Op::kProd && type == Type::kFloat32)
              for (int64_t k = 0; k < from.numel(); ++k)
                from.put(k, 1 + static_cast<float>(random() % 1000) * 1e-6f);
            Tensor to(graph[graph.results()[0]].type, {kRows});
            run(graph, {&from}, {&to}, {}, 2);
            for (int64_t r = 0; r < kRows; ++r) {
              std::vector<Any> row;
              long double sum = 0;
              for (int64_t c = 0; c < columns; ++c) {
                row.push_back(from.get(r * columns + c));
                sum += std::fabs(row.back().real);
              }
              const Any want = reduce(op, row, is_float(type)), got = to.get(r);
              const std::string text = std::string(operation(op).name) + " of " +
                                       std::string(name_of(type)) + ", " + std::to_string(columns) +
                                       " columns";
              if (!is_float(to.type)) {
                ASSERT_EQ(got.integer, want.integer) << text;
                continue;
              }
              if (op == Op::kProd && type != Type::kFloat32) continue;  // of any size
              // Sums of numbers of both signs are as accurate as their magnitudes' sum.
              const bool is_sum = op == Op::kSum || op == Op::kMean;
              long double unit = ulp(compute_type(type), is_sum ? sum : 0) * 8;
              if (op == Op::kMean) unit /= static_cast<long double>(columns);
              if (std::isfinite(want.real) && std::isfinite(sum) &&
                  std::fabs(sum) < largest(compute_type(type)) / 2 && is_sum) {
                if (std::fabs(want.real) > largest(to.type)) continue;
                ASSERT_LE(std::fabs(got.real - want.real), unit + 0.502L * ulp(to.type, want.real))
                    << text;
              } else if (!is_sum) {
                ASSERT_LE(distance(to.type, got.real, want.real), 4)
                    << text << " got " << got.real << " want " << want.real;
              } else if (std::isnan(want.real)) {
                ASSERT_TRUE(std::isnan(got.real)) << text;
              }
            }
          }
        }
      }
    }
  }
}

TEST(Reductions, OfLongRowsLoseNoDigits) {
  constexpr int64_t kColumns = 1 << 20;
  Graph graph;
  graph.add_result(graph.apply(Op::kSum, graph.input("x", Type::kFloat32, 1)));
  Tensor from(Type::kFloat32, {kColumns}), to(Type::kFloat32, std::vector<int64_t>{});
  for (int64_t i = 0; i < kColumns; ++i) from.put(i, 0.1f);
  run(graph, {&from}, {&to});
  EXPECT_NEAR(static_cast<double>(to.get(0).real), 0.1f * double(kColumns),
              0.0235);  // 3 units in the last place
}

// exp(x - max) is needed by the second and the third pass.
Graph softmax(Type type) {
  Graph graph;
  const Id x = graph.input("x", type, 2);
  const Id power = graph.apply(Op::kExp, graph.apply(Op::kSub, x, graph.apply(Op::kAmax, x)));
  graph.add_result(graph.apply(Op::kDiv, power, graph.apply(Op::kSum, power)));
  return graph;
}

// Short rows keep their powers, and long ones compute them again. The difference from the maximum,
// up to 8, is rounded, which is worth 4 units in the last place of its power.
TEST(Reductions, SoftmaxInPlace) {
  std::mt19937 random(4);
  for (const Type type : {Type::kFloat32, Type::kFloat16, Type::kFloat64})
    for (const int64_t columns : {1, 3, 17, 1000, 1024, 5000, 100000}) {
      Tensor x(type, {2, columns});
      randomize(&x, &random, true);
      std::vector<long double> want;
      for (int64_t r = 0; r < 2; ++r) {
        long double sum = 0;
        for (int64_t c = 0; c < columns; ++c) sum += std::exp(x.get(r * columns + c).real);
        for (int64_t c = 0; c < columns; ++c)
          want.push_back(std::exp(x.get(r * columns + c).real) / sum);
      }
      run(softmax(type), {&x}, {&x}, {}, 2);
      for (size_t i = 0; i < want.size(); ++i)
        ASSERT_LE(distance(type, x.get(static_cast<int64_t>(i)).real, want[i]), 4 + 5) << columns;
    }
}

// Two results swap the memory of their inputs, and one of them is an input.
TEST(Results, MayBeTheMemoryOfInputs) {
  for (const int64_t count : {1, 16, 1024, 3000, 40000}) {
    Graph graph;
    const Id x = graph.input("x", Type::kFloat32, 1), y = graph.input("y", Type::kFloat32, 1);
    graph.add_result(graph.apply(Op::kAdd, graph.apply(Op::kMul, x, y), x));
    graph.add_result(x);
    Tensor a(Type::kFloat32, {count}), b(Type::kFloat32, {count});
    for (int64_t i = 0; i < count; ++i) {
      a.put(i, static_cast<float>(i));
      b.put(i, static_cast<float>(i % 7));
    }
    run(graph, {&a, &b}, {&a, &b}, {}, 2);
    for (int64_t i = 0; i < count; ++i) {
      const auto old = static_cast<float>(i), factor = static_cast<float>(i % 7);
      ASSERT_EQ(static_cast<float>(a.get(i).real), old * factor + old) << i;
      ASSERT_EQ(static_cast<float>(b.get(i).real), old) << i;
    }
  }
}

TEST(Conversions, AreThoseOfTheTypes) {
  std::mt19937 random(5);
  for (const Type from : kTypes)
    for (const Type to : kTypes)
      for (const Form& form : kForms) {
        Graph graph;
        const Id x = graph.input("x", from, static_cast<int>(form.shape.size()));
        graph.add_result(graph.cast(x, to));
        Tensor in = make(from, form, 0), out = make(to, form, 3);
        randomize(&in, &random);
        run(graph, {&in}, {&out});
        for (int64_t i = 0; i < in.numel(); ++i) {
          const Any value = in.get(i), got = out.get(i);
          const std::string text = std::string(name_of(from)) + " to " + std::string(name_of(to));
          const long double real =
              is_float(from) ? value.real : static_cast<long double>(value.integer);
          if (is_float(to)) {
            ASSERT_LE(distance(to, got.real, real), 0.502L) << text << real;
          } else if (to == Type::kBool) {
            ASSERT_EQ(got.integer, real != 0) << text << real;
          } else if (is_float(from) && !(std::fabs(real) < 0x1p62L)) {
            continue;
          } else {
            const auto whole = is_float(from) ? static_cast<int64_t>(real) : value.integer;
            ASSERT_EQ(got.integer, wrapped(to, whole)) << text << real;
          }
        }
      }
}

// NaNs whose digits are all below those of the 16-bit types, or all 1.
TEST(Conversions, KeepNan) {
  for (const Type to : {Type::kFloat16, Type::kBfloat16, Type::kFloat64, Type::kBool}) {
    Graph graph;
    graph.add_result(graph.cast(graph.input("x", Type::kFloat32, 1), to));
    Tensor in(Type::kFloat32, {37}), out(to, {37});
    for (int64_t i = 0; i < 37; ++i) in.put(i, i % 2 ? 0x7f800001u : 0xffffffffu);
    run(graph, {&in}, {&out});
    for (int64_t i = 0; i < 37; ++i)
      ASSERT_TRUE(to == Type::kBool ? out.get(i).integer == 1 : std::isnan(out.get(i).real))
          << name_of(to) << " at " << i;
  }
}

// Integers as numbers are exact, and rows, columns and their count are those of the call.
TEST(Numbers, OfTheCallAreExact) {
  Graph graph;
  const Id x = graph.input("x", Type::kInt64, 2), n = graph.scalar("n", Type::kInt64);
  const Id place =
      graph.apply(Op::kAdd, graph.apply(Op::kMul, graph.row(), graph.columns()), graph.column());
  graph.add_result(graph.apply(Op::kAdd, graph.apply(Op::kAdd, x, n), place));
  const Id s = graph.scalar("s", Type::kFloat64);
  graph.add_result(graph.apply(Op::kMul, graph.input("y", Type::kFloat32, 2), s));
  for (const int64_t columns : {1, 3, 700, 40000}) {
    Tensor a(Type::kInt64, {3, columns}), b(Type::kFloat32, {3, columns});
    Tensor c(Type::kInt64, {3, columns}), d(Type::kFloat32, {3, columns});
    for (int64_t i = 0; i < a.numel(); ++i) {
      a.put(i, i * 1000003);
      b.put(i, static_cast<float>(i));
    }
    run(graph, {&a, &b}, {&c, &d}, {{0, (int64_t{1} << 53) + 1}, {0.1, 0}}, 3);
    for (int64_t i = 0; i < a.numel(); ++i) {
      ASSERT_EQ(c.get(i).integer, i * 1000003 + (int64_t{1} << 53) + 1 + i) << columns;
      ASSERT_EQ(static_cast<float>(d.get(i).real), static_cast<float>(i) * 0.1f) << columns;
    }
  }
}

// 1 + 2^-12 is no float16: an exact graph rounds it to 1 before it subtracts 1.
TEST(ExactGraphs, RoundEachNode) {
  for (const bool exact : {false, true}) {
    Graph graph(exact);
    const Id x = graph.input("x", Type::kFloat16, 1);
    const Id one = graph.constant(Type::kFloat16, Level::kTensor, {1, 0});
    graph.add_result(graph.apply(Op::kSub, graph.apply(Op::kAdd, x, one), one));
    Tensor from(Type::kFloat16, {40}), to(Type::kFloat16, {40});
    for (int64_t i = 0; i < 40; ++i) from.put(i, uint16_t{0x0c00});  // 2^-12
    run(graph, {&from}, {&to});
    EXPECT_EQ(static_cast<double>(to.get(39).real), exact ? 0 : 0x1p-12);
  }
}

// 3 * 0.1 rounds to another float16 than 3 times what 0.1 is as a float16.
TEST(ExactGraphs, DoNotRoundNumbersThatMeetATensor) {
  for (const bool is_scalar : {false, true}) {
    Graph graph(true);
    const Id x = graph.input("x", Type::kFloat16, 1);
    const Id number = is_scalar ? graph.scalar("a", Type::kFloat64) : graph.constant(0.1);
    graph.add_result(graph.apply(Op::kMul, x, number));
    // A chosen number is rounded.
    const Id least = graph.apply(Op::kMinimum, x, number);
    graph.add_result(graph.apply(Op::kMul, x, least));
    const Id chosen = graph.apply(Op::kWhere, graph.apply(Op::kLess, x, number), x, number);
    graph.add_result(graph.apply(Op::kMul, x, chosen));
    Tensor from(Type::kFloat16, {40}), product(Type::kFloat16, {40});
    Tensor of_least(Type::kFloat16, {40}), of_chosen(Type::kFloat16, {40});
    for (int64_t i = 0; i < 40; ++i) from.put(i, uint16_t{0x4200});  // 3
    run(graph, {&from}, {&product, &of_least, &of_chosen}, {{0.1, 0}});
    EXPECT_EQ(static_cast<double>(product.get(39).real), 0.300048828125);
    EXPECT_EQ(static_cast<double>(of_least.get(39).real), 0.2998046875);
    EXPECT_EQ(static_cast<double>(of_chosen.get(39).real), 0.2998046875);
  }
}

TEST(Empty, HasTheResultsOfNothing) {
  Graph graph;
  const Id x = graph.input("x", Type::kFloat32, 2);
  graph.add_result(graph.apply(Op::kSum, x));
  graph.add_result(graph.apply(Op::kMean, x));
  graph.add_result(graph.apply(Op::kArgmax, x));
  Tensor from(Type::kFloat32, {2, 0}), sum(Type::kFloat32, {2}), mean(Type::kFloat32, {2});
  Tensor index(Type::kInt64, {2});
  run(graph, {&from}, {&sum, &mean, &index});
  EXPECT_EQ(static_cast<double>(sum.get(1).real), 0);
  EXPECT_TRUE(std::isnan(mean.get(1).real));
  EXPECT_EQ(index.get(1).integer, 0);
  Graph plain;
  plain.add_result(plain.apply(Op::kExp, plain.input("x", Type::kFloat32, 2)));
  Tensor none(Type::kFloat32, {0, 4});
  run(plain, {&none}, {&none});
}

// Pieces of a call: rows of several pieces, of which a thread may begin at any.
TEST(Interpreter, PiecesBeginWithinARow) {
  std::mt19937 random(9);
  constexpr int64_t kRows = 5, kColumns = 40000;
  Graph graph;
  const Id x = graph.input("x", Type::kFloat32, 2), scale = graph.input("scale", Type::kFloat32, 2);
  graph.add_result(graph.apply(Op::kMul, x, scale));
  Tensor in(Type::kFloat32, {kRows, kColumns}), of_row(Type::kFloat32, {kRows, 1});
  Tensor out(Type::kFloat32, {kRows, kColumns});
  randomize(&in, &random, true);
  randomize(&of_row, &random, true);
  const Space space = make_space(graph, {in.operand(), of_row.operand()}, {out.operand()});
  const Interpreter interpreter(graph);
  const int64_t pieces = interpreter.pieces(space);
  ASSERT_GT(pieces, kRows) << "rows have several pieces";
  const void* const from[] = {in.data(), of_row.data()};
  void* const to[] = {out.data()};
  for (const int64_t step : {int64_t{1}, int64_t{2}, int64_t{4}}) {
    std::fill(out.bytes.begin(), out.bytes.end(), uint8_t{0xff});
    for (int64_t i = 0; i < pieces; i += step)
      interpreter.run(space, from, to, nullptr, i, std::min(i + step, pieces));
    for (int64_t i = 0; i < kRows * kColumns; ++i) {
      const float want = static_cast<float>(in.get(i).real * of_row.get(i / kColumns).real);
      ASSERT_EQ(out.get(i).real, want) << "element " << i << " by " << step;
    }
  }
}

// Sums over rows: of columns, and of all numbers. The result depends on nothing but the shape.
TEST(Interpreter, SumsOverRows) {
  std::mt19937 random(7);
  for (const Type type : {Type::kFloat16, Type::kBfloat16, Type::kFloat32, Type::kFloat64}) {
    for (const auto& [rows, columns] : std::vector<std::pair<int64_t, int64_t>>{
             {1, 1}, {1, 40000}, {5, 7}, {9000, 3}, {700, 64}, {70, 1001}, {20, 20001}}) {
      for (const bool reduces : {false, true}) {
        Graph graph;
        const Id x = graph.input("x", type, 2), w = graph.input("w", type, 1);
        const Id squares = graph.apply(Op::kMul, x, x);
        const Id sum = reduces ? graph.apply(Op::kSum, squares) : squares;
        graph.add_result(graph.apply(Op::kMul, sum, w), Output::kColumnSums);
        graph.add_result(graph.apply(Op::kMul, x, w));
        graph.add_result(sum, Output::kTotal);
        Tensor in(type, {rows, columns}, {1, rows + 3}), row(type, {columns}, {2});
        Tensor sums(type, {columns}, {3}), product(type, {rows, columns}), total(type, {});
        randomize(&in, &random, true);
        randomize(&row, &random, true);
        const Space space = make_space(graph, {in.operand(), row.operand()},
                                       {sums.operand(), product.operand(), total.operand()});
        const Interpreter interpreter(graph);
        const void* const from[] = {in.data(), row.data()};
        void* const to[] = {sums.data(), product.data(), total.data()};
        std::vector<unsigned char> first;
        for (const int64_t step : {int64_t{1000000}, int64_t{1}, int64_t{3}}) {
          std::vector<double> partial(static_cast<size_t>(interpreter.partial_bytes(space)) / 8,
                                      NAN);
          const int64_t pieces = interpreter.pieces(space), ends = interpreter.sum_pieces(space);
          for (int64_t i = 0; i < pieces; i += step)
            interpreter.run(space, from, to, nullptr, i, std::min(i + step, pieces),
                            partial.data());
          for (int64_t i = 0; i < ends; i += step)
            interpreter.add_sums(space, partial.data(), to, i, std::min(i + step, ends));
          std::vector<unsigned char> all = sums.bytes;
          all.insert(all.end(), total.bytes.begin(), total.bytes.end());
          if (first.empty()) first = all;
          EXPECT_EQ(all, first) << rows << " x " << columns << " by " << step;
        }
        long double whole = 0;
        std::vector<long double> of_column(static_cast<size_t>(columns));
        for (int64_t r = 0; r < rows; ++r) {
          long double of_row = 0;
          for (int64_t c = 0; c < columns; ++c) of_row += std::pow(in.get(r * columns + c).real, 2);
          whole += of_row;
          for (int64_t c = 0; c < columns; ++c)
            of_column[static_cast<size_t>(c)] +=
                (reduces ? of_row : std::pow(in.get(r * columns + c).real, 2)) * row.get(c).real;
        }
        // The terms are of one sign, and each rounds thrice. Additions round in float64: to the
        // sums of floats that is nothing.
        const long double limit =
            type == Type::kFloat64 ? 4 + std::sqrt(static_cast<long double>(rows * columns)) : 4;
        EXPECT_LT(distance(type, total.get(0).real, whole), limit) << rows << " x " << columns;
        for (int64_t c = 0; c < columns; ++c)
          ASSERT_LT(distance(type, sums.get(c).real, of_column[static_cast<size_t>(c)]), limit)
              << rows << " x " << columns << ", column " << c;
      }
    }
  }
}

}  // namespace
}  // namespace opdock::formula
