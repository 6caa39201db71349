// Parses the variables that hide and reorder GPUs: CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES, …
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace opdock {

// An entry of the list: device number `ordinal`, or the device whose UUID begins with `uuid`.
struct VisibleToken {
  int ordinal = -1;  // -1: named by UUID
  std::string uuid;  // "GPU-8932f937", "MIG-…"
};

struct VisibleDevices {
  std::vector<VisibleToken> tokens;  // in the list's order, up to the first invalid one
  std::string problem;               // why the list ended early, for people; empty if it did not
  // Whether the first token is a number; all others must be of the same kind.
  bool by_number = true;
};

// Parses such a list as the CUDA driver does. Numbers may have trailing text ("1st" is 1). A number
// that is negative or not less than `count`, or a token of another kind than the first, ends the
// list. A repeated token makes it empty. An empty list hides every GPU.
VisibleDevices parse_visible_devices(std::string_view list, int count);

// Returns the indices into `uuids` that the tokens choose, in their order. A UUID prefix that fits
// no device or several ends the list; a device that is chosen twice makes it empty.
std::vector<int> choose_visible(const VisibleDevices& visible,
                                const std::vector<std::string>& uuids, std::string* problem);

}  // namespace opdock
