// Estimates how much time plugins' own kernels lose beside the library, so that a form of attention
// earns its plan before the plan is made.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention/form.h"
#include "opdock/plugin.h"

namespace opdock::attention {

// The seconds that the library takes for a plan, measured on an H100 with cuDNN 9.19; the first
// plan of a kind takes up to 2 s, because NVIDIA's compiler makes its kernel.
inline constexpr double kPlanSeconds = 0.1;

// Returns the floating-point operations of the products, without those for keys that a mask hides.
// Lengths are unknown here and count as if each row were full.
double operations_of(const Form& form);

// Returns the seconds that a call of own kernels takes longer than one of the library's; 0 if it
// does not. A function of the form and the device alone: the same calls earn the same plans.
double lost_seconds(const Form& form, const opdock_device_facts& facts);

}  // namespace opdock::attention
