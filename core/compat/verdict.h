// Judging: a pure function of what the plugin claims, what the file is, and what the machine has.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/reason.h"
#include "facts/machine.h"
#include "note/file_facts.h"

namespace opdock {

enum class State { kUsable, kUndecided, kRejected };
std::string_view to_text(State state);  // "usable", "undecided", "rejected"

// What the reasons come to: kRejected if one rejects, kUndecided if one leaves undecided.
State worst(const std::vector<Reason>& reasons);

// How one device type, and on GPUs each GPU, fares.
struct DeviceVerdict {
  Backend backend;
  int index = -1;  // the GPU, or -1 for the CPU and for a backend with no GPU here
  State state = State::kRejected;
  int image = -1;  // index into FileFacts::images of the best image, or -1: the CPU, none fits, or
                   // a plugin without any device part, which launches no kernels of its own
  std::vector<Reason> reasons;  // why this device is not usable, or notices
};

// usable: no reason against the file as a whole and at least one device usable. rejected: a reason
// against the file, or every device rejected. undecided: neither.
struct Verdict {
  State state = State::kRejected;
  std::vector<Reason> reasons;  // all: the file's, then each device's
  std::vector<DeviceVerdict> devices;
};

// What the file is asked to be.
enum class Role {
  kPlugin,   // what is no plugin is rejected
  kLibrary,  // any native code: whether it loads, and on which GPUs its device code runs
};

// Pure: no file, no device, no environment is consulted.
Verdict judge(const FileFacts& file, const MachineFacts& machine, Role role = Role::kPlugin);

// no-driver or no-gpu if the machine has no GPU of that backend, which is not the CPU.
std::optional<Reason> reason_without(Backend backend, const MachineFacts& machine);

// arch-below-least if the GPU is an NVIDIA one below the least architecture that a plugin is for
// (10 * major + minor; 0: any will do).
std::optional<Reason> judge_least(int least, const Gpu& gpu);

// Of the images that run on `gpu` the best: exact cubin before family, before lower minor, before
// PTX (JIT-compiled by the driver), newer toolkit first among equals. -1 and reasons if none does.
// An image that may or may not run (its toolkit is not recorded) is the answer only where no other
// is, with its reason, so that a caller may try it. PTX as the answer adds the notice ptx-only.
int best_image(const std::vector<DeviceImage>& images, const Gpu& gpu, const MachineFacts& machine,
               std::vector<Reason>* reasons);

}  // namespace opdock
