// SPDX-License-Identifier: Apache-2.0
#include "fused/fused_op.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "base/thread_own.h"
#include "call/invocation.h"
#include "call/parallel.h"
#include "formula/cpu_call.h"
#include "formula/device_launch.h"
#include "formula/gradient.h"
#include "fused/evaluate_call.h"
#include "fused/recent_calls.h"
#include "manifest/formula_parameters.h"
#include "opdock/types.hpp"
#include "schema/dtype.h"

namespace opdock {
namespace {

using formula::Graph;
using formula::Operand;
using formula::Operands;
using formula::Parameter;
using formula::Type;

[[noreturn]] void refuse_dtype(const Parameter& param, opdock_dtype found) {
  throw Error(OPDOCK_INVALID_ARGUMENT,
              "argument '" + param.name + "': found " + to_text(found) +
                  ", wanted bool, uint8, int8 to int64, float16, bfloat16, float32 or float64; "
                  "convert it first");
}

std::optional<Type> type_of(opdock_dtype dtype) {
  return dtype.lanes == 1 ? formula::find_type(to_text(dtype)) : std::nullopt;
}

opdock_dtype dtype_of(Type type) {
  return *parse_dtype(formula::name_of(type));
}

// Returns the argument as the formula sees it. Throws Error for a dtype that formulas do not have.
formula::Argument argument_of(const Parameter& param, const opdock_value& value) {
  formula::Argument argument;
  argument.is_present = value.tag != OPDOCK_TAG_NONE;
  if (!argument.is_present) return argument;
  switch (param.kind) {
    case Parameter::Kind::kTensor: {
      const opdock_tensor& x = *value.as.tensor;
      const std::optional<Type> type = type_of(x.dtype);
      if (!type) refuse_dtype(param, x.dtype);
      argument.type = *type;
      argument.rank = x.ndim;
      break;
    }
    case Parameter::Kind::kBool:
      argument.flag = value.as.i64 != 0;
      break;
    case Parameter::Kind::kString:
      argument.text.assign(value.as.str->data, value.as.str->size);
      break;
    case Parameter::Kind::kType: {
      const std::optional<Type> type = type_of(value.as.dtype);
      if (!type) refuse_dtype(param, value.as.dtype);
      argument.type = *type;
      break;
    }
    case Parameter::Kind::kFloat:
    case Parameter::Kind::kInt:
      break;
  }
  return argument;
}

// Two calls with equal keys use the same instance.
void append_key(const formula::Argument& argument, std::string* key) {
  *key += argument.is_present ? '1' : '0';
  *key += static_cast<char>('a' + static_cast<int>(argument.type));
  *key += static_cast<char>('0' + std::min(argument.rank, 2));
  *key += argument.flag ? '1' : '0';
  if (!argument.text.empty()) *key += std::to_string(argument.text.size()) + ":" + argument.text;
}

Operand operand_of(const opdock_tensor& x) {
  return {static_cast<char*>(x.data) + x.byte_offset, x.ndim, x.shape, x.strides};
}

Operands operands_of(const FusedInstance& instance, const opdock_value* args) {
  Operands operands(instance.tensors.size());
  for (size_t i = 0; i < instance.tensors.size(); ++i) {
    const formula::Input& input = instance.graph.inputs()[i];
    operands.add(operand_of(*args[instance.tensors[i]].as.tensor), input.part,
                 formula::size_of(input.type), input.name);
  }
  return operands;
}

FusedOp& op_of(const opdock_call* call) {
  const auto* in = static_cast<const Invocation*>(call->host_data);
  return *reinterpret_cast<FusedOp*>(const_cast<opdock_op*>(in->target->op));
}

// Returns what plan_fused() has chosen.
FusedInstance& instance_of(const opdock_call* call) {
  return *reinterpret_cast<FusedInstance*>(
      static_cast<uintptr_t>(*static_cast<const uint64_t*>(call->state)));
}

// Reductions that have no value for a row without columns.
void check_columns(const Graph& graph, const std::vector<int64_t>& shape) {
  if (shape.empty() || shape.back() != 0) return;
  for (const formula::Node& node : graph.nodes()) {
    switch (node.op) {
      case formula::Op::kAmax:
      case formula::Op::kAmin:
      case formula::Op::kArgmax:
      case formula::Op::kArgmin:
        throw Error(OPDOCK_INVALID_ARGUMENT,
                    std::string(formula::operation(node.op).name) +
                        ": found rows without columns, wanted at least one column");
      default:
        break;
    }
  }
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

// Checks that a result can be written into the argument that the schema names.
void check_written(const FusedOp& op, int param, const opdock_tensor& x, Type type,
                   const std::vector<int64_t>& shape) {
  const std::string found = op.schema.params[static_cast<size_t>(param)].name;
  const std::vector<int64_t> own(x.shape, x.shape + x.ndim);
  if (own == shape && same(x.dtype, dtype_of(type))) return;
  throw Error(OPDOCK_INVALID_ARGUMENT,
              "argument '" + found + "': found " + to_text(x.dtype) + " of shape " +
                  shape_text(own) + ", wanted " + std::string(formula::name_of(type)) +
                  " of shape " + shape_text(shape) + ", because the result is written into it");
}

// Checks that a further part of a result has the dtype of the first one.
void check_part(const Graph& graph, size_t result, Type type) {
  const Type first = graph[graph.results()[result - graph.result_parts()[result].part]].type;
  if (type == first) return;
  throw formula::Error("cat: found parts of " + std::string(formula::name_of(first)) + " and " +
                       std::string(formula::name_of(type)) +
                       ", wanted one dtype; convert one of them: x.to(y.dtype)");
}

// Makes the shape of a part that of the whole result.
void widen(const Graph& graph, size_t result, std::vector<int64_t>* shape) {
  if (shape->empty())
    throw formula::Error("cat: found parts without dimensions, wanted tensors with columns");
  if (__builtin_mul_overflow(shape->back(), int64_t{graph.result_parts()[result].parts},
                             &shape->back()))
    throw formula::Error("cat: found parts of the shape " + shape_text(*shape) +
                         ", wanted fewer columns");
}

void fill_in(const FusedOp& op, const FusedInstance& instance, const opdock_value* args,
             opdock_plan* plan) {
  const Graph& graph = instance.graph;
  const std::vector<int64_t> shape =
      formula::broadcast_shape(graph, operands_of(instance, args).list());
  check_columns(graph, shape);
  uint32_t output = 0, result = 0;
  for (size_t i = 0; i < graph.results().size(); ++i) {
    const formula::Part part = graph.result_parts()[i];
    Type type = graph[graph.results()[i]].type;
    if (part.part != 0) {
      check_part(graph, i, type);
      continue;
    }
    if (op.is_evaluated && formula::is_float(type)) type = Type::kFloat64;
    std::vector<int64_t> own = formula::result_shape(graph, i, shape);
    if (part.parts > 1) widen(graph, i, &own);
    const int param = op.schema.returns[result++].param;
    if (param >= 0) {
      check_written(op, param, *args[param].as.tensor, type, own);
      continue;
    }
    opdock_output& out = plan->outputs[output++];
    out.dtype = dtype_of(type);
    out.ndim = static_cast<int32_t>(own.size());
    std::memcpy(out.shape, own.data(), own.size() * sizeof own[0]);
  }
}

// Answers a plan as that of an earlier call was.
void repeat(const RecentPlan& known, opdock_plan* plan) {
  for (size_t i = 0; i < known.outputs.size(); ++i) {
    const opdock_output& from = known.outputs[i];
    opdock_output& out = plan->outputs[i];
    out.dtype = from.dtype;
    out.ndim = from.ndim;
    std::copy_n(from.shape, from.ndim, out.shape);
  }
}

void make_plan(const opdock_call* call, const opdock_value* args, uint32_t num_args,
               opdock_plan* plan) {
  FusedOp& op = op_of(call);
  CallKey key(op.number, call->device);
  key.add(args, num_args, 1);
  ThreadCalls* const calls = key.is_complete() ? ThreadOwn<ThreadCalls>::get() : nullptr;
  const RecentPlan* known = calls == nullptr ? nullptr : calls->plans.find(key);
  if (known != nullptr) {
    repeat(*known, plan);
    plan->state[0] = reinterpret_cast<uintptr_t>(known->instance);
    return;
  }
  FusedInstance& instance = op.instance(args, num_args);
  fill_in(op, instance, args, plan);
  plan->state[0] = reinterpret_cast<uintptr_t>(&instance);
  if (calls == nullptr) return;
  calls->plans.keep(key, {&instance, {plan->outputs, plan->outputs + plan->num_outputs}});
}

// Refuses a result that has one element for a row and is written over an input. Where their shapes
// are equal, the input is read by all rows, some of which would find the result there.
void check_reads(const Graph& graph, const std::vector<Operand>& inputs,
                 const std::vector<Operand>& results) {
  const std::vector<int64_t> shape = formula::broadcast_shape(graph, inputs);
  for (const Operand& result : results) {
    if (static_cast<size_t>(result.rank) == shape.size()) continue;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].data != result.data) continue;
      throw formula::Error("\"" + graph.inputs()[i].name + "\": found a result of shape " +
                           shape_text({result.shape, result.shape + result.rank}) +
                           " that is written over it, but the formula's rows of shape " +
                           shape_text(shape) + " all read it; pass a copy");
    }
  }
}

// Refuses a result in the memory of a tensor that is read in other parts than those in which the
// result is written: elements would be overwritten before they are read.
void check_parts(const FusedInstance& instance, const opdock_value* args,
                 const opdock_value* results) {
  const Graph& graph = instance.graph;
  uint32_t result = 0;
  for (const formula::Part& part : graph.result_parts()) {
    if (part.part != 0) continue;
    const opdock_tensor& out = *results[result++].as.tensor;
    for (size_t i = 0; i < graph.inputs().size(); ++i) {
      const formula::Input& input = graph.inputs()[i];
      const opdock_tensor& x = *args[instance.tensors[i]].as.tensor;
      const bool is_shared = operand_of(x).data == operand_of(out).data;
      if (input.part.parts == part.parts || !is_shared) continue;
      const auto how = [](const formula::Part& one) {
        return one.parts == 1 ? "as a whole" : "in " + std::to_string(one.parts) + " parts";
      };
      throw formula::Error("\"" + input.name + "\": found a result that is written over it " +
                           how(part) + ", but the formula reads it " + how(input.part) +
                           "; pass a copy");
    }
  }
}

struct CpuWork {
  FusedInstance& instance;
  const formula::Space& space;
  void* const* inputs;
  void* const* results;
  const formula::Value* scalars;
};

// Runs compiled code, whose pieces are the interpreter's.
void run_compiled(const opdock_call* call, opdock_formula_function code, const CpuWork& work) {
  struct Context {
    opdock_formula_function code;
    const opdock_formula_call* call;
  };
  const formula::CpuCall what(work.space, work.inputs, work.results, work.scalars,
                              work.instance.numbers.size());
  Context context = {code, what.get()};
  const formula::Interpreter& on_cpu = work.instance.on_cpu;
  parallel_extension()->parallel_for(
      call, static_cast<uint64_t>(on_cpu.pieces(work.space)),
      static_cast<uint64_t>(on_cpu.grain(work.space)),
      [](void* given, uint64_t begin, uint64_t end) {
        const Context& of = *static_cast<const Context*>(given);
        of.code(of.call, static_cast<int64_t>(begin), static_cast<int64_t>(end));
      },
      &context);
}

opdock_status run_on_cpu(const opdock_call* call, const CpuWork& work) {
  CpuCode& compiled = work.instance.cpu_code;
  const opdock_formula_function code =
      compiled.get(static_cast<Invocation*>(call->host_data), work.space.elements());
  if (code != nullptr) {
    run_compiled(call, code, work);
    return OPDOCK_OK;
  }
  const auto start = std::chrono::steady_clock::now();
  const formula::Interpreter& on_cpu = work.instance.on_cpu;
  parallel_extension()->parallel_for(
      call, static_cast<uint64_t>(on_cpu.pieces(work.space)),
      static_cast<uint64_t>(on_cpu.grain(work.space)),
      [](void* context, uint64_t begin, uint64_t end) {
        const CpuWork& of = *static_cast<const CpuWork*>(context);
        of.instance.on_cpu.run(of.space, of.inputs, of.results, of.scalars,
                               static_cast<int64_t>(begin), static_cast<int64_t>(end));
      },
      const_cast<CpuWork*>(&work));
  compiled.interpreted(std::chrono::steady_clock::now() - start);
  return OPDOCK_OK;
}

// The addresses and numbers of a call.
struct CallData {
  CallData(const FusedInstance& instance, const opdock_value* args,
           const opdock_value* of_results) {
    const Graph& graph = instance.graph;
    for (size_t i = 0; i < instance.tensors.size(); ++i)
      inputs[i] = operand_of(*args[instance.tensors[i]].as.tensor).data;
    const opdock_value* result = of_results;
    for (size_t i = 0; i < graph.results().size(); ++i) {
      if (i > 0 && graph.result_parts()[i].part == 0) ++result;
      results[i] = operand_of(*result->as.tensor).data;
    }
    for (size_t i = 0; i < instance.numbers.size(); ++i) {
      const opdock_value& value = args[instance.numbers[i]];
      scalars[i] = value.tag == OPDOCK_TAG_FLOAT
                       ? formula::Value{value.as.f64, 0}
                       : formula::Value{static_cast<double>(value.as.i64), value.as.i64};
    }
  }
  // Whether a result begins where an input does.
  bool shares(const FusedInstance& instance) const {
    const auto end = inputs.begin() + static_cast<ptrdiff_t>(instance.tensors.size());
    for (size_t i = 0; i < instance.graph.results().size(); ++i)
      if (std::find(inputs.begin(), end, results[i]) != end) return true;
    return false;
  }
  // Moves from the tensors to the parts that the graph reads and writes. offsets: in bytes, of the
  // inputs and then of the results.
  void move_to_parts(const std::vector<ptrdiff_t>& offsets, size_t num_inputs) {
    for (size_t i = 0; i < offsets.size(); ++i) {
      void*& data = i < num_inputs ? inputs[i] : results[i - num_inputs];
      data = static_cast<char*>(data) + offsets[i];
    }
  }

  // Only the call's own are initialised.
  std::array<void*, formula::kMaxInputs> inputs;
  std::array<void*, formula::kMaxResults> results;
  std::array<formula::Value, formula::kMaxScalars> scalars;
};

opdock_status run(const opdock_call* call, const RecentRun& how, CallData* data) {
  FusedInstance& instance = *how.instance;
  data->move_to_parts(how.part_offsets, instance.tensors.size());
  if (call->device.type == OPDOCK_CPU)
    return run_on_cpu(call, CpuWork{instance, how.space, data->inputs.data(), data->results.data(),
                                    data->scalars.data()});
  return instance.on_gpu.launch(static_cast<Invocation*>(call->host_data), how.launch,
                                data->inputs.data(), data->results.data(), data->scalars.data());
}

opdock_status compute(const opdock_call* call, const opdock_value* args, uint32_t num_args,
                      const opdock_value* results, uint32_t num_results) {
  FusedInstance& instance = instance_of(call);
  const Graph& graph = instance.graph;
  CallData data(instance, args, results);
  CallKey key(op_of(call).number, call->device);
  const uint64_t unit = call->device.type == OPDOCK_CPU ? 1 : formula::kAddressUnit;
  key.add(args, num_args, unit);
  key.add(results, num_results, unit);
  ThreadCalls* const calls = key.is_complete() ? ThreadOwn<ThreadCalls>::get() : nullptr;
  const RecentRun* known = calls == nullptr ? nullptr : calls->runs.find(key);
  if (known != nullptr && known->instance == &instance &&
      !((known->has_row_results || instance.has_parts) && data.shares(instance)))
    return run(call, *known, &data);
  const Operands read = operands_of(instance, args);
  Operands written(graph.results().size());
  const opdock_value* result = results;
  for (size_t i = 0; i < graph.results().size(); ++i) {
    const formula::Part part = graph.result_parts()[i];
    if (part.part == 0 && i > 0) ++result;
    written.add(operand_of(*result->as.tensor), part,
                formula::size_of(graph[graph.results()[i]].type), "result");
  }
  const std::vector<Operand>&inputs = read.list(), &outputs = written.list();
  RecentRun how;
  how.instance = &instance;
  how.space = formula::make_space(graph, inputs, outputs);
  const formula::Space& space = how.space;
  if (space.rows == 0 || (space.columns == 0 && !graph.has_reductions())) return OPDOCK_OK;
  check_reads(graph, inputs, outputs);
  if (instance.has_parts) {
    check_parts(instance, args, results);
    const auto add = [&](const Operand& part, const void* tensor) {
      how.part_offsets.push_back(static_cast<const char*>(part.data) -
                                 static_cast<const char*>(tensor));
    };
    for (size_t i = 0; i < inputs.size(); ++i) add(inputs[i], data.inputs[i]);
    for (size_t i = 0; i < outputs.size(); ++i) add(outputs[i], data.results[i]);
  }
  const auto rank_of_space = formula::broadcast_shape(graph, inputs).size();
  for (const Operand& output : outputs)
    how.has_row_results = how.has_row_results || static_cast<size_t>(output.rank) != rank_of_space;
  if (call->device.type != OPDOCK_CPU) {
    CallData parts = data;
    parts.move_to_parts(how.part_offsets, inputs.size());
    how.launch =
        instance.on_gpu.prepare(static_cast<Invocation*>(call->host_data), space,
                                parts.inputs.data(), parts.results.data(), parts.scalars.data());
  }
  const opdock_status status = run(call, how, &data);
  if (status == OPDOCK_OK && calls != nullptr) calls->runs.keep(key, std::move(how));
  return status;
}

// Runs `body`, and turns what it throws into the call's error.
template <class F>
opdock_status answered(const opdock_call* call, const F& body) noexcept {
  Invocation& in = *static_cast<Invocation*>(call->host_data);
  return answer(in, [&]() -> opdock_status {
    try {
      return body();
    } catch (const formula::Error& problem) {
      return in.fail(OPDOCK_INVALID_ARGUMENT, problem.what());
    }
  });
}

opdock_status plan_fused(const opdock_call* call, const opdock_value* args, uint32_t num_args,
                         opdock_plan* plan) {
  FusedOp& op = op_of(call);
  if (op.own_plan != nullptr) {
    const opdock_status status = op.own_plan(call, args, num_args, plan);
    if (status != OPDOCK_OK) return status;
  }
  return answered(call, [&] {
    make_plan(call, args, num_args, plan);
    return OPDOCK_OK;
  });
}

opdock_status run_fused(const opdock_call* call, const opdock_value* args, uint32_t num_args,
                        opdock_value* results, uint32_t num_results) {
  return answered(call, [&] {
    if (!op_of(call).is_evaluated) return compute(call, args, num_args, results, num_results);
    if (call->device.type != OPDOCK_CPU)
      throw Error(OPDOCK_UNSUPPORTED,
                  "found tensors on a GPU, wanted them on the CPU, where "
                  "formulas are evaluated in float64; move them there");
    evaluate_call(instance_of(call), args, results);
    return OPDOCK_OK;
  });
}

uint64_t next_number() {
  static std::atomic<uint64_t> count{0};
  return count.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

FusedOp::FusedOp(Schema wanted, formula::Formula text)
    : schema(std::move(wanted)),
      formula(std::move(text)),
      schema_text(schema.text()),
      doc(formula.text()),
      number(next_number()) {
  check_fit(schema, formula);
  fill_in();
}

FusedOp::FusedOp(Schema wanted, formula::Formula text, std::vector<size_t> of)
    : schema(std::move(wanted)),
      formula(std::move(text)),
      schema_text(schema.text()),
      doc("Gradients of:\n" + formula.text()),
      gradients_of(std::move(of)),
      number(next_number()) {
  fill_in();
}

void FusedOp::fill_in() {
  op.struct_size = sizeof op;
  op.flags =
      OPDOCK_OP_THREAD_SAFE | OPDOCK_OP_CAPTURE_SAFE | OPDOCK_OP_IN_PLACE | OPDOCK_OP_DETERMINISTIC;
  op.schema = schema_text.c_str();
  op.doc = doc.c_str();
  op.device_arg = static_cast<uint32_t>(schema.first_tensor());
  op.plan = plan_fused;
  op.run = run_fused;
}

namespace {

// The graph of the gradients of those inputs, as its results, in their order.
Graph gradients(const Graph& graph, const std::vector<size_t>& wanted) {
  formula::Gradient found = formula::differentiate(graph, wanted);
  for (const size_t input : wanted) {
    if (std::find(found.inputs.begin(), found.inputs.end(), input) != found.inputs.end()) continue;
    const formula::Input& missing = graph.inputs()[input];
    throw formula::Error("\"" + missing.name + "\": found " +
                         std::string(formula::name_of(missing.type)) +
                         ", wanted a float, which has a gradient");
  }
  return std::move(found.graph);
}

// Appends the numbers of the inputs that are the tensor of that name: the whole, or all its parts.
void append_inputs(const Graph& graph, const std::string& name, std::vector<size_t>* inputs) {
  const formula::Input* first = nullptr;
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const formula::Input& input = graph.inputs()[i];
    if (input.name != name) continue;
    if (first != nullptr && input.part.parts != first->part.parts)
      throw formula::Error(
          "\"" + name + "\": found uses of it in " + std::to_string(first->part.parts) +
          " and in " + std::to_string(input.part.parts) +
          " parts, wanted one of these, as gradients are for; pass it twice, as two "
          "parameters");
    first = &input;
    inputs->push_back(i);
  }
}

}  // namespace

std::unique_ptr<FusedInstance> FusedOp::make(
    const std::vector<formula::Argument>& arguments) const {
  const std::vector<Parameter>& params = formula.parameters();
  const auto grads = static_cast<uint32_t>(num_grads());
  Graph graph = formula.graph(arguments);
  std::vector<uint32_t> tensors, numbers;
  for (const formula::Input& input : graph.inputs()) {
    const auto param = std::find_if(params.begin(), params.end(),
                                    [&](const Parameter& one) { return one.name == input.name; });
    tensors.push_back(grads + static_cast<uint32_t>(param - params.begin()));
  }
  for (uint32_t i = 0; i < params.size(); ++i)
    if (arguments[i].is_present &&
        (params[i].kind == Parameter::Kind::kFloat || params[i].kind == Parameter::Kind::kInt))
      numbers.push_back(grads + i);
  if (grads != 0) {
    std::vector<size_t> wanted;  // numbers of inputs
    for (const size_t param : gradients_of) {
      if (!arguments[param].is_present)
        throw formula::Error("found None, wanted a tensor, whose gradient is to be computed");
      append_inputs(graph, params[param].name, &wanted);
    }
    const size_t own = tensors.size();
    graph = gradients(graph, wanted);
    uint32_t grad = 0;
    for (size_t i = own; i < graph.inputs().size(); ++i) {
      if (i > own && graph.inputs()[i].part.part == 0) ++grad;
      tensors.push_back(grad);
    }
  }
  auto made = std::make_unique<FusedInstance>(std::move(graph));
  made->tensors = std::move(tensors);
  made->numbers = std::move(numbers);
  return made;
}

FusedInstance& FusedOp::instance(const opdock_value* args, uint32_t num_args) {
  const std::vector<Parameter>& params = formula.parameters();
  std::vector<formula::Argument> arguments;
  arguments.reserve(num_args);
  std::string key;
  static const Parameter& grad = *new Parameter{"grad", Parameter::Kind::kTensor, false};
  for (uint32_t i = 0; i < num_args; ++i) {
    const bool is_grad = i < num_grads();
    const formula::Argument argument =
        argument_of(is_grad ? grad : params[i - num_grads()], args[i]);
    append_key(argument, &key);
    if (!is_grad) arguments.push_back(argument);
  }
  {
    const std::lock_guard lock(mutex_);
    const auto known = instances_.find(key);
    if (known != instances_.end()) return *known->second;
  }
  std::unique_ptr<FusedInstance> made = make(arguments);
  const std::lock_guard lock(mutex_);
  return *instances_.emplace(std::move(key), std::move(made)).first->second;
}

}  // namespace opdock
