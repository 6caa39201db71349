// Calls a function of libopdock without the GIL and throws its error as a Python exception.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <vector>

#include "errors.h"
#include "gil.h"

namespace opdock::python {

// Size of the buffer for an error's text, which may list every candidate with its reasons, or quote
// a compiler.
inline constexpr uint32_t kLongText = 32 << 10;

// Calls f(error, error_size) without the GIL; throws error_already_set with the Python exception
// for the status that it returns.
template <typename F>
void check(const F& f) {
  std::vector<char> text(kLongText, '\0');
  opdock_status status = OPDOCK_OK;
  {
    const GilRelease release;
    status = f(text.data(), kLongText);
  }
  if (status == OPDOCK_OK) return;
  raise_status(status, text.data());
  throw pybind11::error_already_set();
}

}  // namespace opdock::python
