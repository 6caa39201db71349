// The error of a call with an argument that it cannot take.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "operator.h"

namespace opdock::torch {

inline constexpr char kUnreadableTensor[] =
    "found a tensor that Opdock cannot read, wanted dense memory on the CPU or on a GPU, of at "
    "most "
    "16 dimensions and of a dtype of numbers";
inline constexpr char kInferenceTensor[] =
    "found a tensor that was made in inference mode, wanted one of outside of it, as it is to be "
    "written; pass x.clone(), or call under torch.inference_mode()";
inline constexpr char kUnknownDtype[] =
    "found a dtype that Opdock does not have, wanted one of numbers";

inline std::string argument_error(const Operator& op, const Parameter& parameter,
                                  const char* what) {
  return op.name + "(): argument '" + op.info->params[parameter.index].name + "': " + what;
}

}  // namespace opdock::torch
