// SPDX-License-Identifier: Apache-2.0
#include "fused/run_call.h"

#include <utility>
#include <vector>

#include "base/thread_own.h"
#include "call/invocation.h"
#include "formula/device_launch.h"
#include "formula/space.h"
#include "fused/call_checks.h"
#include "fused/call_data.h"
#include "fused/cpu_run.h"
#include "fused/graph_tensors.h"
#include "fused/plan_call.h"
#include "fused/recent_calls.h"
#include "fused/run_sums.h"

namespace opdock {
namespace {

using formula::Graph;
using formula::Operand;

opdock_status run(const opdock_call* call, const RecentRun& how, CallData* data) {
  FusedInstance& instance = *how.instance;
  data->move_to_parts(how.part_offsets, instance.tensors.size());
  if (call->device.type == OPDOCK_CPU)
    return run_on_cpu(call,
                      CpuWork{instance, how.space, data->inputs.data(), data->results.data(),
                              data->scalars.data(), instance.has_sums ? call->workspace : nullptr});
  return instance.on_gpu.launch(static_cast<Invocation*>(call->host_data), how.launch,
                                data->inputs.data(), data->results.data(), data->scalars.data());
}

}  // namespace

opdock_status run_call(const FusedOp& op, FusedInstance& instance, const opdock_call* call,
                       const opdock_value* args, uint32_t num_args, const opdock_value* results,
                       uint32_t num_results) {
  // On the CPU sums over all rows take one step more, and nothing else.
  const bool is_one_run = call->device.type == OPDOCK_CPU && instance.row_sums.empty();
  if (instance.has_sums && !is_one_run) return run_sums(call, instance, args, results);
  const Graph& graph = instance.graph;
  CallData data(instance, args, results);
  ThreadCalls* const calls = ThreadOwn<ThreadCalls>::get();
  bool is_kept = false;
  uint64_t number = static_cast<const uint64_t*>(call->state)[kPlanNumber];
  if (calls != nullptr) {
    // Another call may have come between the plan and the run.
    if (calls->number != number) calls->begin(op.number, call->device, args, num_args);
    calls->add_results(call->device, results, num_results);
    number = calls->number;
    is_kept = calls->key.is_complete();
  }
  const RecentRun* known = is_kept ? calls->runs.find(calls->key) : nullptr;
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
  if (space.rows == 0 || (space.columns == 0 && !graph.has_reductions()))
    return instance.has_sums ? run_sums(call, instance, args, results) : OPDOCK_OK;
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
  // Preparing may have called a hook of the program, which may have made calls of its own.
  if (status == OPDOCK_OK && is_kept && calls->number == number)
    calls->runs.keep(calls->key, std::move(how));
  return status;
}

}  // namespace opdock
