// Checks that tensors that a call writes do not share memory with any other tensor of the call.
// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <vector>

#include "call/call.h"
#include "call/memory_conflict.h"
#include "call/tensor_arguments.h"

namespace opdock {
namespace {

constexpr size_t kFewViews = 16;

// Returns the name of view number `index`: "argument 'x'", "output 0".
std::string name_of_view(const opdock_function& function, const opdock_value* args,
                         uint32_t index) {
  uint32_t left = index;
  std::string name;
  each_tensor(function, args, [&](ArgumentPlace place, const opdock_value&) {
    if (left-- != 0) return true;
    name = name_of(function, place);
    return false;
  });
  return name.empty() ? "output " + std::to_string(left) : name;
}

[[gnu::cold, gnu::noinline]] opdock_status refuse(const opdock_function& function,
                                                  const opdock_value* args,
                                                  const MemoryConflict& conflict,
                                                  bool second_written, bool output,
                                                  const ErrorBuffer& error) {
  const uint32_t at_fault = second_written ? conflict.second : conflict.first;
  const uint32_t other = second_written ? conflict.first : conflict.second;
  std::string text = name_of_view(function, args, at_fault) + ": found memory ";
  text += conflict.overlap == views::Overlap::kShared
              ? "shared with "
              : "so interleaved that it takes too long to tell it from that of ";
  text += name_of_view(function, args, other) + ", wanted memory of its own, as the op writes it; ";
  text += output ? "pass another output" : "copy one of the two";
  error.write(function.schema().name, ": ", text);
  return OPDOCK_INVALID_ARGUMENT;
}

}  // namespace

opdock_status check_sharing(const opdock_function& function, const Target& target,
                            const opdock_value* args, opdock_tensor* const* outputs,
                            uint32_t num_outputs, const ErrorBuffer& error) {
  const opdock_param* params = function.params();
  size_t count = function.num_params() + num_outputs;
  for (size_t i = 0; i < function.num_params(); ++i) {
    if (args[i].tag == OPDOCK_TAG_LIST && params[i].tag == OPDOCK_TAG_TENSOR) {
      count += args[i].as.list->count;
    }
  }
  View few[kFewViews];
  std::unique_ptr<View[]> many(count > kFewViews ? new View[count] : nullptr);
  View* const all = many != nullptr ? many.get() : few;
  View* end = all;
  uint32_t index = 0;
  const auto add = [&](const opdock_tensor& x, View::Role role, bool is_apart = false) {
    const views::Extent extent = views::extent_of(x);
    if (extent.low != extent.high) *end++ = {extent, &x, index, role, is_apart};
    ++index;
  };
  const TensorRules* const rules = target.tensor_rules.get();
  each_tensor(function, args, [&](ArgumentPlace place, const opdock_value& value) {
    const bool written = (params[place.param].flags & OPDOCK_PARAM_WRITTEN) != 0;
    const bool is_apart = rules != nullptr && rules->is_apart(place.param);
    add(*value.as.tensor, written ? View::kWritten : View::kRead, is_apart);
    return true;
  });
  const uint32_t first_output = index;
  for (uint32_t i = 0; i < num_outputs; ++i) {
    if (outputs[i] != nullptr) {
      add(*outputs[i], View::kOutput);
    } else {
      ++index;
    }
  }
  const std::optional<MemoryConflict> conflict =
      find_conflict(all, static_cast<size_t>(end - all), target.has_flag(OPDOCK_OP_IN_PLACE));
  if (!conflict) [[likely]]
    return OPDOCK_OK;
  bool second_written = false;
  for (const View* view = all; view < end; ++view) {
    if (view->index == conflict->second) second_written = view->role != View::kRead;
  }
  return refuse(function, args, *conflict, second_written, conflict->second >= first_output, error);
}

}  // namespace opdock
