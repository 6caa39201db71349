// SPDX-License-Identifier: Apache-2.0
#include "attention/price.h"

#include <algorithm>

namespace opdock::attention {
namespace {

// Operations a second of one multiprocessor, in float16 or bfloat16 with heads of 128 elements.
struct Rates {
  uint32_t arch_major;  // and newer, until the next line
  uint32_t arch_minor;
  double own_forward, own_backward, library_forward, library_backward;
};
// The line of 9.0 is measured, but for own_backward: prompts of 4 x 32 heads x 2048 causal on an
// H200 and an H100 with 132 multiprocessors, cuDNN 9.19. Its own_backward is inferred from how much
// slower own gradients were than flash attention's. The other lines are derived, not measured: from
// the tensor cores' rates, of which own kernels reach the share that they reach on 9.0 of those
// instructions that 8.0 has too, and the library what NVIDIA and FlashAttention's authors report.
constexpr Rates kRates[] = {
    {8, 0, 1.3e12, 0.75e12, 1.8e12, 1.3e12},     // A100, 108 multiprocessors
    {8, 6, 0.75e12, 0.4e12, 0.95e12, 0.75e12},   // GeForce and RTX
    {9, 0, 1.55e12, 0.95e12, 3.9e12, 2.9e12},    // H100, H200
    {10, 0, 1.55e12, 0.95e12, 7.5e12, 5.0e12},   // B200
    {12, 0, 0.75e12, 0.45e12, 1.05e12, 0.85e12}  // GeForce and RTX
};

}  // namespace

double operations_of(const Form& form) {
  const auto queries = static_cast<double>(form.queries), keys = static_cast<double>(form.keys);
  double seen = keys;  // by a query, on average
  if (form.has(OPDOCK_ATTENTION_CAUSAL)) {
    const bool last = form.has(OPDOCK_ATTENTION_BOTTOM_RIGHT) && keys > queries;
    seen = last ? keys - queries / 2 : std::min(queries, keys) / 2;
  }
  if (form.window != 0) seen = std::min(seen, static_cast<double>(form.window));
  const double each = 2.0 * static_cast<double>(form.size + form.value_size);
  const double products = form.has(OPDOCK_ATTENTION_BACKWARD) ? 2.5 : 1.0;
  return static_cast<double>(form.batch * form.heads) * queries * seen * each * products;
}

double lost_seconds(const Form& form, const opdock_device_facts& facts) {
  const auto version = [](uint32_t major, uint32_t minor) { return major * 100 + minor; };
  const Rates* rates = nullptr;
  for (const Rates& each : kRates) {
    if (version(each.arch_major, each.arch_minor) <= version(facts.arch_major, facts.arch_minor))
      rates = &each;
  }
  if (rates == nullptr || facts.multiprocessors == 0) return 0;
  const bool backward = form.has(OPDOCK_ATTENTION_BACKWARD);
  const double own = backward ? rates->own_backward : rates->own_forward;
  const double library = backward ? rates->library_backward : rates->library_forward;
  const double operations = operations_of(form) / facts.multiprocessors;
  return std::max(0.0, operations / own - operations / library);
}

}  // namespace opdock::attention
