// Tests plugin.hpp: conversions, checks, and ops written with it, called through the host.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <cstring>

#include "opdock/elementwise_op.hpp"
#include "opdock/plugin.hpp"
#include "support.h"

namespace opdock {
namespace {

using namespace testing_support;
using A = Arguments;

// ---- 16-bit floats, compared with their definition: sign, biased exponent, mantissa

double half_value(uint16_t bits) {
  int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return (bits & 0x8000) ? -magnitude : magnitude;
}

TEST(Half, ReadsEveryPattern) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    half h;
    h.bits = static_cast<uint16_t>(bits);
    float value = h;
    if ((bits & 0x7c00) != 0x7c00) {
      ASSERT_EQ(value, half_value(h.bits)) << bits;
      ASSERT_EQ(std::signbit(value), (bits & 0x8000) != 0) << bits;
    } else if ((bits & 0x3ff) == 0) {
      ASSERT_TRUE(std::isinf(value)) << bits;
    } else {
      ASSERT_TRUE(std::isnan(value)) << bits;
    }
  }
}

TEST(Half, RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    double low = half_value(static_cast<uint16_t>(bits));
    double high = half_value(static_cast<uint16_t>(bits + 1));
    float middle = static_cast<float>((low + high) / 2);  // exact
    uint16_t even = static_cast<uint16_t>((bits & 1) ? bits + 1 : bits);
    ASSERT_EQ(half(middle).bits, even) << bits;
    ASSERT_EQ(half(-middle).bits, even | 0x8000) << bits;
    ASSERT_EQ(half(std::nextafter(middle, 0.0f)).bits, bits);
    ASSERT_EQ(half(std::nextafter(middle, INFINITY)).bits, bits + 1);
    ASSERT_EQ(half(static_cast<float>(low)).bits, bits);
  }
  EXPECT_EQ(half(65519.996f).bits, 0x7bff);
  EXPECT_EQ(half(65520.0f).bits, 0x7c00);
  EXPECT_EQ(half(1e30f).bits, 0x7c00);
  EXPECT_EQ(half(-INFINITY).bits, 0xfc00);
  EXPECT_TRUE(std::isnan(static_cast<float>(half(NAN))));
  EXPECT_EQ(half(1e-30f).bits, 0);
}

TEST(Bfloat16, RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    bfloat16 b;
    b.bits = static_cast<uint16_t>(bits);
    float value = b;
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(static_cast<float>(bfloat16(value)))) << bits;
      continue;
    }
    ASSERT_EQ(bfloat16(value).bits, bits);
    if (std::isinf(value)) continue;
    uint32_t wide = bits << 16 | 0x8000;  // halfway to the next value
    float middle;
    std::memcpy(&middle, &wide, 4);
    ASSERT_EQ(bfloat16(middle).bits, (bits & 1) ? bits + 1 : bits);
    wide += 1;
    std::memcpy(&middle, &wide, 4);
    ASSERT_EQ(bfloat16(middle).bits, bits + 1);
  }
  // a NaN whose upper half, without rounding to a NaN, would be infinity
  uint32_t quiet = 0x7f800001;
  float nan;
  std::memcpy(&nan, &quiet, 4);
  EXPECT_TRUE(std::isnan(static_cast<float>(bfloat16(nan))));
}

// ---- checks

std::string problem_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Check, NamesTheArgumentAndWhatWasWanted) {
  A a;
  Tensor x(a.tensor({2, 3})), y(a.tensor({3, 2})), t(a.tensor({2, 3}, kF32, {1, 2}));
  Tensor i(a.tensor({2, 3}, kI32)), e(a.tensor({0, 3}));
  opdock_tensor* moved = a.tensor({2, 3});
  moved->device = {OPDOCK_CUDA, 1};
  Tensor g(moved);
  Tensor odd(a.tensor({3}, kF32, {1}, static_cast<char*>(x.raw()) + 4));
  Tensor between(a.tensor({3}, kF32, {1}, static_cast<char*>(x.raw()) + 2));
  const std::pair<std::string, std::string> rows[] = {
      {problem_of([&] { check(i, "i").dtype(dtype_of<float>(), dtype_of<half>()); }),
       "argument 'i': found dtype int32, wanted float32, float16; convert it"},
      {problem_of([&] { check(i, "i").same_dtype_as(x, "x"); }),
       "argument 'i': found dtype int32, wanted float32, as 'x' has; convert one of the two"},
      {problem_of([&] { check(x, "x").ndim(3); }),
       "argument 'x': found 2 dimensions, shape [2, 3], wanted 3; reshape it"},
      {problem_of([&] { check(x, "x").ndim(3, 4); }), "wanted 3 to 4"},
      {problem_of([&] { check(x, "x").ndim_at_least(3); }), "wanted 3 or more"},
      {problem_of([&] { check(x, "x").shape({2, 4}); }), "found shape [2, 3], wanted [2, 4]"},
      {problem_of([&] { check(x, "x").size(-1, 4); }), "found size 3 in dimension -1"},
      {problem_of([&] { check(x, "x").size(2, 4); }), "wanted 3 or more"},
      {problem_of([&] { check(y, "y").same_shape_as(x, "x"); }),
       "argument 'y': found shape [3, 2], wanted [2, 3], as 'x' has; reshape one of the two"},
      {problem_of([&] { check(y, "y").same_shape_as(x); }), "as another argument has"},
      {problem_of([&] { check(g, "g").same_device_as(x, "x"); }),
       "found device cuda:1, wanted cpu"},
      {problem_of([&] { check(i, "i").like(x, "x"); }), "found dtype int32, wanted float32"},
      {problem_of([&] { check(g, "g").like(x, "x"); }), "found device cuda:1, wanted cpu"},
      {problem_of([&] { check(y, "y").like(x, "x"); }), "found shape [3, 2], wanted [2, 3]"},
      {problem_of([&] { check(y, "y").broadcasts_to(x, "x"); }),
       "argument 'y': found shape [3, 2], wanted one that broadcasts to x's [2, 3]; give its "
       "dimensions size 1 where one serves all"},
      {problem_of([&] { check(x, "x").broadcasts_to(odd); }),
       "found shape [2, 3], wanted one that broadcasts to another argument's [3]"},
      {problem_of([&] { check(e, "e").not_empty(); }), "found shape [0, 3], wanted at least one"},
      {problem_of([&] { check(t, "t").contiguous(); }),
       "argument 't': found strides [1, 2] for shape [2, 3], wanted contiguous rows"},
      {problem_of([&] { check(t, "t").contiguous_last_dim(); }), "stride 1 in the last dimension"},
      {problem_of([&] { check(odd, "odd").aligned(8); }),
       "found an address 4 past a multiple of 8"},
      {problem_of([&] { check(between, "between").aligned(); }),
       "found an address 2 past a multiple of 4"},
      {problem_of([&] { check(odd, "odd").no_overlap_with(x, "x"); }), "memory shared with 'x'"},
      {problem_of([&] { x.data<double>(); }), "data<float64>() of a tensor of float32"},
      {problem_of([&] { x.size(2); }), "dimension 2 of a tensor of 2"},
      {problem_of([&] { dispatch<float, double>(i, "i", [](auto) {}); }),
       "argument 'i': found dtype int32, wanted float32, float64"},
      {problem_of([&] { check_number(-0.5, "p", false, "a share, from 0 to 1"); }),
       "argument 'p': found -0.5, wanted a share, from 0 to 1"},
      {problem_of([&] { Dim3(int64_t{1} << 33); }), "8589934592"},
      {problem_of([&] { x.like().with_size(2, 1); }), "no size 1 at 2"},
      {problem_of([&] { Layout(dtype_of<float>(), {int64_t{1} << 40, int64_t{1} << 40}); }),
       "2^63"},
  };
  for (const auto& [found, wanted] : rows) {
    EXPECT_NE(found.find(wanted), std::string::npos)
        << "found: " << found << "\nwanted: " << wanted;
  }
  check(x, "x").dtype(dtype_of<float>()).ndim(2).shape({2, 3}).size(0, 2).contiguous().aligned(4);
  check(x, "x").contiguous_last_dim().not_empty().no_overlap_with(y).same_device_as(y).like(t);
  check(odd, "odd").aligned().broadcasts_to(x);
  check_number(0.5, "p", true, "a share, from 0 to 1");
  check(Tensor(a.tensor({1, 3})), "one").broadcasts_to(x);
  check(Tensor(odd.get(), OPDOCK_VALUE_NO_DATA), "odd").aligned(8).no_overlap_with(x);
}

TEST(Check, OfRowsNamesBothArguments) {
  A a;
  opdock_call cpu{}, gpu{};
  cpu.device = kCpu;
  gpu.device = {OPDOCK_CUDA, 0};
  const Plan plan(&cpu, nullptr), gpu_plan(&gpu, nullptr);
  Tensor x(a.tensor({2, 3})), d(a.tensor({2, 3}, kF64)), t(a.tensor({2, 3}, kF32, {1, 2}));
  Tensor i(a.tensor({2, 3}, kI32)), none(a.tensor({})), v(a.tensor({3}));
  Tensor apart(a.tensor({3}, kF32, {2}));
  const std::optional<Tensor> absent;
  const std::pair<std::string, std::string> rows[] = {
      {problem_of([&] { check_first_rows(plan, i, "i"); }), "argument 'i': found dtype int32"},
      {problem_of([&] { check_first_rows(gpu_plan, d, "d"); }), "found dtype float64"},
      {problem_of([&] { check_first_rows(plan, none, "none"); }), "wanted 1 or more"},
      {problem_of([&] { check_first_rows(plan, x, "x", 3, 4); }), "wanted 3 to 4"},
      {problem_of([&] { check_first_rows(plan, t, "t"); }), "stride 1 in the last dimension"},
      {problem_of([&] { check_rows_like(v, "v", x, "x"); }),
       "argument 'v': found shape [3], wanted [2, 3], as 'x' has"},
      {problem_of([&] { check_rows_like(t, "t", x, "x"); }), "stride 1 in the last dimension"},
      {problem_of([&] { check_row_vector(i, "i", x, "x", 3); }), "wanted float32, as 'x' has"},
      {problem_of([&] { check_row_vector(v, "v", x, "x", 4); }), "found shape [3], wanted [4]"},
      {problem_of([&] { check_row_vector(apart, "apart", x, "x", 3); }), "contiguous rows"},
  };
  for (const auto& [found, wanted] : rows) {
    EXPECT_NE(found.find(wanted), std::string::npos)
        << "found: " << found << "\nwanted: " << wanted;
  }
  check_first_rows(plan, d, "d");
  check_first_rows(gpu_plan, x, "x", 2, 2);
  check_rows_like(absent, "absent", x, "x");
  check_rows_like(x, "x", t, "t");
  check_row_vector(absent, "absent", x, "x", 3);
  check_row_vector(v, "v", x, "x", 3);
}

TEST(Rows, AddressesOfAbsentAndEmptyTensors) {
  A a;
  const Tensor x(a.tensor({2, 4}, kF64, {8, 1})), empty(a.tensor({0, 4}));
  EXPECT_EQ(raw_or_null(x), x.raw());
  EXPECT_EQ(raw_or_null(std::nullopt), nullptr);
  EXPECT_EQ(second_half(x), x.data<double>() + 2);
  EXPECT_EQ(second_half(empty), nullptr);
  EXPECT_EQ(second_half(std::nullopt), nullptr);
}

TEST(Tensor, LikeHasItsShape) {
  A a;
  Layout layout = Tensor(a.tensor({2, 3, 4}, kF32, {1, 2, 6})).like();
  EXPECT_EQ(layout.shape[0], 2);
  EXPECT_EQ(layout.shape[2], 4);
  EXPECT_EQ(layout.with_size(-1, 7).shape[2], 7);
  EXPECT_EQ(Dtype(layout.with_dtype(dtype_of<bfloat16>()).dtype).name(), "bfloat16");
  EXPECT_TRUE(Tensor(a.tensor({0, 3}, kF32, {9, 9})).is_contiguous());
  EXPECT_TRUE(Tensor(a.tensor({2, 1, 3}, kF32, {3, 77, 1})).is_contiguous());
  EXPECT_EQ(Tensor(a.tensor({2, 3})).numel(), 6);
}

}  // namespace
}  // namespace opdock

// ---- ops written with plugin.hpp, at namespace scope as in a plugin

namespace {

struct State {
  double a;
  int64_t n;
};

void axpy_plan(opdock::Plan& plan, opdock::Tensor x, opdock::Tensor y, double a) {
  opdock::check(x, "x").contiguous();
  opdock::check(y, "y").same_shape_as(x, "x").same_dtype_as(x, "x").contiguous();
  plan.output(x.like());
  plan.workspace(64, 128);
  plan.state(State{a, x.numel()});
}
void axpy_run(opdock::Call& call, opdock::Results out, opdock::Tensor x, opdock::Tensor y, double) {
  const State& state = call.state<State>();
  if (reinterpret_cast<uintptr_t>(call.workspace()) % 128 != 0) {
    throw opdock::Error(OPDOCK_INTERNAL, "workspace is not aligned");
  }
  opdock::dispatch_floating(x, "x", [&](auto tag) {
    using T = typename decltype(tag)::type;
    call.parallel_for(state.n, 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        out[0].data<T>()[i] =
            static_cast<T>(static_cast<float>(state.a) * static_cast<float>(x.data<T>()[i]) +
                           static_cast<float>(y.data<T>()[i]));
      }
    });
  });
}
OPDOCK_OP(axpy, axpy_plan, nullptr, axpy_run)

int thrown = 0;
void throw_plan(opdock::Plan&, int64_t what) {
  if (what == 1) throw std::bad_alloc();
  if (what == 2) throw std::runtime_error("text of an exception");
  if (what == 3) throw 7;
  if (what == 4) throw opdock::Error(OPDOCK_CANCELLED, "asked to stop");
}
void throw_prepare(opdock::Call&) {
  if (thrown++ == 0) throw std::runtime_error("prepare failed");
}
void throw_run(opdock::Call& call, opdock::Results, int64_t what) {
  if (what == 5) {
    call.parallel_for(1000, 1, [](int64_t begin, int64_t) {
      if (begin >= 500) throw opdock::Error(OPDOCK_UNSUPPORTED, "from a worker");
    });
  }
  if (what == 6) call.kernel(0);
}
OPDOCK_OP(thrower, throw_plan, throw_prepare, throw_run)

void all_plan(opdock::Plan&, std::optional<opdock::Tensor> t, opdock::List<opdock::Tensor> ts,
              std::vector<std::optional<opdock::Tensor>> os, bool b, std::string_view s,
              std::complex<double> c, opdock::Dtype d, opdock::Device v, std::optional<int64_t> n,
              std::vector<int64_t> ns, std::optional<opdock::List<double>> fs) {
  bool good = !t && ts.size() == 2 && ts[1].size(0) == 3 && os.size() == 2 && !os[0] && os[1] &&
              b && s == "text" && c.imag() == 2 && d == opdock::dtype_of<int32_t>() &&
              v.name() == "cpu" && !n && ns == std::vector<int64_t>{4, 5} && fs && (*fs)[0] == 0.5;
  if (!good) throw opdock::Error(OPDOCK_INTERNAL, "an argument came wrong");
}
void all_run(opdock::Call&, opdock::Results, std::optional<opdock::Tensor>,
             opdock::List<opdock::Tensor>, std::vector<std::optional<opdock::Tensor>>, bool,
             std::string_view, std::complex<double>, opdock::Dtype, opdock::Device,
             std::optional<int64_t>, std::vector<int64_t>, std::optional<opdock::List<double>>) {}
OPDOCK_OP(all, all_plan, nullptr, all_run)

}  // namespace

namespace opdock {
namespace {

TEST(PluginHpp, RunsATypedOp) {
  static const opdock_op op = make_op("axpy(Tensor x, Tensor y, float a) -> Tensor",
                                      opdock_axpy_plan, opdock_axpy_run, opdock_axpy_prepare);
  TestFunction f(&op);
  A a;
  opdock_tensor *x = a.tensor({100}), *y = a.tensor({100}), *z = a.tensor({100});
  for (int i = 0; i < 100; ++i) {
    static_cast<float*>(x->data)[i] = static_cast<float>(i);
    static_cast<float*>(y->data)[i] = 1;
  }
  ASSERT_EQ(f.invoke({A::value(x), A::value(y), A::real(2)}, {z}), OPDOCK_OK) << f.error;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(static_cast<float*>(z->data)[i], 2.0f * i + 1);
  EXPECT_EQ(f.invoke({A::value(x), A::value(a.tensor({99})), A::real(2)}, {z}),
            OPDOCK_INVALID_ARGUMENT);
  EXPECT_STREQ(
      f.error,
      "axpy: argument 'y': found shape [99], wanted [100], as 'x' has; reshape one of the two");
}

TEST(PluginHpp, TurnsExceptionsIntoStatuses) {  // OPDOCK-P-4
  static const opdock_op op = make_op("thrower(int what) -> ()", opdock_thrower_plan,
                                      opdock_thrower_run, opdock_thrower_prepare);
  TestFunction f(&op);
  EXPECT_EQ(f.invoke({A::integer(0)}), OPDOCK_INTERNAL);
  EXPECT_STREQ(f.error, "thrower: prepare failed");
  EXPECT_EQ(f.invoke({A::integer(0)}), OPDOCK_OK) << f.error;  // prepare may succeed later
  const struct {
    int64_t what;
    opdock_status status;
    const char* text;
  } rows[] = {
      {1, OPDOCK_OUT_OF_MEMORY, "no host memory"},
      {2, OPDOCK_INTERNAL, "text of an exception"},
      {3, OPDOCK_INTERNAL, "no std::exception"},
      {4, OPDOCK_CANCELLED, "asked to stop"},
      {5, OPDOCK_UNSUPPORTED, "from a worker"},
      {6, OPDOCK_NOT_FOUND, "kernel(0): found the op running on cpu, which has no kernels"},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(f.invoke({A::integer(row.what)}), row.status) << f.error;
    EXPECT_NE(std::string(f.error).find(row.text), std::string::npos) << f.error;
  }
  EXPECT_EQ(thrown, 2);
}

TEST(PluginHpp, ReadsEveryKindOfArgument) {
  static const opdock_op op = make_op(
      "all(Tensor? t, Tensor[] ts, Tensor?[] os, bool b, str s, complex c, ScalarType d, Device "
      "v, "
      "int? n, int[] ns, float[]? fs) -> ()",
      opdock_all_plan, opdock_all_run, opdock_all_prepare);
  TestFunction f(&op);
  A a;
  static const double parts[2] = {1, 2};
  opdock_value c{}, d{}, v{};
  c.tag = OPDOCK_TAG_COMPLEX;
  c.as.c128 = parts;
  d.tag = OPDOCK_TAG_DTYPE;
  d.as.dtype = kI32;
  v.tag = OPDOCK_TAG_DEVICE;
  v.as.device = kCpu;
  opdock_value x = A::value(a.tensor({3}));
  EXPECT_EQ(f.invoke({A::none(), a.list({x, x}), a.list({A::none(), x}), A::boolean(true),
                      a.text("text"), c, d, v, A::none(), a.list({A::integer(4), A::integer(5)}),
                      a.list({A::real(0.5)})}),
            OPDOCK_OK)
      << f.error;
}

TEST(PluginHpp, RefusesAFunctionThatIsNotTheSchemas) {
  static const opdock_op op =
      make_op("axpy(Tensor x, Tensor y) -> Tensor", opdock_axpy_plan, opdock_axpy_run);
  TestFunction f(&op);
  A a;
  opdock_value x = A::value(a.tensor({3}));
  EXPECT_EQ(f.invoke({x, x}, {nullptr}), OPDOCK_INTERNAL);
  EXPECT_NE(std::string(f.error).find("found 2 arguments, and the plugin's function takes 3"),
            std::string::npos)
      << f.error;
  static const opdock_op typed =
      make_op("axpy(Tensor x, Tensor y, int a) -> Tensor", opdock_axpy_plan, opdock_axpy_run);
  TestFunction g(&typed);
  EXPECT_EQ(g.invoke({x, x, A::integer(1)}, {nullptr}), OPDOCK_INTERNAL);
  EXPECT_NE(std::string(g.error).find("takes a float"), std::string::npos) << g.error;
}

TEST(Texts, OfNumbersOfEveryKind) {
  const std::string text("text");
  const std::string_view view("view");
  EXPECT_EQ(detail::concat(INT64_MIN, " ", INT64_MAX, " ", UINT64_MAX),
            "-9223372036854775808 9223372036854775807 18446744073709551615");
  EXPECT_EQ(
      detail::concat(int8_t{-128}, ",", uint8_t{255}, ",", 0, ",", -1, ",", uint32_t{4000000000}),
      "-128,255,0,-1,4000000000");
  EXPECT_EQ(detail::concat(text, view, "literal", std::string("temporary")),
            "textviewliteraltemporary");
}

}  // namespace
}  // namespace opdock
