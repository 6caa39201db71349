// What the search in torch's sample tensors found: for tests and for `opdock.doctor()`.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace opdock::python {

// Byte offsets; -1: not found, so that torch is asked on every call.
struct TorchProbe {
  ptrdiff_t impl;
  ptrdiff_t keys;
  ptrdiff_t grad;
};

TorchProbe torch_probe_result();
// Acts from now on as if the search had found this; {-1, -1, -1}: nothing (for tests). False with a
// Python error set.
bool torch_probe_set(const TorchProbe& found);

}  // namespace opdock::python
