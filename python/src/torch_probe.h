// The offsets that the search in torch's sample tensors found, for tests and for `opdock.doctor()`.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace opdock::python {

// Byte offsets; -1 if not found, in which case torch is asked through Python in every call.
struct TorchProbe {
  ptrdiff_t impl;
  ptrdiff_t keys;
  ptrdiff_t grad;
};

TorchProbe torch_probe_result();
// Replaces the search's result, for tests; {-1, -1, -1} means that nothing was found. Returns false
// with a Python error set.
bool torch_probe_set(const TorchProbe& found);

}  // namespace opdock::python
