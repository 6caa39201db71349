// Visits the tensors among the arguments of a call, and names them for messages.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "call/function.h"
#include "opdock/plugin.h"

namespace opdock {

// A parameter, or an element of the list passed for it.
struct ArgumentPlace {
  uint32_t param;
  int32_t element = -1;  // -1: the argument itself
};

inline ArgumentPlace place_of(size_t param) {
  return {static_cast<uint32_t>(param), -1};
}
inline ArgumentPlace place_of(size_t param, uint64_t element) {
  return {static_cast<uint32_t>(param), static_cast<int32_t>(element)};
}

// Names an argument for messages: "argument 'x'", "element 1 of argument 'xs'".
inline std::string name_of(const opdock_function& function, ArgumentPlace place) {
  std::string name;
  if (place.element >= 0) name = "element " + std::to_string(place.element) + " of ";
  return name + "argument '" + function.schema().params[place.param].name + "'";
}

// Visits every tensor of the arguments in order, with its place. The arguments must fit their
// parameters. f(place, value) returns false to stop.
template <class F>
bool each_tensor(const opdock_function& function, const opdock_value* args, F&& f) {
  const opdock_param* params = function.params();
  for (size_t i = 0; i < function.num_params(); ++i) {
    if (args[i].tag == OPDOCK_TAG_TENSOR) {
      if (!f(place_of(i), args[i])) return false;
    } else if (args[i].tag == OPDOCK_TAG_LIST && params[i].tag == OPDOCK_TAG_TENSOR) {
      const opdock_list& list = *args[i].as.list;
      for (uint64_t k = 0; k < list.count; ++k) {
        if (list.data[k].tag == OPDOCK_TAG_TENSOR && !f(place_of(i, k), list.data[k])) return false;
      }
    }
  }
  return true;
}

}  // namespace opdock
