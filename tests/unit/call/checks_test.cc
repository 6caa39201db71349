// Tests bad input to a call: each row is one mistake, its status, and what the message must
// contain.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <functional>

#include "call/call.h"
#include "support.h"

namespace opdock {
namespace {

using namespace testing_support;
using A = Arguments;

// The op under test has a parameter of every kind, and writes `w`.
constexpr char kCheckedSchema[] =
    "op(Tensor x, Tensor? z, Tensor[] ts, Tensor?[] os, Tensor(a!) w, int n, float f, bool b, str "
    "s, "
    "int[] ns, float[]? fs, ScalarType d, complex c, Device v, bool[]? bs) -> (Tensor, Tensor)";
enum Param { kX, kZ, kTs, kOs, kW, kN, kF, kB, kS, kNs, kFs, kD, kC, kV, kBs };

const double kComplex[2] = {1, 2};
int ran = 0;

opdock_status run_count(const opdock_call*, const opdock_value*, uint32_t, opdock_value*,
                        uint32_t) {
  ++ran;
  return OPDOCK_OK;
}

const opdock_op& checked_op() {
  static const opdock_op op = make_op(kCheckedSchema, plan_like, run_count);
  return op;
}

// A valid call, in which each row changes one thing. x is float32 [2, 3].
struct ValidCall {
  ValidCall() : f(&checked_op()) {
    f.resolver.dtypes = {kF32, kF64};
    x = a.tensor({2, 3});
    w = a.tensor({4});
    t0 = a.tensor({5});
    t1 = a.tensor({6});
    opdock_value d{}, c{}, v{};
    d.tag = OPDOCK_TAG_DTYPE;
    d.as.dtype = kF32;
    c.tag = OPDOCK_TAG_COMPLEX;
    c.as.c128 = kComplex;
    v.tag = OPDOCK_TAG_DEVICE;
    v.as.device = kCpu;
    args = {A::value(x),
            A::none(),
            a.list({A::value(t0), A::value(t1)}),
            a.list({A::none(), A::value(t1)}),
            A::value(w),
            A::integer(1),
            A::real(2),
            A::boolean(true),
            a.text("s"),
            a.list({A::integer(1), A::integer(2)}),
            A::none(),
            d,
            c,
            v,
            A::none()};
    outputs = {a.tensor({2, 3}), a.tensor({2, 3})};
  }
  opdock_status call() { return f.invoke(args, outputs); }

  A a;
  TestFunction f;
  opdock_tensor *x, *w, *t0, *t1;
  std::vector<opdock_value> args;
  std::vector<opdock_tensor*> outputs;
};

struct Row {
  const char* name;
  std::function<void(ValidCall&)> break_it;
  opdock_status status;
  std::vector<const char*> texts;
};

opdock_value null_of(uint32_t tag) {
  opdock_value v{};
  v.tag = tag;
  return v;
}

constexpr opdock_status kBad = OPDOCK_INVALID_ARGUMENT;
constexpr int64_t kHuge = int64_t{1} << 62;

const Row kRows[] = {
    // one tensor
    {"null tensor",
     [](ValidCall& s) { s.args[kX].as.tensor = nullptr; },
     kBad,
     {"argument 'x'", "no tensor"}},
    {"ndim -1",
     [](ValidCall& s) { s.x->ndim = -1; },
     kBad,
     {"argument 'x'", "found -1 dimensions"}},
    {"ndim 17", [](ValidCall& s) { s.x->ndim = 17; }, kBad, {"argument 'x'", "wanted 0 to 16"}},
    {"no shape",
     [](ValidCall& s) { s.x->shape = nullptr; },
     kBad,
     {"argument 'x'", "shape of NULL"}},
    {"no strides",
     [](ValidCall& s) { s.x->strides = nullptr; },
     kBad,
     {"argument 'x'", "strides of NULL"}},
    {"negative size",
     [](ValidCall& s) { s.x->shape[1] = -3; },
     kBad,
     {"argument 'x'", "[2, -3]", "negative"}},
    {"negative size of an empty tensor",
     [](ValidCall& s) {
       s.x->shape[0] = 0;
       s.x->shape[1] = -1;
     },
     kBad,
     {"argument 'x'", "negative"}},
    {"2^63 elements",
     [](ValidCall& s) {
       s.x->shape[0] = kHuge;
       s.x->shape[1] = 4;
     },
     kBad,
     {"argument 'x'", "2^63"}},
    {"2^63 bytes",
     [](ValidCall& s) {
       s.x->shape[0] = kHuge;
       s.x->shape[1] = 1;
       s.x->strides[0] = 1;
     },
     kBad,
     {"argument 'x'", "2^63"}},
    {"span of 2^63",
     [](ValidCall& s) {
       s.x->strides[0] = kHuge;
       s.x->shape[0] = 3;
     },
     kBad,
     {"argument 'x'", "2^63"}},
    {"span of bytes",
     [](ValidCall& s) { s.x->strides[0] = kHuge / 2; },
     kBad,
     {"argument 'x'", "2^63"}},
    {"stride INT64_MIN",
     [](ValidCall& s) { s.x->strides[0] = INT64_MIN; },
     kBad,
     {"argument 'x'", "2^63"}},
    {"data NULL",
     [](ValidCall& s) { s.x->data = nullptr; },
     kBad,
     {"argument 'x'", "data NULL", "ZeroTensor"}},
    {"no data to run on",
     [](ValidCall& s) { s.args[kX].flags = OPDOCK_VALUE_NO_DATA; },
     kBad,
     {"argument 'x'", "shape without data"}},
    {"no lanes", [](ValidCall& s) { s.x->dtype.lanes = 0; }, kBad, {"argument 'x'", "1 lane"}},
    {"no bits", [](ValidCall& s) { s.x->dtype.bits = 0; }, kBad, {"argument 'x'", "1 bit"}},
    {"unknown device",
     [](ValidCall& s) { s.x->device.type = 14; },
     kBad,
     {"argument 'x'", "device type 14"}},
    {"negative device",
     [](ValidCall& s) { s.x->device.index = -1; },
     kBad,
     {"argument 'x'", "cpu:-1", "wanted a CPU"}},
    // dtypes
    {"int32",
     [](ValidCall& s) { s.x->dtype = kI32; },
     OPDOCK_UNSUPPORTED,
     {"argument 'x'", "found dtype int32", "wanted float32, float64"}},
    {"float16",
     [](ValidCall& s) { s.x->dtype.bits = 16; },
     OPDOCK_UNSUPPORTED,
     {"argument 'x'", "float16"}},
    {"two lanes",
     [](ValidCall& s) { s.x->dtype.lanes = 2; },
     OPDOCK_UNSUPPORTED,
     {"argument 'x'", "float32_x2"}},
    {"fp4 pairs",
     [](ValidCall& s) { s.x->dtype = {OPDOCK_DTYPE_FLOAT4_E2M1FN, 4, 2}; },
     OPDOCK_UNSUPPORTED,
     {"argument 'x'", "float4_e2m1fn_x2"}},
    {"odd bits",
     [](ValidCall& s) { s.x->dtype = {OPDOCK_DTYPE_FLOAT, 24, 1}; },
     OPDOCK_UNSUPPORTED,
     {"argument 'x'", "bits 24"}},
    {"odd code",
     [](ValidCall& s) { s.x->dtype = {200, 32, 1}; },
     OPDOCK_UNSUPPORTED,
     {"argument 'x'", "code 200"}},
    // devices
    {"cpu and cuda",
     [](ValidCall& s) { s.w->device = {OPDOCK_CUDA, 0}; },
     kBad,
     {"argument 'w'", "cuda:0", "cpu", "'x'"}},
    {"all on cuda",
     [](ValidCall& s) {
       for (opdock_tensor* t : {s.x, s.w, s.t0, s.t1}) t->device = {OPDOCK_CUDA, 0};
     },
     OPDOCK_INCOMPATIBLE,
     {"nothing for this device"}},
    {"cuda:64",
     [](ValidCall& s) {
       for (opdock_tensor* t : {s.x, s.w, s.t0, s.t1}) t->device = {OPDOCK_CUDA, 64};
     },
     kBad,
     {"cuda:64", "0 to 63"}},
    {"cpu:1",
     [](ValidCall& s) {
       for (opdock_tensor* t : {s.x, s.w, s.t0, s.t1}) t->device = {OPDOCK_CPU, 1};
     },
     kBad,
     {"cpu:1"}},
    {"list element elsewhere",
     [](ValidCall& s) { s.t1->device = {OPDOCK_ROCM, 2}; },
     kBad,
     {"element 1 of argument 'ts'", "rocm:2"}},
    // lists of tensors
    {"list of NULL",
     [](ValidCall& s) { s.args[kTs] = null_of(OPDOCK_TAG_LIST); },
     kBad,
     {"argument 'ts'", "NULL pointer"}},
    {"list element None",
     [](ValidCall& s) { s.args[kTs] = s.a.list({A::none()}); },
     kBad,
     {"argument 'ts'", "element 0", "None", "Tensor[]"}},
    {"list element int",
     [](ValidCall& s) { s.args[kOs] = s.a.list({A::integer(1)}); },
     kBad,
     {"argument 'os'", "element 0", "an int", "Tensor?[]"}},
    {"list element null",
     [](ValidCall& s) { s.args[kOs] = s.a.list({A::none(), null_of(OPDOCK_TAG_TENSOR)}); },
     kBad,
     {"argument 'os'", "element 1", "NULL"}},
    {"list element without data",
     [](ValidCall& s) { s.t0->data = nullptr; },
     kBad,
     {"element 0 of argument 'ts'", "data NULL"}},
    {"list element negative",
     [](ValidCall& s) { s.t1->shape[0] = -6; },
     kBad,
     {"element 1 of argument 'ts'", "[-6]"}},
    {"list element strides",
     [](ValidCall& s) { s.t0->strides = nullptr; },
     kBad,
     {"element 0 of argument 'ts'", "strides"}},
    {"tensor for a list",
     [](ValidCall& s) { s.args[kTs] = A::value(s.t0); },
     kBad,
     {"argument 'ts'", "a tensor", "Tensor[]"}},
    {"list for a tensor",
     [](ValidCall& s) { s.args[kX] = s.args[kTs]; },
     kBad,
     {"argument 'x'", "a list", "wanted Tensor"}},
    {"list count without data",
     [](ValidCall& s) {
       static const opdock_list l{nullptr, 3};
       s.args[kTs].as.list = &l;
     },
     kBad,
     {"argument 'ts'", "NULL"}},
    // arguments of the wrong type
    {"None for a tensor",
     [](ValidCall& s) { s.args[kX] = A::none(); },
     kBad,
     {"argument 'x'", "None", "wanted Tensor"}},
    {"int for an optional tensor",
     [](ValidCall& s) { s.args[kZ] = A::integer(0); },
     kBad,
     {"argument 'z'", "an int", "Tensor?"}},
    {"bad optional tensor",
     [](ValidCall& s) { s.args[kZ] = null_of(OPDOCK_TAG_TENSOR); },
     kBad,
     {"argument 'z'", "no tensor"}},
    {"float for an int",
     [](ValidCall& s) { s.args[kN] = A::real(1); },
     kBad,
     {"argument 'n'", "a float", "wanted int"}},
    {"None for an int",
     [](ValidCall& s) { s.args[kN] = A::none(); },
     kBad,
     {"argument 'n'", "None"}},
    {"bool for an int",
     [](ValidCall& s) { s.args[kN] = A::boolean(true); },
     kBad,
     {"argument 'n'", "a bool"}},
    {"int for a float",
     [](ValidCall& s) { s.args[kF] = A::integer(1); },
     kBad,
     {"argument 'f'", "an int", "opdock_bind"}},
    {"tensor for a float",
     [](ValidCall& s) { s.args[kF] = A::value(s.x); },
     kBad,
     {"argument 'f'", "a tensor"}},
    {"int for a bool",
     [](ValidCall& s) { s.args[kB] = A::integer(1); },
     kBad,
     {"argument 'b'", "an int"}},
    {"bool of 2",
     [](ValidCall& s) { s.args[kB].as.i64 = 2; },
     kBad,
     {"argument 'b'", "value 2", "0 or 1"}},
    {"bool of -1",
     [](ValidCall& s) { s.args[kB].as.i64 = -1; },
     kBad,
     {"argument 'b'", "value -1"}},
    {"int for a str",
     [](ValidCall& s) { s.args[kS] = A::integer(1); },
     kBad,
     {"argument 's'", "an int", "wanted str"}},
    {"str of NULL",
     [](ValidCall& s) { s.args[kS] = null_of(OPDOCK_TAG_STRING); },
     kBad,
     {"argument 's'", "NULL"}},
    {"str without data",
     [](ValidCall& s) {
       static const opdock_string t{nullptr, 2};
       s.args[kS].as.str = &t;
     },
     kBad,
     {"argument 's'", "NULL"}},
    {"int for a list",
     [](ValidCall& s) { s.args[kNs] = A::integer(1); },
     kBad,
     {"argument 'ns'", "an int", "int[]"}},
    {"bool of 7 in a list",
     [](ValidCall& s) {
       opdock_value seven = A::boolean(true);
       seven.as.i64 = 7;
       s.args[kBs] = s.a.list({seven});
     },
     kBad,
     {"argument 'bs'", "found a bool of value 7 as element 0, wanted 0 or 1; correct it"}},
    {"float in an int list",
     [](ValidCall& s) { s.args[kNs] = s.a.list({A::integer(1), A::real(1)}); },
     kBad,
     {"argument 'ns'", "a float as element 1"}},
    {"None for a list",
     [](ValidCall& s) { s.args[kNs] = A::none(); },
     kBad,
     {"argument 'ns'", "None"}},
    {"int in a float list",
     [](ValidCall& s) { s.args[kFs] = s.a.list({A::integer(1)}); },
     kBad,
     {"argument 'fs'", "an int as element 0", "float[]?"}},
    {"int for a dtype",
     [](ValidCall& s) { s.args[kD] = A::integer(1); },
     kBad,
     {"argument 'd'", "ScalarType"}},
    {"float for a complex",
     [](ValidCall& s) { s.args[kC] = A::real(1); },
     kBad,
     {"argument 'c'", "complex"}},
    {"complex of NULL",
     [](ValidCall& s) { s.args[kC] = null_of(OPDOCK_TAG_COMPLEX); },
     kBad,
     {"argument 'c'", "NULL"}},
    {"str for a device",
     [](ValidCall& s) { s.args[kV] = s.a.text("cpu"); },
     kBad,
     {"argument 'v'", "a str", "Device"}},
    {"unknown tag",
     [](ValidCall& s) { s.args[kN].tag = 99; },
     kBad,
     {"argument 'n'", "unknown tag"}},
    {"an object for an int",
     [](ValidCall& s) { s.args[kN] = null_of(OPDOCK_TAG_OBJECT); },
     kBad,
     {"argument 'n'", "an object"}},
    {"a generator for an int",
     [](ValidCall& s) { s.args[kN] = null_of(OPDOCK_TAG_GENERATOR); },
     kBad,
     {"argument 'n'", "a generator"}},
    {"a stream for an int",
     [](ValidCall& s) { s.args[kN] = null_of(OPDOCK_TAG_STREAM); },
     kBad,
     {"argument 'n'", "a stream"}},
    // number of arguments
    {"one too few",
     [](ValidCall& s) { s.args.pop_back(); },
     kBad,
     {"found 14 arguments", "all 15"}},
    {"one too many",
     [](ValidCall& s) { s.args.push_back(A::none()); },
     kBad,
     {"found 16 arguments"}},
    {"none", [](ValidCall& s) { s.args.clear(); }, kBad, {"found 0 arguments"}},
    // arguments that the op writes
    {"read-only written",
     [](ValidCall& s) { s.args[kW].flags = OPDOCK_VALUE_READ_ONLY; },
     kBad,
     {"argument 'w'", "read-only"}},
    {"written with stride 0",
     [](ValidCall& s) { s.w->strides[0] = 0; },
     kBad,
     {"argument 'w'", "share an address"}},
    {"written is an input",
     [](ValidCall& s) { s.args[kW] = s.args[kX]; },
     kBad,
     {"argument 'w'", "'x'", "shared"}},
    {"written overlaps an input",
     [](ValidCall& s) { s.w->data = static_cast<float*>(s.x->data) + 5; },
     kBad,
     {"argument 'w'", "'x'"}},
    {"written overlaps a list element",
     [](ValidCall& s) { s.w->data = s.t1->data; },
     kBad,
     {"argument 'w'", "element 1 of argument 'ts'"}},
    // outputs
    {"too few outputs",
     [](ValidCall& s) { s.outputs.pop_back(); },
     kBad,
     {"found room for 1 result, wanted 2"}},
    {"too many outputs",
     [](ValidCall& s) { s.outputs.push_back(s.t0); },
     kBad,
     {"found room for 3 results"}},
    {"output dtype",
     [](ValidCall& s) { s.outputs[0] = s.a.tensor({2, 3}, kF64); },
     kBad,
     {"output 0", "float64 [2, 3]", "float32 [2, 3]"}},
    {"output shape",
     [](ValidCall& s) { s.outputs[1] = s.a.tensor({3, 2}); },
     kBad,
     {"output 1", "[3, 2]", "[2, 3]"}},
    {"output ndim",
     [](ValidCall& s) { s.outputs[1] = s.a.tensor({6}); },
     kBad,
     {"output 1", "[6]"}},
    {"output device",
     [](ValidCall& s) { s.outputs[0]->device = {OPDOCK_CUDA, 1}; },
     kBad,
     {"output 0", "cuda:1", "cpu"}},
    {"output data NULL",
     [](ValidCall& s) { s.outputs[0]->data = nullptr; },
     kBad,
     {"output 0", "data NULL"}},
    {"output strides NULL",
     [](ValidCall& s) { s.outputs[0]->strides = nullptr; },
     kBad,
     {"output 0", "strides"}},
    {"output stride 0",
     [](ValidCall& s) { s.outputs[0]->strides[0] = 0; },
     kBad,
     {"output 0", "share an address"}},
    {"output strides overlap",
     [](ValidCall& s) { s.outputs[0]->strides[0] = 2; },
     kBad,
     {"output 0", "strides [2, 1]", "share an address"}},
    {"output is an input",
     [](ValidCall& s) { s.outputs[0] = s.x; },
     kBad,
     {"output 0", "argument 'x'"}},
    {"output overlaps an input",
     [](ValidCall& s) { s.outputs[0]->data = static_cast<float*>(s.x->data) + 1; },
     kBad,
     {"output 0", "argument 'x'"}},
    {"output overlaps a written one",
     [](ValidCall& s) { s.outputs[1]->data = s.w->data; },
     kBad,
     {"output 1", "argument 'w'"}},
    {"output overlaps a list element",
     [](ValidCall& s) { s.outputs[0]->data = s.t1->data; },
     kBad,
     {"output 0", "element 1 of argument 'ts'"}},
    {"outputs overlap",
     [](ValidCall& s) { s.outputs[1] = s.outputs[0]; },
     kBad,
     {"output 1", "output 0"}},
    {"output negative size",
     [](ValidCall& s) { s.outputs[0]->shape[0] = -2; },
     kBad,
     {"output 0", "negative"}},
};

TEST(Checks, AGoodCallPasses) {
  ValidCall s;
  ran = 0;
  EXPECT_EQ(s.call(), OPDOCK_OK) << s.f.error;
  EXPECT_EQ(ran, 1);
}

TEST(Checks, EveryMistakeIsRefusedByName) {
  for (const Row& row : kRows) {
    ValidCall s;
    row.break_it(s);
    ran = 0;
    EXPECT_EQ(s.call(), row.status) << row.name << ": " << s.f.error;
    EXPECT_EQ(ran, 0) << row.name;
    std::string text = s.f.error;
    EXPECT_EQ(text.find(text.find("test: ") == 0 ? "test: " : "op: "), 0u)
        << row.name << ": " << text;
    for (const char* part : row.texts) {
      EXPECT_NE(text.find(part), std::string::npos) << row.name << ": " << text;
    }
  }
}

// Input that looks odd but must pass.
TEST(Checks, OddButGoodInputPasses) {
  const std::pair<const char*, std::function<void(ValidCall&)>> rows[] = {
      {"empty, data NULL",
       [](ValidCall& s) {
         s.t0->shape[0] = 0;
         s.t0->data = nullptr;
       }},
      {"empty with huge sizes",
       [](ValidCall& s) {
         opdock_tensor* t = s.a.tensor({1, 0, 1});
         t->shape[0] = t->shape[2] = kHuge;
         s.args[kZ] = A::value(t);
       }},
      {"negative strides of an input",
       [](ValidCall& s) {
         s.t0->strides[0] = -1;
         s.t0->data = static_cast<float*>(s.t0->data) + 4;
       }},
      {"expanded input", [](ValidCall& s) { s.t0->strides[0] = 0; }},
      {"inputs share memory", [](ValidCall& s) { s.args[kZ] = s.args[kX]; }},
      {"16 dimensions",
       [](ValidCall& s) { s.args[kZ] = A::value(s.a.tensor(std::vector<int64_t>(16, 1))); }},
      {"0 dimensions without shape",
       [](ValidCall& s) {
         opdock_tensor* t = s.a.tensor({});
         t->shape = t->strides = nullptr;
         s.args[kZ] = A::value(t);
       }},
      {"read-only input", [](ValidCall& s) { s.args[kX].flags = OPDOCK_VALUE_READ_ONLY; }},
      {"other dtype of another argument", [](ValidCall& s) { s.t0->dtype = kI32; }},
      {"empty list", [](ValidCall& s) { s.args[kNs] = s.a.list({}); }},
      {"output with padded rows",
       [](ValidCall& s) { s.outputs[0] = s.a.tensor({2, 3}, kF32, {8, 1}); }},
      {"transposed output", [](ValidCall& s) { s.outputs[0] = s.a.tensor({2, 3}, kF32, {1, 2}); }},
      {"byte offset", [](ValidCall& s) { s.t0->byte_offset = 4; }},
  };
  for (const auto& [name, change] : rows) {
    ValidCall s;
    change(s);
    EXPECT_EQ(s.call(), OPDOCK_OK) << name << ": " << s.f.error;
  }
}

// After planning, a call whose optional arguments are left out is not checked again.
TEST(Checks, APlannedCallIsNotCheckedAgainForItsNones) {
  static const opdock_op op = make_op("f(Tensor x, Tensor? z, int? n) -> ()");
  TestFunction f(&op);
  f.resolver.dtypes = {kF32};
  A a;
  opdock_tensor* const x = a.tensor({2});
  const opdock_value args[] = {A::value(x), A::none(), A::none()};
  opdock_plan plan{};
  plan.struct_size = sizeof plan;
  ASSERT_EQ(f.plan({args[0], args[1], args[2]}, &plan), OPDOCK_OK) << f.error;
  x->dtype = kI32;  // only a full check would see the change
  opdock_status status = OPDOCK_OK;
  char text[256] = "";
  EXPECT_NE(recheck_arguments(f.function, args, 3, &status, {text, sizeof text}), nullptr) << text;
  // None for a required argument, or a value of another type, still needs the full check.
  const opdock_value missing[] = {A::none(), A::none(), A::none()};
  EXPECT_EQ(recheck_arguments(f.function, missing, 3, &status, {text, sizeof text}), nullptr);
  const opdock_value other[] = {A::value(a.tensor({2})), A::none(), A::real(1)};
  EXPECT_EQ(recheck_arguments(f.function, other, 3, &status, {text, sizeof text}), nullptr);
}

TEST(Checks, ColumnSlicesOfOneMatrixDoNotOverlap) {
  ValidCall s;
  std::vector<float> matrix(2 * 9);
  s.x->data = matrix.data();
  s.x->strides[0] = 9;  // columns 0 to 2
  s.outputs[0] = s.a.tensor({2, 3}, kF32, {9, 1}, matrix.data() + 3);
  s.outputs[1] = s.a.tensor({2, 3}, kF32, {9, 1}, matrix.data() + 5);  // shares column 5
  EXPECT_EQ(s.call(), kBad);
  EXPECT_NE(std::string(s.f.error).find("output 1: found memory shared with output 0"),
            std::string::npos)
      << s.f.error;
  s.outputs[1] = s.a.tensor({2, 3}, kF32, {9, 1}, matrix.data() + 6);
  EXPECT_EQ(s.call(), OPDOCK_OK) << s.f.error;
}

TEST(Checks, AnInPlaceOpMayWriteTheVeryTensorItReads) {
  static const opdock_op op = make_op("inplace(Tensor x) -> Tensor", plan_like, run_nothing,
                                      nullptr, OPDOCK_OP_THREAD_SAFE | OPDOCK_OP_IN_PLACE);
  TestFunction f(&op);
  A a;
  opdock_tensor* x = a.tensor({8});
  EXPECT_EQ(f.invoke({A::value(x)}, {x}), OPDOCK_OK) << f.error;
  opdock_tensor* shifted = a.tensor({8}, kF32, {1}, static_cast<float*>(x->data) + 1);
  EXPECT_EQ(f.invoke({A::value(x)}, {shifted}), kBad);
}

}  // namespace
}  // namespace opdock
