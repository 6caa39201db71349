// Checks what a formula refuses in the tensors of a call. All functions throw Error or
// formula::Error.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "formula/operands.h"
#include "fused/fused_instance.h"
#include "opdock/plugin.h"
#include "schema/schema.h"

namespace opdock {

// Refuses rows without columns where a reduction has no value for them.
void check_columns(const formula::Graph& graph, const std::vector<int64_t>& shape);

// Checks that a result can be written into the argument that the schema names.
void check_written(const Schema& schema, int param, const opdock_tensor& x, formula::Type type,
                   const std::vector<int64_t>& shape);

// Checks that a further part of a result has the dtype of the first one.
void check_part(const formula::Graph& graph, size_t result, formula::Type type);

// Refuses gradients of results that have more elements than the results. inputs: of read_tensors().
void check_incoming(const FusedInstance& instance, const std::vector<formula::Operand>& inputs,
                    const std::vector<int64_t>& shape);

// Refuses a result that has one element for a row and is written over an input. Where their shapes
// are equal, the input is read by all rows, some of which would find the result there.
void check_reads(const formula::Graph& graph, const std::vector<formula::Operand>& inputs,
                 const std::vector<formula::Operand>& results);

// Refuses a result in the memory of a tensor that is read in other parts than those in which the
// result is written: elements would be overwritten before they are read.
void check_parts(const FusedInstance& instance, const opdock_value* args,
                 const opdock_value* results);

}  // namespace opdock
