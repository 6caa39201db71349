// Tests results that are not exactly one tensor each: optional tensors, lists, numbers, objects.
// SPDX-License-Identifier: Apache-2.0
#include "call/results.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

#include "support.h"

namespace opdock {
namespace {

using namespace testing_support;
using A = Arguments;

// Calls with values instead of tensors.
opdock_status invoke_values(TestFunction& f, std::vector<opdock_value> args,
                            std::vector<opdock_value>* results) {
  f.error[0] = '\0';
  return opdock_invoke(&f.function, nullptr, args.data(), static_cast<uint32_t>(args.size()),
                       results->data(), static_cast<uint32_t>(results->size()), f.error,
                       sizeof f.error);
}

// ---- lists and optional tensors

// The op returns one float32 row for each size and, if requested, the sum of the sizes.
const char* const kPieces[] = {"[sizes[i]] for i in range(len(sizes))", "[1] if sum"};
opdock_status plan_pieces(const opdock_call*, const opdock_value* args, uint32_t,
                          opdock_plan* plan) {
  const opdock_list& sizes = *args[1].as.list;
  for (uint64_t i = 0; i < sizes.count; ++i) {
    plan->outputs[i].dtype = kF32;
    plan->outputs[i].ndim = 1;
    plan->outputs[i].shape[0] = sizes.data[i].as.i64;
  }
  if (args[2].as.i64 != 0) {
    opdock_output& sum = plan->outputs[sizes.count];
    sum.dtype = kF32;
    sum.ndim = 1;
    sum.shape[0] = 1;
  }
  return OPDOCK_OK;
}
opdock_status run_pieces(const opdock_call* call, const opdock_value* args, uint32_t,
                         opdock_value* results, uint32_t num_results) {
  const bool wants_sum = args[2].as.i64 != 0;
  if (num_results != 2 || results[0].tag != OPDOCK_TAG_LIST ||
      results[1].tag != (wants_sum ? OPDOCK_TAG_TENSOR : OPDOCK_TAG_NONE)) {
    return call->host->set_error(call, OPDOCK_INTERNAL, "results came wrong");
  }
  float total = 0;
  for (uint64_t i = 0; i < results[0].as.list->count; ++i) {
    const opdock_tensor& piece = *results[0].as.list->data[i].as.tensor;
    for (int64_t k = 0; k < piece.shape[0]; ++k) {
      static_cast<float*>(piece.data)[k * piece.strides[0]] = static_cast<float>(i);
    }
    total += static_cast<float>(piece.shape[0]);
  }
  if (wants_sum) *static_cast<float*>(results[1].as.tensor->data) = total;
  return OPDOCK_OK;
}
const opdock_op* pieces_op() {
  static const opdock_op op = [] {
    opdock_op o = make_op("pieces(Tensor x, int[] sizes, bool sum) -> (Tensor[], Tensor?)");
    o.num_shape_rules = 2;
    o.shape_rules = kPieces;
    o.plan = plan_pieces;
    o.run = run_pieces;
    return o;
  }();
  return &op;
}

struct Pieces {
  std::vector<opdock_value> args(std::vector<int64_t> sizes, bool sum) {
    std::vector<opdock_value> items;
    for (const int64_t size : sizes) items.push_back(A::integer(size));
    return {A::value(a.tensor({1})), a.list(items), A::boolean(sum)};
  }
  TestFunction f{pieces_op()};
  A a;
};

TEST(Results, AreAllocatedInListsAndWhereTheyAreOptional) {
  Pieces p;
  for (const bool sum : {true, false}) {
    for (const std::vector<int64_t>& sizes :
         {std::vector<int64_t>{}, {3}, {2, 0, 5}, std::vector<int64_t>(100, 1)}) {
      std::vector<opdock_value> results(2);
      ASSERT_EQ(invoke_values(p.f, p.args(sizes, sum), &results), OPDOCK_OK) << p.f.error;
      ASSERT_EQ(results[0].tag, uint32_t{OPDOCK_TAG_LIST});
      EXPECT_EQ(results[0].flags, OPDOCK_VALUE_OWNED);
      ASSERT_EQ(results[0].as.list->count, sizes.size());
      for (size_t i = 0; i < sizes.size(); ++i) {
        const opdock_tensor& piece = *results[0].as.list->data[i].as.tensor;
        EXPECT_EQ(piece.shape[0], sizes[i]);
        for (int64_t k = 0; k < sizes[i]; ++k) {
          EXPECT_EQ(static_cast<float*>(piece.data)[k], static_cast<float>(i));
        }
      }
      EXPECT_EQ(results[1].tag, sum ? uint32_t{OPDOCK_TAG_TENSOR} : uint32_t{OPDOCK_TAG_NONE});
      for (opdock_value& result : results) {
        opdock_value_free(&result);
        EXPECT_EQ(result.tag, uint32_t{OPDOCK_TAG_NONE});
        opdock_value_free(&result);
      }
    }
  }
}

TEST(Results, AreWrittenIntoTheCallersListsAndTensors) {
  Pieces p;
  opdock_tensor* const first = p.a.tensor({2}, kF32, {3});  // the caller's own strides
  opdock_tensor* const second = p.a.tensor({1});
  opdock_tensor* const sum = p.a.tensor({1});
  std::vector<opdock_value> results = {p.a.list({A::value(first), A::value(second)}),
                                       A::value(sum)};
  ASSERT_EQ(invoke_values(p.f, p.args({2, 1}, true), &results), OPDOCK_OK) << p.f.error;
  EXPECT_EQ(static_cast<float*>(second->data)[0], 1.0f);
  EXPECT_EQ(static_cast<float*>(sum->data)[0], 3.0f);
  EXPECT_EQ(results[1].as.tensor, sum);
  EXPECT_EQ(results[1].flags, 0u);
}

TEST(Results, ThatDoNotFitThePlanAreRefused) {
  Pieces p;
  const auto tensor = [&](int64_t size) { return A::value(p.a.tensor({size})); };
  const auto read_only = A::value(p.a.tensor({1}), OPDOCK_VALUE_READ_ONLY);
  const struct {
    std::vector<opdock_value> results;
    bool sum;
    const char* text;
  } rows[] = {
      {{p.a.list({tensor(2)}), tensor(1)}, true, "a list of 1, wanted a list of 2 tensors"},
      {{tensor(2), tensor(1)}, true, "found a tensor, wanted a list of 2 tensors"},
      {{p.a.list({tensor(2), A::none()}), tensor(1)}, true, "element 1: found None"},
      {{p.a.list({tensor(2), tensor(3)}), tensor(1)}, true, "output 1: found float32 [3]"},
      {{p.a.list({tensor(2), tensor(1)}), tensor(1)},
       false,
       "result 1: found a tensor, wanted None"},
      {{p.a.list({tensor(2), tensor(1)}), A::integer(3)}, true, "result 1: found an int"},
      {{p.a.list({tensor(2), tensor(1)}), read_only},
       true,
       "result 1: found a tensor that is read-"},
      {{p.a.list({tensor(2), tensor(1)})}, true, "found room for 1 result, wanted 2"},
  };
  for (const auto& row : rows) {
    std::vector<opdock_value> results = row.results;
    EXPECT_EQ(invoke_values(p.f, p.args({2, 1}, row.sum), &results), OPDOCK_INVALID_ARGUMENT);
    EXPECT_NE(std::string(p.f.error).find(row.text), std::string::npos) << p.f.error;
  }
}

TEST(Results, AreCountedAndInferredWithoutAPlugin) {
  Declared declared;
  Reason error{};
  const Schema schema = *parse_schema(pieces_op()->schema, nullptr);
  const std::vector<std::string> texts(std::begin(kPieces), std::end(kPieces));
  declared.rules = *parse_shape_rules(texts, schema, &error);
  TestResolver resolver(pieces_op());
  opdock_function function("pieces", schema, &resolver, declared);
  Pieces p;
  const std::vector<opdock_value> args = p.args({2, 7}, true);
  uint32_t counts[2] = {};
  char text[256] = "";
  ASSERT_EQ(opdock_count_results(&function, args.data(), 3, counts, text, sizeof text), OPDOCK_OK)
      << text;
  EXPECT_EQ(counts[0], 2u);
  EXPECT_EQ(counts[1], 1u);
  opdock_output outputs[3];
  ASSERT_EQ(opdock_infer_results(&function, args.data(), 3, outputs, 3, text, sizeof text),
            OPDOCK_OK)
      << text;
  EXPECT_EQ(outputs[1].shape[0], 7);
  EXPECT_EQ(outputs[2].shape[0], 1);
  EXPECT_EQ(opdock_infer_results(&function, args.data(), 3, outputs, 2, text, sizeof text),
            OPDOCK_INVALID_ARGUMENT);
  EXPECT_NE(std::string(text).find("wanted 3"), std::string::npos) << text;
  EXPECT_EQ(resolver.resolved, 0);
}

TEST(Results, OfAVariableNumberNeedRoomInAPlan) {
  Pieces p;
  opdock_output outputs[8];
  opdock_plan plan{};
  plan.struct_size = sizeof plan;
  plan.outputs = outputs;
  plan.room = 2;
  EXPECT_EQ(p.f.plan(p.args({1, 2, 3}, true), &plan), OPDOCK_INVALID_ARGUMENT);
  EXPECT_EQ(plan.num_outputs, 4u);
  EXPECT_NE(std::string(p.f.error).find("room for 4"), std::string::npos) << p.f.error;
  plan.room = 8;
  EXPECT_EQ(p.f.plan(p.args({1, 2, 3}, true), &plan), OPDOCK_OK) << p.f.error;
  EXPECT_EQ(plan.num_outputs, 4u);
  EXPECT_EQ(outputs[2].shape[0], 3);
}

TEST(Results, AreInferredOfTensorsThatAreChecked) {
  const Schema schema = *parse_schema("f(Tensor x, Tensor[] ts) -> Tensor", nullptr);
  Declared declared;
  Reason error{};
  declared.rules = *parse_shape_rules({{"[x.shape[:-1], ts[0].shape[0]]"}}, schema, &error);
  TestResolver resolver(pieces_op());
  opdock_function function("f", schema, &resolver, declared);
  A a;
  opdock_tensor* const x = a.tensor({2, 3});
  opdock_tensor* const t = a.tensor({4});
  const auto infer = [&] {
    const opdock_value args[] = {A::value(x), a.list({A::value(t)})};
    uint32_t count = 0;
    opdock_output output;
    char text[256] = "";
    const opdock_status counted =
        opdock_count_results(&function, args, 2, &count, text, sizeof text);
    const opdock_status inferred =
        opdock_infer_results(&function, args, 2, &output, 1, text, sizeof text);
    EXPECT_EQ(counted, inferred);
    return std::to_string(inferred) + text;
  };
  EXPECT_EQ(infer(), "0");
  x->data = t->data = nullptr;  // only shapes are looked at
  EXPECT_EQ(infer(), "0");
  int64_t* const shape = x->shape;
  x->shape = nullptr;
  EXPECT_EQ(infer(), "1f: argument 'x': found a shape of NULL, wanted its sizes; fill it in");
  x->shape = shape;
  x->ndim = -2;
  EXPECT_EQ(infer(), "1f: argument 'x': found -2 dimensions, wanted 0 to 16; reshape it");
  x->ndim = 2;
  t->shape = nullptr;
  EXPECT_EQ(infer(),
            "1f: element 0 of argument 'ts': found a shape of NULL, wanted its sizes; fill it in");
}

// ---- the plan must follow the shape rules (OPDOCK-P-10)

opdock_op departing_op() {
  static const char* const rules[] = {"[x.shape[0] + 1]"};
  opdock_op op = make_op("departs(Tensor x) -> Tensor");
  op.num_shape_rules = 1;
  op.shape_rules = rules;
  op.plan = plan_like;
  return op;
}

TEST(Results, ThatDepartFromTheShapeRuleAreTheAuthorsFault) {
  static const opdock_op op = departing_op();
  TestFunction f(&op);
  A a;
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(f.invoke({A::value(a.tensor({4}))}, {nullptr}), OPDOCK_INTERNAL) << i;
    const std::string text = f.error;
    EXPECT_NE(text.find("answered float32 [4] for output 0, wanted float32 [5]"), text.npos)
        << text;
    EXPECT_NE(text.find("[x.shape[0] + 1]"), text.npos) << text;
  }
  EXPECT_EQ(f.invoke({A::value(a.tensor({4}))}, {a.tensor({4})}),
            OPDOCK_OK);  // only the first plans are checked
}

TEST(Results, AreAllHeldToTheShapeRuleIfThatIsAskedFor) {
  static const opdock_op op = departing_op();
  setenv("OPDOCK_CHECK_PLANS", "all", 1);
  TestFunction f(&op);
  A a;
  for (int i = 0; i < 9; ++i) {
    EXPECT_EQ(f.invoke({A::value(a.tensor({4}))}, {nullptr}), OPDOCK_INTERNAL) << i;
  }
  unsetenv("OPDOCK_CHECK_PLANS");
}

// ---- the ownership of tensors

TEST(Results, ThatAreArgumentsStayTheArguments) {
  static const opdock_op op = make_op("same(Tensor(a!) x) -> Tensor(a!)");
  TestFunction f(&op);
  A a;
  // A program may pass on what another call has returned.
  std::vector<opdock_value> results(1);
  opdock_value x = A::value(a.tensor({2}), OPDOCK_VALUE_OWNED);
  ASSERT_EQ(invoke_values(f, {x}, &results), OPDOCK_OK) << f.error;
  EXPECT_EQ(results[0].as.tensor, x.as.tensor);
  EXPECT_EQ(results[0].flags, 0u);  // freed once, by the holder of the argument
}

TEST(Results, ThatAreTheCallersStayTheCallers) {
  TestFunction f(double_op());
  A a;
  std::vector<opdock_value> results(1);
  ASSERT_EQ(invoke_values(f, {A::value(a.tensor({2}))}, &results), OPDOCK_OK) << f.error;
  const opdock_tensor* const made = results[0].as.tensor;
  // The second call writes into the tensor that the first call allocated.
  ASSERT_EQ(invoke_values(f, {A::value(a.tensor({2}))}, &results), OPDOCK_OK) << f.error;
  EXPECT_EQ(results[0].as.tensor, made);
  EXPECT_EQ(results[0].flags, OPDOCK_VALUE_OWNED);
  opdock_value_free(&results[0]);
  EXPECT_EQ(results[0].tag, uint32_t{OPDOCK_TAG_NONE});
}

// ---- numbers and objects

struct Counted {
  opdock_object object{};
  std::atomic<int> references{1};
  inline static std::atomic<int> alive{0};

  explicit Counted(const char* type) {
    object.struct_size = sizeof object;
    object.version = 3;
    object.type_id = type;
    object.device = kCpu;
    object.retain = [](opdock_object* self) { ++of(self)->references; };
    object.release = [](opdock_object* self) {
      if (--of(self)->references == 0) delete of(self);
    };
    ++alive;
  }
  ~Counted() { --alive; }
  static Counted* of(opdock_object* self) { return reinterpret_cast<Counted*>(self); }
};

// what: 0 success, 1 fails after setting all, 2 omits the int, 3 makes another type of object, 4
// none.
opdock_status run_make(const opdock_call* call, const opdock_value* args, uint32_t,
                       opdock_value* results, uint32_t) {
  const int64_t what = args[0].as.i64;
  for (int i = 0; i < 4; ++i) {
    if (results[i].tag != OPDOCK_TAG_NONE) return OPDOCK_INTERNAL;
  }
  if (what != 2) results[0] = A::integer(7);
  results[1] = A::real(0.5);
  results[2] = A::boolean(true);
  if (what != 4) {
    results[3].tag = OPDOCK_TAG_OBJECT;
    results[3].as.object = &(new Counted(what == 3 ? "other" : "counted"))->object;
  }
  return what == 1 ? call->host->set_error(call, OPDOCK_UNSUPPORTED, "no mood") : OPDOCK_OK;
}
const opdock_op* make_object_op() {
  static const opdock_op op =
      make_op("make(int what) -> (int, float, bool, Object(counted))", plan_nothing, run_make);
  return &op;
}

TEST(Results, AreNumbersAndObjects) {
  TestFunction f(make_object_op());
  std::vector<opdock_value> results(4);
  ASSERT_EQ(invoke_values(f, {A::integer(0)}, &results), OPDOCK_OK) << f.error;
  EXPECT_EQ(results[0].as.i64, 7);
  EXPECT_EQ(results[1].as.f64, 0.5);
  EXPECT_EQ(results[2].as.i64, 1);
  ASSERT_EQ(results[3].tag, uint32_t{OPDOCK_TAG_OBJECT});
  EXPECT_EQ(results[3].flags, OPDOCK_VALUE_OWNED);
  EXPECT_EQ(Counted::alive, 1);
  opdock_object* const object = results[3].as.object;
  object->retain(object);
  opdock_value_free(&results[3]);
  EXPECT_EQ(Counted::alive, 1);  // one reference is left
  object->release(object);
  EXPECT_EQ(Counted::alive, 0);
}

TEST(Results, ThatAreNoTensorsNeedRoomOfAPlannedCallToo) {
  static const opdock_op op = make_op(
      "make_one(int what) -> Object(counted)", plan_nothing,
      [](const opdock_call*, const opdock_value*, uint32_t, opdock_value* results, uint32_t) {
        results[0].tag = OPDOCK_TAG_OBJECT;
        results[0].as.object = &(new Counted("counted"))->object;
        return OPDOCK_OK;
      });
  TestFunction f(&op);
  opdock_plan plan{};
  plan.struct_size = sizeof plan;
  const opdock_value what = A::integer(0);
  ASSERT_EQ(f.plan({what}, &plan), OPDOCK_OK) << f.error;
  EXPECT_EQ(opdock_run_planned(&f.function, nullptr, &plan, &what, 1, nullptr, 0, f.error,
                               sizeof f.error),
            OPDOCK_INVALID_ARGUMENT);
  EXPECT_NE(std::string(f.error).find("found room for 0 results, wanted 1"), std::string::npos)
      << f.error;
  EXPECT_EQ(Counted::alive, 0);
  opdock_value result{};
  EXPECT_EQ(opdock_run_planned(&f.function, nullptr, &plan, &what, 1, &result, 1, f.error,
                               sizeof f.error),
            OPDOCK_OK)
      << f.error;
  opdock_value_free(&result);
  EXPECT_EQ(Counted::alive, 0);
}

TEST(Results, OfARunThatFailsOrErrAreGivenBack) {
  TestFunction f(make_object_op());
  const struct {
    int64_t what;
    opdock_status status;
    const char* text;
  } rows[] = {{1, OPDOCK_UNSUPPORTED, "no mood"},
              {2, OPDOCK_INTERNAL, "left None as result 0, wanted int"},
              {3, OPDOCK_INTERNAL, "an object of type other as result 3, wanted Object(counted)"},
              {4, OPDOCK_INTERNAL, "left None as result 3"}};
  for (const auto& row : rows) {
    std::vector<opdock_value> results(4);
    EXPECT_EQ(invoke_values(f, {A::integer(row.what)}, &results), row.status);
    EXPECT_NE(std::string(f.error).find(row.text), std::string::npos) << f.error;
    for (const opdock_value& result : results) EXPECT_EQ(result.tag, uint32_t{OPDOCK_TAG_NONE});
    EXPECT_EQ(Counted::alive, 0) << row.what;
  }
}

TEST(Objects, AreGivenBackInAForkedChildToo) {  // OPDOCK-P-9
  TestFunction f(make_object_op());
  std::vector<opdock_value> results(4);
  ASSERT_EQ(invoke_values(f, {A::integer(0)}, &results), OPDOCK_OK) << f.error;
  const pid_t child = fork();
  if (child == 0) {
    opdock_value_free(&results[3]);
    _exit(Counted::alive == 0 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Counted::alive, 1);
  opdock_value_free(&results[3]);
}

TEST(Objects, ThatEndBeforeReleaseAreRefused) {
  static const opdock_op use = make_op("use_short(Object(counted) o) -> ()");
  static const opdock_op make = make_op(
      "make_short(int object) -> Object(counted)", plan_nothing,
      [](const opdock_call*, const opdock_value* args, uint32_t, opdock_value* results, uint32_t) {
        results[0].tag = OPDOCK_TAG_OBJECT;
        results[0].as.object = reinterpret_cast<opdock_object*>(args[0].as.i64);
        return OPDOCK_OK;
      });
  Counted short_one("counted");
  short_one.object.struct_size = offsetof(opdock_object, release);
  opdock_value value{};
  value.tag = OPDOCK_TAG_OBJECT;
  value.as.object = &short_one.object;
  TestFunction f(&use);
  EXPECT_EQ(f.invoke({value}), OPDOCK_INVALID_ARGUMENT);
  EXPECT_STREQ(f.error,
               "use_short: argument 'o': found an object of struct_size 24, wanted at least 32, "
               "through release; report it to its plugin's author");
  TestFunction g(&make);
  std::vector<opdock_value> results(1);
  EXPECT_EQ(invoke_values(g, {A::integer(reinterpret_cast<int64_t>(value.as.object))}, &results),
            OPDOCK_INTERNAL);
  EXPECT_NE(std::string(g.error).find("an object of struct_size 24 as result 0, wanted"),
            std::string::npos)
      << g.error;
}

TEST(Objects, AreOfTheTypeThatTheSchemaNames) {  // OPDOCK-H-9
  static const opdock_op op = make_op("use(Object(counted) o, Object(counted)[] more=[]) -> ()");
  TestFunction f(&op);
  A a;
  Counted good("counted"), other("other"), untyped(nullptr);
  const auto value = [](Counted& counted) {
    opdock_value v{};
    v.tag = OPDOCK_TAG_OBJECT;
    v.as.object = &counted.object;
    return v;
  };
  EXPECT_EQ(f.invoke({value(good), a.list({value(good)})}), OPDOCK_OK) << f.error;
  EXPECT_EQ(f.invoke({value(other), a.list({})}), OPDOCK_INVALID_ARGUMENT);
  EXPECT_STREQ(
      f.error,
      "use: argument 'o': found an object of type other, wanted Object(counted); convert it");
  EXPECT_EQ(f.invoke({value(untyped), a.list({})}), OPDOCK_INVALID_ARGUMENT);
  EXPECT_EQ(f.invoke({value(good), a.list({value(good), value(other)})}), OPDOCK_INVALID_ARGUMENT);
  EXPECT_NE(std::string(f.error).find("an object of type other as element 1"), std::string::npos)
      << f.error;
}

// ---- arguments on other devices

TEST(Devices, ArgumentsMayBeDeclaredToLieElsewhere) {
  static const opdock_op op = make_op("move(Tensor x, Tensor host, Tensor any) -> ()");
  Declared declared;
  declared.arg_devices = {OPDOCK_ON_OP_DEVICE, OPDOCK_ON_CPU, OPDOCK_ON_ANY};
  TestResolver resolver(&op);
  opdock_function function("move", *parse_schema(op.schema, nullptr), &resolver, declared);
  A a;
  opdock_tensor* const x = a.tensor({2});
  opdock_tensor* const gpu = a.tensor({2});
  gpu->device = {OPDOCK_CUDA, 1};
  const auto call = [&](opdock_tensor* first, opdock_tensor* second, opdock_tensor* third) {
    const opdock_value args[] = {A::value(first), A::value(second), A::value(third)};
    char text[256] = "";
    const opdock_status status =
        opdock_invoke(&function, nullptr, args, 3, nullptr, 0, text, sizeof text);
    return std::to_string(status) + text;
  };
  EXPECT_EQ(call(x, x, x), "0");
  EXPECT_EQ(call(x, x, gpu), "0");
  EXPECT_EQ(
      call(x, gpu, x),
      "1move: argument 'host': found it on cuda:1, wanted it on the CPU, as the op declares it; "
      "move it there");
  // The first argument decides, wherever the others are: nothing serves cuda:1 here.
  EXPECT_EQ(call(gpu, x, x), "7move: nothing for this device");
}

}  // namespace
}  // namespace opdock
