// SPDX-License-Identifier: Apache-2.0
#include "fused/call_checks.h"

#include <string>

#include "call/tensor_check.h"
#include "fused/formula_arguments.h"
#include "fused/graph_tensors.h"
#include "opdock/types.hpp"
#include "schema/dtype.h"

namespace opdock {
namespace {

using formula::Graph;
using formula::Operand;
using formula::Type;

}  // namespace

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

void check_written(const Schema& schema, int param, const opdock_tensor& x, Type type,
                   const std::vector<int64_t>& shape) {
  const std::string found = schema.params[static_cast<size_t>(param)].name;
  const std::vector<int64_t> own(x.shape, x.shape + x.ndim);
  if (own == shape && same(x.dtype, dtype_of(type))) return;
  throw Error(OPDOCK_INVALID_ARGUMENT,
              "argument '" + found + "': found " + to_text(x.dtype) + " of shape " +
                  shape_text(own) + ", wanted " + std::string(formula::name_of(type)) +
                  " of shape " + shape_text(shape) + ", because the result is written into it");
}

void check_part(const Graph& graph, size_t result, Type type) {
  const Type first = graph[graph.results()[result - graph.result_parts()[result].part]].type;
  if (type == first) return;
  throw formula::Error("cat: found parts of " + std::string(formula::name_of(first)) + " and " +
                       std::string(formula::name_of(type)) +
                       ", wanted one dtype; convert one of them: x.to(y.dtype)");
}

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
                           shape_text(one.rank, one.shape) + ", wanted " + shape_text(shape) +
                           ", that of the formula's tensors together");
  }
}

void check_reads(const Graph& graph, const std::vector<Operand>& inputs,
                 const std::vector<Operand>& results) {
  const std::vector<int64_t> shape = formula::broadcast_shape(graph, inputs);
  for (const Operand& result : results) {
    if (static_cast<size_t>(result.rank) == shape.size()) continue;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].data != result.data) continue;
      throw formula::Error("\"" + graph.inputs()[i].name + "\": found a result of shape " +
                           shape_text(result.rank, result.shape) +
                           " that is written over it, but the formula's rows of shape " +
                           shape_text(shape) + " all read it; pass a copy");
    }
  }
}

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

}  // namespace opdock
