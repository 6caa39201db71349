// SPDX-License-Identifier: Apache-2.0
#include "fused/plan_call.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/thread_own.h"
#include "call/tensor_check.h"
#include "fused/call_checks.h"
#include "fused/call_workspace.h"
#include "fused/formula_arguments.h"
#include "fused/gradient_results.h"
#include "fused/graph_tensors.h"
#include "fused/recent_calls.h"

namespace opdock {
namespace {

using formula::Graph;
using formula::Operand;
using formula::Operands;
using formula::Type;

// Makes the shape of a part that of the whole result.
void widen(const Graph& graph, size_t result, std::vector<int64_t>* shape) {
  if (shape->empty())
    throw formula::Error("cat: found parts without dimensions, wanted tensors with columns");
  if (__builtin_mul_overflow(shape->back(), int64_t{graph.result_parts()[result].parts},
                             &shape->back()))
    throw formula::Error("cat: found parts of the shape " + shape_text(*shape) +
                         ", wanted fewer columns");
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
      bytes += workspace_bytes(sum.from, type);
    if (instance.result_parts[i].part != 0) continue;
    const opdock_tensor& x = param(i);
    opdock_output& out = plan->outputs[output++];
    out.dtype = x.dtype;
    out.ndim = x.ndim;
    std::copy(x.shape, x.shape + x.ndim, out.shape);
  }
  if (bytes == 0) return;
  plan->workspace_bytes = static_cast<uint64_t>(bytes);
  plan->workspace_alignment = kWorkspaceAlignment;
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
      check_written(op.schema, param, *args[param].as.tensor, type, own);
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

}  // namespace

void plan_call(FusedOp& op, const opdock_call* call, const opdock_value* args, uint32_t num_args,
               opdock_plan* plan) {
  ThreadCalls* const calls = ThreadOwn<ThreadCalls>::get();
  bool is_kept = false;
  plan->state[kPlanNumber] = 0;
  if (calls != nullptr) {
    calls->begin(op.number, call->device, args, num_args);
    plan->state[kPlanNumber] = calls->number;
    is_kept = calls->key.is_complete();
  }
  const RecentPlan* known = is_kept ? calls->plans.find(calls->key) : nullptr;
  if (known != nullptr) {
    repeat(*known, plan);
    plan->state[kPlanInstance] = reinterpret_cast<uintptr_t>(known->instance);
    return;
  }
  FusedInstance& instance = op.instance(args, num_args);
  fill_in(op, instance, args, call->device.type == OPDOCK_CPU, plan);
  plan->state[kPlanInstance] = reinterpret_cast<uintptr_t>(&instance);
  if (!is_kept) return;
  calls->plans.keep(calls->key, {&instance,
                                 {plan->outputs, plan->outputs + plan->num_outputs},
                                 plan->workspace_bytes,
                                 plan->workspace_alignment});
}

}  // namespace opdock
