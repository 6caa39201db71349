// A fault: one kind of damage to a plugin, and the reason that the reader must give for it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "base/reason.h"
#include "support/image_builder.h"

namespace opdock_test {

using opdock::Code;

struct Fault {
  std::string name;
  Code code;
  std::function<void(Plugin&)> damage;
};

inline void PrintTo(const Fault& fault, std::ostream* out) {
  *out << fault.name;
}

std::vector<Fault> elf_faults();
std::vector<Fault> note_faults();
std::vector<Fault> json_faults();
std::vector<Fault> image_faults();

}  // namespace opdock_test
