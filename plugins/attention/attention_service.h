// Prompts that the host's attention service computes (opdock/attention.h).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention_checks.h"

namespace attention {

// An attention without lengths, masks, biases and scales of a cache.
struct Prompt {
  Tensor q, k, v;
  float scale;
  bool causal;
  int64_t window;
};

// Returns whether the service computes the prompt, and in *bytes the workspace that it needs.
bool attention_service(const Plan& plan, const Prompt& prompt, uint64_t* bytes);
// Returns whether the service has enqueued the prompt. The results may not suit it although it has
// planned the prompt: then the plugin's own kernels have to serve.
bool attention_service(Call& call, const Prompt& prompt, Tensor out);

}  // namespace attention
