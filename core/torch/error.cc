// SPDX-License-Identifier: Apache-2.0
#include "error.h"

#include <stdexcept>
#include <string_view>

#include "state.h"

namespace opdock::torch {

void fail(opdock_status status, const std::string& text) {
  constexpr std::string_view kGeneral = "make it contiguous first";
  std::string said = text;
  if (said.ends_with(kGeneral))
    said.replace(said.size() - kGeneral.size(), kGeneral.size(), "pass ….contiguous()");
  if (python.raise != nullptr) python.raise(status, said.c_str());
  throw std::runtime_error(said);
}

}  // namespace opdock::torch
