// SPDX-License-Identifier: Apache-2.0
#include "fused/fused_op.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>

#include "base/thread_own.h"
#include "call/invocation.h"
#include "call/parallel.h"
#include "formula/cpu_call.h"
#include "formula/device_launch.h"
#include "formula/gradient.h"
#include "fused/ahead.h"
#include "fused/evaluate_call.h"
#include "fused/gradient_results.h"
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

// The inputs or the results of a graph in a call.
struct GraphTensors {
  explicit GraphTensors(size_t count) : parts(count) {}

  // Memory for the shapes of parts, and of tensors that the graph sees in another shape.
  Operands parts;
  std::deque<ShapedView> views;
  std::vector<Operand> list;
};

GraphTensors read_tensors(const FusedInstance& instance, const opdock_value* args) {
  const std::vector<formula::Input>& inputs = instance.graph.inputs();
  GraphTensors tensors(instance.tensors.size());
  for (size_t i = 0; i < instance.tensors.size(); ++i)
    tensors.parts.add(operand_of(*args[instance.tensors[i]].as.tensor), inputs[i].part,
                      formula::size_of(inputs[i].type), inputs[i].name);
  tensors.list = tensors.parts.list();
  if (instance.wanted.empty()) return tensors;
  size_t rank = 0;
  for (size_t i = 0; i < instance.num_own; ++i)
    if (!inputs[i].is_grouped) rank = std::max(rank, static_cast<size_t>(tensors.list[i].rank));
  for (size_t i = instance.num_own; i < tensors.list.size(); ++i) {
    tensors.views.push_back(view_of_incoming(inputs[i], tensors.list[i], rank));
    tensors.list[i] = tensors.views.back().operand();
  }
  return tensors;
}

// Returns the tensors that the graph's results are, or are parts of. tensor_of(i): the one of
// result i.
template <class F>
Operands result_tensors(const FusedInstance& instance, const F& tensor_of) {
  Operands tensors(instance.result_parts.size());
  for (size_t i = 0; i < instance.result_parts.size(); ++i) {
    const opdock_tensor& x = tensor_of(i);
    tensors.add(operand_of(x), instance.result_parts[i], formula::size_of(*type_of(x.dtype)),
                "result");
  }
  return tensors;
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

// Returns the shape to which the tensors of a formula are broadcast, without the gradients of its
// results. inputs: of read_tensors().
std::vector<int64_t> shape_of_formula(const FusedInstance& instance,
                                      const std::vector<Operand>& inputs) {
  const std::vector<Operand> own(inputs.begin(),
                                 inputs.begin() + static_cast<ptrdiff_t>(instance.num_own));
  return formula::broadcast_shape(instance.graph, own);
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

// Where a call has its temporary memory: partial sums first, then the operands of row_sums().
constexpr int64_t kSumsAlignment = 256;
int64_t round_up(int64_t bytes) {
  return (bytes + kSumsAlignment - 1) / kSumsAlignment * kSumsAlignment;
}
int64_t bytes_of(const std::vector<int64_t>& shape, Type type) {
  int64_t bytes = formula::size_of(type);
  for (const int64_t size : shape) bytes *= size;
  return round_up(bytes);
}

// inputs: of read_tensors().
int64_t partial_bytes(const FusedInstance& instance, const std::vector<Operand>& inputs,
                      const std::vector<int64_t>& shape, bool on_cpu) {
  formula::Space space;
  for (size_t d = 0; d < shape.size(); ++d)
    (d + 1 < shape.size() ? space.rows : space.columns) *= shape[d];
  // Groups are rows, as make_space() says.
  for (size_t i = 0; i < instance.num_own; ++i) {
    if (!instance.graph.inputs()[i].is_grouped) continue;
    const int64_t elements = space.elements();
    int64_t groups = 1;
    for (int d = 0; d < inputs[i].rank; ++d) groups *= inputs[i].shape[d];
    space.rows = groups == elements ? 1 : groups;
    space.columns = elements / std::max<int64_t>(space.rows, 1);
  }
  return round_up(on_cpu ? instance.on_cpu.partial_bytes(space)
                         : instance.on_gpu.partial_bytes(space));
}

// Fills in the gradients' shapes, and how much temporary memory they take.
void fill_in_gradients(const FusedInstance& instance, const opdock_value* args,
                       const std::vector<Operand>& inputs, const std::vector<int64_t>& shape,
                       bool on_cpu, opdock_plan* plan) {
  const auto param = [&](size_t i) -> const opdock_tensor& {
    return *args[instance.of_params[i]].as.tensor;
  };
  const Operands own = result_tensors(instance, param);
  int64_t bytes = instance.has_sums ? partial_bytes(instance, inputs, shape, on_cpu) : 0;
  uint32_t output = 0;
  for (size_t i = 0; i < instance.wanted.size(); ++i) {
    const Type type = instance.graph[instance.graph.results()[i]].type;
    for (const RowSum& sum : row_sums(instance.wanted[i], own.list()[i], shape))
      bytes += bytes_of(sum.from, type);
    if (instance.result_parts[i].part != 0) continue;
    const opdock_tensor& x = param(i);
    opdock_output& out = plan->outputs[output++];
    out.dtype = x.dtype;
    out.ndim = x.ndim;
    std::copy(x.shape, x.shape + x.ndim, out.shape);
  }
  if (bytes == 0) return;
  plan->workspace_bytes = static_cast<uint64_t>(bytes);
  plan->workspace_alignment = kSumsAlignment;
}

// Throws Error if the gradients of results have more elements than the results.
void check_incoming(const FusedInstance& instance, const std::vector<Operand>& inputs,
                    const std::vector<int64_t>& shape) {
  const size_t rank = shape.size();
  for (size_t i = instance.num_own; i < inputs.size(); ++i) {
    const Operand& one = inputs[i];
    bool fits = static_cast<size_t>(one.rank) <= rank;
    for (int d = 0; fits && d < one.rank; ++d) {
      const int64_t wanted = shape[rank - static_cast<size_t>(one.rank - d)];
      fits = one.shape[d] == 1 || one.shape[d] == wanted;
    }
    if (!fits)
      throw formula::Error("\"" + instance.graph.inputs()[i].name + "\": found the shape " +
                           shape_text({one.shape, one.shape + one.rank}) + ", wanted " +
                           shape_text(shape) + ", that of the formula's tensors together");
  }
}

void fill_in(const FusedOp& op, const FusedInstance& instance, const opdock_value* args,
             bool on_cpu, opdock_plan* plan) {
  const Graph& graph = instance.graph;
  const GraphTensors inputs = read_tensors(instance, args);
  if (!instance.wanted.empty()) {
    const std::vector<int64_t> all = shape_of_formula(instance, inputs.list);
    check_incoming(instance, inputs.list, all);
    check_columns(graph, all);
    fill_in_gradients(instance, args, inputs.list, all, on_cpu, plan);
    return;
  }
  const std::vector<int64_t> shape = formula::broadcast_shape(graph, inputs.list);
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
  plan->workspace_bytes = known.workspace_bytes;
  plan->workspace_alignment = known.workspace_alignment;
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
  fill_in(op, instance, args, call->device.type == OPDOCK_CPU, plan);
  plan->state[0] = reinterpret_cast<uintptr_t>(&instance);
  if (calls == nullptr) return;
  calls->plans.keep(key, {&instance,
                          {plan->outputs, plan->outputs + plan->num_outputs},
                          plan->workspace_bytes,
                          plan->workspace_alignment});
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
  for (size_t k = 0; k < instance.result_parts.size(); ++k) {
    const formula::Part& part = instance.result_parts[k];
    if (part.part != 0) continue;
    const opdock_tensor& out = *results[instance.of_results[k]].as.tensor;
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
  void* partial = nullptr;  // memory of sums over rows
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

// Computes sums over rows, which compiled code does not.
opdock_status run_sums_on_cpu(const opdock_call* call, const CpuWork& work) {
  const formula::Interpreter& on_cpu = work.instance.on_cpu;
  parallel_extension()->parallel_for(
      call, static_cast<uint64_t>(on_cpu.pieces(work.space)),
      static_cast<uint64_t>(on_cpu.grain(work.space)),
      [](void* context, uint64_t begin, uint64_t end) {
        const CpuWork& of = *static_cast<const CpuWork*>(context);
        of.instance.on_cpu.run(of.space, of.inputs, of.results, of.scalars,
                               static_cast<int64_t>(begin), static_cast<int64_t>(end), of.partial);
      },
      const_cast<CpuWork*>(&work));
  parallel_extension()->parallel_for(
      call, static_cast<uint64_t>(on_cpu.sum_pieces(work.space)), 1,
      [](void* context, uint64_t begin, uint64_t end) {
        const CpuWork& of = *static_cast<const CpuWork*>(context);
        of.instance.on_cpu.add_sums(of.space, of.partial, of.results, static_cast<int64_t>(begin),
                                    static_cast<int64_t>(end));
      },
      const_cast<CpuWork*>(&work));
  return OPDOCK_OK;
}

// The addresses and numbers of a call.
struct CallData {
  CallData(const FusedInstance& instance, const opdock_value* args,
           const opdock_value* of_results) {
    for (size_t i = 0; i < instance.tensors.size(); ++i)
      inputs[i] = operand_of(*args[instance.tensors[i]].as.tensor).data;
    for (size_t i = 0; i < instance.of_results.size(); ++i)
      results[i] = operand_of(*of_results[instance.of_results[i]].as.tensor).data;
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

// Sets a sum, which is contiguous or has a step, to 0.
void set_to_zero(const Operand& sum, Type type) {
  const auto size = static_cast<size_t>(formula::size_of(type));
  const int64_t count = sum.rank == 0 ? 1 : sum.shape[0], step = sum.rank == 0 ? 0 : sum.strides[0];
  for (int64_t i = 0; i < count; ++i)
    std::memset(static_cast<char*>(sum.data) + i * step * static_cast<int64_t>(size), 0, size);
}

// Computes a graph's results without keeping how. partial: memory of partial_bytes().
opdock_status run_graph(const opdock_call* call, FusedInstance& instance,
                        const std::vector<Operand>& inputs, const std::vector<Operand>& outputs,
                        const formula::Value* scalars, void* partial) {
  const Graph& graph = instance.graph;
  const formula::Space space = formula::make_space(graph, inputs, outputs);
  const bool is_empty = space.rows == 0 || (space.columns == 0 && !graph.has_reductions());
  if (is_empty && !graph.has_sums()) return OPDOCK_OK;
  check_reads(graph, inputs, outputs);
  std::vector<void*> in, out;
  for (const Operand& one : inputs) in.push_back(one.data);
  for (const Operand& one : outputs) out.push_back(one.data);
  auto* const invocation = static_cast<Invocation*>(call->host_data);
  if (call->device.type != OPDOCK_CPU) {
    if (graph.has_sums())
      return instance.on_gpu.launch_with_sums(invocation, space, in.data(), out.data(), scalars,
                                              partial);
    const PreparedLaunch prepared =
        instance.on_gpu.prepare(invocation, space, in.data(), out.data(), scalars);
    return instance.on_gpu.launch(invocation, prepared, in.data(), out.data(), scalars);
  }
  if (is_empty) {  // the sums of nothing are 0
    for (size_t i = 0; i < outputs.size(); ++i)
      if (formula::is_sum(graph.output(i))) set_to_zero(outputs[i], graph[graph.results()[i]].type);
    return OPDOCK_OK;
  }
  const CpuWork work = {instance, space, in.data(), out.data(), scalars, partial};
  return graph.has_sums() ? run_sums_on_cpu(call, work) : run_on_cpu(call, work);
}

// Sums the gradients that have more rows than their parameters.
opdock_status sum_rows(const opdock_call* call, FusedInstance& instance, Type type, Type to,
                       const std::vector<RowSum>& sums, char* from, const ShapedView& result) {
  for (size_t i = 0; i < sums.size(); ++i) {
    const bool is_last = i + 1 == sums.size();
    char* const next = from + bytes_of(sums[i].from, type);
    const ShapedView operand = view_of_summed(sums[i], from);
    const ShapedView out = is_last ? result : contiguous_view(sums[i].to, next);
    FusedInstance& sum = *instance.row_sums.at({type, is_last ? to : type});
    const opdock_status done =
        run_graph(call, sum, {operand.operand()}, {out.operand()}, nullptr, nullptr);
    if (done != OPDOCK_OK) return done;
    from = next;
  }
  return OPDOCK_OK;
}

// Computes gradients that are summed over rows.
opdock_status compute_sums(const opdock_call* call, FusedInstance& instance,
                           const opdock_value* args, const opdock_value* results) {
  const CallData data(instance, args, results);
  const GraphTensors inputs = read_tensors(instance, args);
  const auto result = [&](size_t i) -> const opdock_tensor& {
    return *results[instance.of_results[i]].as.tensor;
  };
  const Operands own = result_tensors(instance, result);
  if (instance.has_parts) check_parts(instance, args, results);
  const std::vector<int64_t> shape = shape_of_formula(instance, inputs.list);
  const auto type = [&](size_t i) { return instance.graph[instance.graph.results()[i]].type; };
  char* const partial = static_cast<char*>(call->workspace);
  char* next =
      partial + partial_bytes(instance, inputs.list, shape, call->device.type == OPDOCK_CPU);
  std::vector<std::vector<RowSum>> sums;
  std::vector<char*> summed;
  std::deque<ShapedView> views;
  std::vector<Operand> outputs;
  for (size_t i = 0; i < instance.wanted.size(); ++i) {
    const Operand& one = own.list()[i];
    sums.push_back(row_sums(instance.wanted[i], one, shape));
    summed.push_back(next);
    views.push_back(sums[i].empty() ? view_of_gradient(instance.wanted[i], one, shape)
                                    : contiguous_view(sums[i].front().from, next));
    outputs.push_back(views.back().operand());
    for (const RowSum& sum : sums[i]) next += bytes_of(sum.from, type(i));
  }
  opdock_status done =
      run_graph(call, instance, inputs.list, outputs, data.scalars.data(), partial);
  for (size_t i = 0; done == OPDOCK_OK && i < sums.size(); ++i)
    done = sum_rows(call, instance, type(i), *type_of(result(i).dtype), sums[i], summed[i],
                    view_of_gradient(instance.wanted[i], own.list()[i], shape));
  return done;
}

// Returns the results as the graph writes them. inputs: of read_tensors().
GraphTensors written_tensors(const FusedInstance& instance, const std::vector<Operand>& inputs,
                             const opdock_value* results) {
  GraphTensors tensors(instance.of_results.size());
  tensors.parts = result_tensors(instance, [&](size_t i) -> const opdock_tensor& {
    return *results[instance.of_results[i]].as.tensor;
  });
  tensors.list = tensors.parts.list();
  if (instance.wanted.empty()) return tensors;
  const std::vector<int64_t> shape = shape_of_formula(instance, inputs);
  for (size_t i = 0; i < tensors.list.size(); ++i) {
    tensors.views.push_back(view_of_gradient(instance.wanted[i], tensors.list[i], shape));
    tensors.list[i] = tensors.views.back().operand();
  }
  return tensors;
}

opdock_status compute(const opdock_call* call, const opdock_value* args, uint32_t num_args,
                      const opdock_value* results, uint32_t num_results) {
  FusedInstance& instance = instance_of(call);
  if (instance.has_sums) return compute_sums(call, instance, args, results);
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
  const GraphTensors read = read_tensors(instance, args);
  const std::vector<Operand>& inputs = read.list;
  const GraphTensors written = written_tensors(instance, inputs, results);
  const std::vector<Operand>& outputs = written.list;
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

// The sum along the rows of a tensor of type `from`.
std::unique_ptr<FusedInstance> row_sum(Type from, Type to) {
  Graph graph;
  graph.add_result(
      graph.cast(graph.apply(formula::Op::kSum, graph.input("gradient", from, 2)), to));
  return std::make_unique<FusedInstance>(graph.simplified());
}

char letter_of(const formula::Wanted& wanted) {
  return static_cast<char>('a' + (wanted.over_rows ? 1 : 0) + (wanted.over_columns ? 2 : 0) +
                           (wanted.is_partial ? 4 : 0));
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

FusedOp::Forward FusedOp::make_forward(const std::vector<formula::Argument>& arguments) const {
  const std::vector<Parameter>& params = formula.parameters();
  Forward made = {formula.graph(arguments), {}};
  for (const formula::Input& input : made.graph.inputs()) {
    const auto param = std::find_if(params.begin(), params.end(),
                                    [&](const Parameter& one) { return one.name == input.name; });
    made.tensors.push_back(static_cast<uint32_t>(num_grads()) +
                           static_cast<uint32_t>(param - params.begin()));
  }
  return made;
}

const FusedOp::Forward& FusedOp::forward(const std::string& key,
                                         const std::vector<formula::Argument>& arguments) {
  {
    const std::lock_guard lock(mutex_);
    const auto known = forwards_.find(key);
    if (known != forwards_.end()) return known->second;
  }
  Forward made = make_forward(arguments);
  const std::lock_guard lock(mutex_);
  return forwards_.emplace(key, std::move(made)).first->second;
}

std::vector<FusedOp::GradientOf> FusedOp::wanted(const Forward& forward,
                                                 const std::vector<formula::Argument>& arguments,
                                                 const opdock_value* args) const {
  const std::vector<formula::Input>& inputs = forward.graph.inputs();
  Operands own(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i)
    own.add(operand_of(*args[forward.tensors[i]].as.tensor), inputs[i].part,
            formula::size_of(inputs[i].type), inputs[i].name);
  const std::vector<int64_t> shape = formula::broadcast_shape(forward.graph, own.list());
  std::vector<GradientOf> all;
  for (uint32_t i = 0; i < gradients_of.size(); ++i) {
    const size_t param = gradients_of[i];
    if (!arguments[param].is_present) {
      if (schema.returns[i].type.optional) continue;
      throw formula::Error("\"" + formula.parameters()[param].name +
                           "\": found None, wanted a tensor, whose gradient is to be computed");
    }
    std::vector<size_t> numbers;
    append_inputs(forward.graph, formula.parameters()[param].name, &numbers);
    for (const size_t input : numbers) {
      // A grouped one is refused when the gradients are made.
      formula::Wanted how;
      how.input = input;
      all.push_back(
          {inputs[input].is_grouped ? how : wanted_of(input, own.list()[input], shape), i});
    }
  }
  return all;
}

std::unique_ptr<FusedInstance> FusedOp::make(const std::vector<formula::Argument>& arguments,
                                             const Forward& forward,
                                             const std::vector<GradientOf>& wanted,
                                             const opdock_value* args) const {
  const std::vector<Parameter>& params = formula.parameters();
  const auto grads = static_cast<uint32_t>(num_grads());
  std::vector<formula::Wanted> how;
  for (const GradientOf& one : wanted) how.push_back(one.wanted);
  auto made = std::make_unique<FusedInstance>(
      grads == 0 ? forward.graph : formula::summed_gradients(forward.graph, how));
  made->tensors = forward.tensors;
  made->num_own = forward.tensors.size();
  for (uint32_t i = 0; i < params.size(); ++i)
    if (arguments[i].is_present &&
        (params[i].kind == Parameter::Kind::kFloat || params[i].kind == Parameter::Kind::kInt))
      made->numbers.push_back(grads + i);
  if (grads == 0) {
    made->result_parts = made->graph.result_parts();
    uint32_t count = 0;
    for (const formula::Part& part : made->result_parts)
      made->of_results.push_back(part.part == 0 ? count++ : count - 1);
    if (own_code != nullptr) made->cpu_code.bring(own_code(cpu_code_name(made->graph).c_str()));
    return made;
  }
  uint32_t grad = 0;
  for (size_t i = made->num_own; i < made->graph.inputs().size(); ++i) {
    if (i > made->num_own && made->graph.inputs()[i].part.part == 0) ++grad;
    made->tensors.push_back(grad);
  }
  made->has_sums = made->graph.has_sums();
  for (size_t i = 0; i < wanted.size(); ++i) {
    made->of_results.push_back(wanted[i].result);
    made->of_params.push_back(forward.tensors[wanted[i].wanted.input]);
    made->result_parts.push_back(forward.graph.inputs()[wanted[i].wanted.input].part);
    if (!wanted[i].wanted.is_partial) continue;
    made->has_sums = true;
    const Type from = made->graph[made->graph.results()[i]].type;
    for (const Type to : {from, *type_of(args[made->of_params[i]].as.tensor->dtype)})
      if (auto& sum = made->row_sums[{from, to}]; sum == nullptr) sum = row_sum(from, to);
  }
  made->wanted = std::move(how);
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
  const Forward* of = nullptr;
  std::vector<GradientOf> all;
  if (!gradients_of.empty()) {
    of = &forward(key, arguments);
    all = wanted(*of, arguments, args);
    for (const GradientOf& one : all) key += letter_of(one.wanted);
  }
  {
    const std::lock_guard lock(mutex_);
    const auto known = instances_.find(key);
    if (known != instances_.end()) return *known->second;
  }
  std::unique_ptr<FusedInstance> made =
      make(arguments, of == nullptr ? make_forward(arguments) : *of, all, args);
  const std::lock_guard lock(mutex_);
  return *instances_.emplace(std::move(key), std::move(made)).first->second;
}

}  // namespace opdock
