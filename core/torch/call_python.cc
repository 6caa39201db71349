// SPDX-License-Identifier: Apache-2.0
#include "call_python.h"

#include <memory>
#include <new>
#include <vector>

#include "call_memory.h"
#include "error.h"
#include "state.h"

namespace opdock::torch {

void call_python(const Operator& op, StableIValue* stack) {
  const size_t count = op.parameters.size();
  std::vector<StableIValue> values(stack, stack + count);
  values.resize(count + 1);
  const int32_t error = torch_call_dispatcher(op.python.c_str(), "", values.data(), kTorchVersion);
  const auto list = reinterpret_cast<StableListHandle>(values[0]);
  const Owned owned = {nullptr, values[0], Owned::kList};
  const auto free_list = [](const Owned* one) { release(*one); };
  const std::unique_ptr<const Owned, decltype(free_list)> freed(error == 0 ? &owned : nullptr,
                                                                free_list);
  python.rethrow();
  if (error != 0)
    fail(OPDOCK_INTERNAL, op.name + ": found an error of torch in the operator " + op.python);
  size_t size = 0;
  torch_list_size(list, &size);
  const auto take = [list](size_t i) {
    StableIValue item = 0;  // NULL or an owned address of a handle
    torch_list_get_item(list, i, &item);
    return item;
  };
  const auto unwrap = [](StableIValue item) {
    auto* const address = reinterpret_cast<StableIValue*>(item);
    const StableIValue handle = address == nullptr ? 0 : *address;
    delete address;
    return handle;
  };
  size_t place = 0;
  for (const Result& result : op.results) {
    if (result.is_list) {  // such a result is the only one
      StableListHandle out = nullptr;
      if (torch_new_list_reserve_size(size, &out) != 0) throw std::bad_alloc();
      for (size_t i = 0; i < size; ++i) torch_list_push_back(out, unwrap(take(i)));
      stack[place] = reinterpret_cast<StableIValue>(out);
    } else {
      stack[place] = result.is_optional ? take(place) : unwrap(take(place));
    }
    ++place;
  }
}

}  // namespace opdock::torch
