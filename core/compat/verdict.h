// Judges a file: a pure function of what the plugin claims, what the file is, and what the machine
// has.
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

// Returns kRejected if a reason rejects, kUndecided if one leaves it undecided, else kUsable.
State worst(const std::vector<Reason>& reasons);

// The verdict for one device type or, for GPUs, for each GPU.
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

// The role that the file is judged for.
enum class Role {
  kPlugin,   // a file that is no plugin is rejected
  kLibrary,  // any native code: whether it loads, and on which GPUs its device code runs
};

// Pure: consults no file, device or environment.
Verdict judge(const FileFacts& file, const MachineFacts& machine, Role role = Role::kPlugin);

// Returns no-driver or no-gpu if the machine has no GPU of that backend, which must not be the CPU.
std::optional<Reason> reason_without(Backend backend, const MachineFacts& machine);

// Returns arch-below-least if the GPU is an NVIDIA one below the plugin's least architecture (10 *
// major + minor; 0: no limit).
std::optional<Reason> judge_least(int least, const Gpu& gpu);

// Returns the best image that runs on `gpu`: exact cubin before family, before lower minor, before
// PTX (JIT-compiled by the driver); among equals the newer toolkit is first. Returns -1 and reasons
// if none runs. An image that may or may not run (its toolkit is not recorded) is returned, with
// its reason, only if no other runs, so that a caller may try it. If PTX is returned, the notice
// ptx-only is added.
int best_image(const std::vector<DeviceImage>& images, const Gpu& gpu, const MachineFacts& machine,
               std::vector<Reason>* reasons);

}  // namespace opdock
