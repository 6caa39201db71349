// SPDX-License-Identifier: Apache-2.0
#include "fused/run_sums.h"

#include <cstring>
#include <deque>
#include <vector>

#include "call/invocation.h"
#include "formula/space.h"
#include "fused/call_checks.h"
#include "fused/call_data.h"
#include "fused/call_workspace.h"
#include "fused/cpu_run.h"
#include "fused/formula_arguments.h"
#include "fused/gradient_results.h"
#include "fused/graph_tensors.h"

namespace opdock {
namespace {

using formula::Graph;
using formula::Operand;
using formula::Operands;
using formula::Type;

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
  if (!is_empty) check_reads(graph, inputs, outputs);
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
  const CpuWork work = {instance,   space,   in.data(),
                        out.data(), scalars, graph.has_sums() ? partial : nullptr};
  return run_on_cpu(call, work);
}

// Sums the gradients that have more rows than their parameters.
opdock_status sum_rows(const opdock_call* call, FusedInstance& instance, Type type, Type to,
                       const std::vector<RowSum>& sums, char* from, const ShapedView& result) {
  for (size_t i = 0; i < sums.size(); ++i) {
    const bool is_last = i + 1 == sums.size();
    char* const next = from + workspace_bytes(sums[i].from, type);
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

}  // namespace

opdock_status run_sums(const opdock_call* call, FusedInstance& instance, const opdock_value* args,
                       const opdock_value* results) {
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
    for (const RowSum& sum : sums[i]) next += workspace_bytes(sum.from, type(i));
  }
  opdock_status done =
      run_graph(call, instance, inputs.list, outputs, data.scalars.data(), partial);
  for (size_t i = 0; done == OPDOCK_OK && i < sums.size(); ++i)
    done = sum_rows(call, instance, type(i), *type_of(result(i).dtype), sums[i], summed[i],
                    view_of_gradient(instance.wanted[i], own.list()[i], shape));
  return done;
}

}  // namespace opdock
