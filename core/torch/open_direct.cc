// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include "direct.h"
#include "error.h"
#include "record.h"
#include "state.h"
#include "tensors.h"

namespace opdock::torch {

Direct* direct = nullptr;

void open_direct(void* library) {
  static const DirectHost kHost = {run,     fail,    to_dtype,      to_device,
                                   &python, &layout, &uses_recorder};
  const auto make =
      reinterpret_cast<decltype(&opdock_torch_direct)>(dlsym(library, "opdock_torch_direct"));
  if (make != nullptr) direct = make(&kHost);
}

}  // namespace opdock::torch
