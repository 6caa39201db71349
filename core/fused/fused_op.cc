// SPDX-License-Identifier: Apache-2.0
#include "fused/fused_op.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "call/invocation.h"
#include "formula/gradient.h"
#include "formula/operands.h"
#include "fused/ahead.h"
#include "fused/evaluate_call.h"
#include "fused/formula_arguments.h"
#include "fused/gradient_results.h"
#include "fused/graph_tensors.h"
#include "fused/plan_call.h"
#include "fused/run_call.h"
#include "manifest/formula_parameters.h"
#include "opdock/types.hpp"

namespace opdock {
namespace {

using formula::Graph;
using formula::Operands;
using formula::Parameter;
using formula::Type;

FusedOp& op_of(const opdock_call* call) {
  const auto* in = static_cast<const Invocation*>(call->host_data);
  return *reinterpret_cast<FusedOp*>(const_cast<opdock_op*>(in->target->op));
}

// Returns what plan_fused() has chosen.
FusedInstance& instance_of(const opdock_call* call) {
  return *reinterpret_cast<FusedInstance*>(
      static_cast<uintptr_t>(static_cast<const uint64_t*>(call->state)[kPlanInstance]));
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
    plan_call(op, call, args, num_args, plan);
    return OPDOCK_OK;
  });
}

opdock_status run_fused(const opdock_call* call, const opdock_value* args, uint32_t num_args,
                        opdock_value* results, uint32_t num_results) {
  return answered(call, [&] {
    const FusedOp& op = op_of(call);
    if (!op.is_evaluated)
      return run_call(op, instance_of(call), call, args, num_args, results, num_results);
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
  if (own_code != nullptr) made->cpu_code.bring(own_code(cpu_code_name(made->graph).c_str()));
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

FusedOp* FusedOp::of(const opdock_op& op) {
  if (op.run != run_fused) return nullptr;
  return reinterpret_cast<FusedOp*>(const_cast<opdock_op*>(&op));
}

std::array<size_t, 4> FusedOp::cpu_ways() {
  std::array<size_t, 4> ways = {};
  const std::lock_guard lock(mutex_);
  for (const auto& [key, instance] : instances_)
    ++ways[static_cast<size_t>(instance->cpu_code.way())];
  return ways;
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
