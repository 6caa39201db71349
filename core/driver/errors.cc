// SPDX-License-Identifier: Apache-2.0
#include "driver/errors.h"

#include <algorithm>
#include <string>

#include "base/quantity.h"

namespace opdock {

std::optional<ErrorMeaning> common_meaning(int result) {
  switch (result) {
    case 2:
      return ErrorMeaning{OPDOCK_OUT_OF_MEMORY, "free device memory, or use less"};
    case 3:
      return ErrorMeaning{OPDOCK_DEVICE_ERROR,
                          "start GPU work after fork, or start processes by spawn"};
    case 101:
      return ErrorMeaning{OPDOCK_DEVICE_ERROR,
                          "use a device index below the number of visible GPUs"};
    case 500:
      return ErrorMeaning{OPDOCK_NOT_FOUND, "check the name"};
    case 701:
      return ErrorMeaning{OPDOCK_UNSUPPORTED,
                          "launch fewer threads per block or less shared memory"};
    case 720:
      return ErrorMeaning{OPDOCK_UNSUPPORTED, "launch fewer blocks: all must fit the GPU at once"};
    case 900:
    case 901:
    case 904:
    case 905:
    case 906:
    case 907:
    case 908:
      return ErrorMeaning{OPDOCK_DEVICE_ERROR, "prepare the op before the stream is captured"};
    default:
      return std::nullopt;
  }
}

Status describe_error(const char* function, int result, const char* name, const char* text,
                      const ErrorMeaning& meaning) {
  std::string line(function);
  line.append(": ").append(name == nullptr ? "an unknown error" : name);
  line.append(" (").append(std::to_string(result)).append("), ");
  line.append(text == nullptr ? "no description" : text).append("; ").append(meaning.advice);
  return {meaning.status, std::move(line)};
}

Status wrong_argument_count(uint32_t found, size_t wanted) {
  return {OPDOCK_INTERNAL, "launch(): found " + quantity(found, "argument") +
                               ", wanted the kernel's " + std::to_string(wanted) +
                               "; rebuild the plugin, or pass the arguments that the kernel "
                               "declares"};
}

Status too_much_shared_memory(uint32_t found, uint32_t most, uint32_t own) {
  std::string text = "launch(): found " + std::to_string(found) +
                     " bytes of dynamic shared memory, wanted at most " +
                     std::to_string(most - std::min(own, most)) + " on this GPU";
  if (own != 0) text += ", as the kernel has " + std::to_string(own) + " of its own";
  return {OPDOCK_UNSUPPORTED, text + "; launch with less"};
}

}  // namespace opdock
