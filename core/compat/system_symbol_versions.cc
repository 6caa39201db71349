// Symbol versions such as GLIBC_2.34, needed by the file and provided here.
// SPDX-License-Identifier: Apache-2.0
#include "compat/system.h"

namespace opdock {
namespace {

struct Needed {
  Version version;
  std::string text;  // as in the file: "GLIBC_2.34"
  std::string library;
};

// "GLIBCXX_3.4.30" is 3.4.30 of GLIBCXX. Names without a number (GLIBC_PRIVATE, CXXABI_FLOAT128)
// have no order; nothing can be said about them, except where the C library's history is known.
bool split(const std::string& text, std::string* prefix, Version* version) {
  // Relative relocations: the linker asks for this name instead of a number; glibc has it since
  // 2.36.
  if (text == "GLIBC_ABI_DT_RELR") {
    *prefix = "GLIBC";
    *version = Version{2, 36};
    return true;
  }
  const size_t underscore = text.rfind('_');
  if (underscore == text.npos) return false;
  const std::optional<Version> number = Version::parse(text.substr(underscore + 1));
  if (!number) return false;
  *prefix = text.substr(0, underscore);
  *version = *number;
  return true;
}

}  // namespace

Code version_code(const std::string& version) {
  if (version.starts_with("GLIBC_")) return Code::kGlibcVersion;
  if (version.starts_with("GLIBCXX_") || version.starts_with("CXXABI_")) {
    return Code::kLibstdcxxVersion;
  }
  return Code::kSymbolVersion;
}

void judge_symbol_versions(const FileFacts& file, const MachineFacts& machine,
                           std::vector<Reason>* reasons) {
  std::map<std::string, Needed> newest;
  for (const SymbolVersion& row : file.versions) {
    if (row.weak) continue;  // the loader lets a weak one be absent
    std::string prefix;
    Version version;
    if (!split(row.version, &prefix, &version)) continue;
    Needed& entry = newest[prefix];
    if (entry.version.empty() || entry.version < version) {
      entry = {version, row.version, row.library};
    }
  }
  for (const auto& [prefix, needed] : newest) {
    const auto here = machine.symbol_versions.find(prefix);
    if (here == machine.symbol_versions.end() || needed.version <= here->second) continue;
    reasons->push_back(make_reason(version_code(needed.text), needed.text + " of " + needed.library,
                                   "at most " + prefix + "_" + here->second.text()));
  }
}

}  // namespace opdock
