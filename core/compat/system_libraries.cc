// Judges the libraries that the note declares against the versions that the note accepts.
// SPDX-License-Identifier: Apache-2.0
#include <string_view>
#include <utility>

#include "compat/range.h"
#include "compat/system.h"

namespace opdock {
namespace {

std::optional<Version> version_here(const std::string& library, const MachineFacts& machine) {
  if (library == "rocm") return machine.rocm;
  const auto entry = machine.in_process.find(library);
  if (entry == machine.in_process.end()) return std::nullopt;
  return entry->second;
}

}  // namespace

bool is_declared(std::string_view name, const Note& note) {
  static constexpr std::pair<std::string_view, std::string_view> kPrefixes[] = {
      {"torch", "libtorch"},
      {"torch", "libc10"},
      {"cudart", "libcudart"},
      {"python", "libpython"},
      {"rocm", "libamdhip64"}};
  for (const auto& [library, prefix] : kPrefixes) {
    if (!name.starts_with(prefix)) continue;
    for (const LibraryClaim& claim : note.libraries) {
      if (claim.library == library) return true;
    }
  }
  return false;
}

void judge_libraries(const Note& note, const MachineFacts& machine, std::vector<Reason>* reasons) {
  for (const LibraryClaim& claim : note.libraries) {
    const std::optional<VersionRange> range = VersionRange::parse(claim.range);
    if (!range) {
      reasons->push_back(make_reason(Code::kNoteField,
                                     "requires." + claim.library + " = \"" + claim.range + "\"",
                                     "comparisons such as \">=2.11,<3\""));
      continue;
    }
    const std::string wanted =
        claim.range.empty() ? claim.library : claim.library + " " + claim.range;
    const std::optional<Version> here = version_here(claim.library, machine);
    if (!here) {
      Reason reason =
          make_reason(Code::kLibraryUnknown, "no " + claim.library + " in this process", wanted);
      if (claim.library == "torch") reason.advice = "import torch first";
      if (claim.library == "python") reason.advice = "use the plugin from Python";
      if (claim.library == "rocm") reason.advice = "install ROCm, if this machine has an AMD GPU";
      reasons->push_back(std::move(reason));
    } else if (!range->contains(*here)) {
      Reason reason = make_reason(Code::kLibraryRange, claim.library + " " + here->text(), wanted);
      reason.advice =
          "use " + wanted + ", or rebuild the plugin against " + claim.library + " " + here->text();
      reasons->push_back(std::move(reason));
    }
  }
}

}  // namespace opdock
