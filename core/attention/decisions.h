// The service's decisions about forms of attention in this process, for `opdock.explain`.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "attention/form.h"

namespace opdock::attention {

struct Decision {
  std::string op, device;
  std::string form;         // "bfloat16 4x32x2048 over 8x2048, heads of 128, causal"
  bool is_planned = false;  // the library computes it, else the plugin's own kernels
  std::string why;          // why the library does not
};

// Returns the form in words, for people.
std::string describe_form(const Form& form);

// Records a decision. It replaces an earlier one about the same op, device and form. The latest
// kMaxDecisions are kept. Any thread; not in the path of calls whose decision is known.
inline constexpr size_t kMaxDecisions = 64;
void record_decision(Decision decision);
// Returns the decisions about an op, the latest first. Any thread.
std::vector<Decision> decisions_about(std::string_view op);

}  // namespace opdock::attention
