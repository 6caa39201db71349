// Describes attention to cuDNN as a graph of operations: products, scale, masks, softmax.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "attention/cudnn_api.h"
#include "attention/form.h"
#include "attention/graph_builder.h"

namespace opdock::attention {

// Returns the finalized graph, and in *uids the tensors that a run passes. NULL after a failure.
cudnn::cudnnBackendDescriptor_t describe(Descriptors* made, cudnn::cudnnHandle_t handle,
                                         const Form& form, std::vector<int64_t>* uids);

}  // namespace opdock::attention
