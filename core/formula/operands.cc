// SPDX-License-Identifier: Apache-2.0
#include "formula/operands.h"

#include <algorithm>

namespace opdock::formula {

void Operands::add(const Operand& whole, Part part, int size, const std::string& name) {
  list_.push_back(whole);
  if (part.parts == 1) return;
  const int last = whole.rank - 1;
  const std::string wanted = ", wanted " + std::to_string(part.parts) +
                             " equal parts along its last dimension, which the formula takes";
  if (whole.rank == 0) throw Error("\"" + name + "\": found no dimensions" + wanted);
  if (whole.rank > kMaxDims) return;  // broadcast_shape() refuses it
  const int64_t columns = whole.shape[last];
  if (columns % part.parts != 0)
    throw Error("\"" + name + "\": found a last dimension of " + std::to_string(columns) + wanted);
  std::array<int64_t, kMaxDims>& shape = shapes_.emplace_front();
  std::copy_n(whole.shape, whole.rank, shape.begin());
  shape[static_cast<size_t>(last)] = columns / part.parts;
  Operand& made = list_.back();
  made.shape = shape.data();
  made.data = static_cast<char*>(whole.data) +
              part.part * (columns / part.parts) * whole.strides[last] * size;
}

bool has_parts(const Graph& graph) {
  const auto is_part = [](const Part& part) { return part.parts > 1; };
  return std::any_of(graph.inputs().begin(), graph.inputs().end(),
                     [&](const Input& input) { return is_part(input.part); }) ||
         std::any_of(graph.result_parts().begin(), graph.result_parts().end(), is_part);
}

}  // namespace opdock::formula
