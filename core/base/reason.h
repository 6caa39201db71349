// The record that says why a file, plugin or kernel was rejected, left undecided or skipped. All
// parts of the library use it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace opdock {

// Every reason code. Their kebab-case names are stable; reason_codes.def lists them with their
// texts.
enum class Code {
#define OPDOCK_CODE(id, ...) k##id,
#include "base/reason_codes.def"
#undef OPDOCK_CODE
};

// The effect of a reason on the verdict of the plugin (or of one of its devices).
enum class Severity { kNotice, kUndecided, kReject };

struct CodeInfo {
  Code code;
  std::string_view name;   // "abi-major"
  std::string_view stage;  // "file", "note", "abi", … (docs/reference/verdicts.md)
  Severity severity;
  std::string_view meaning;
  std::string_view cause;
  std::string_view advice;  // used unless the code that found the problem has more precise advice
  // How a reason reads, such as "there is {found}"; empty: "found {found}, wanted {wanted}".
  std::string_view sentence = {};
  std::string_view found = {}, wanted = {};  // texts that never vary; empty if they do
};

// All codes, in the order of reason_codes.def.
const std::vector<CodeInfo>& all_codes();
const CodeInfo& info(Code code);

// found and wanted complete "found …, wanted …". advice is a sentence in the imperative.
struct Reason {
  Code code;
  std::string found;
  std::string wanted;
  std::string advice;
};

// Makes a reason with the code's default advice. Replaces each NUL in found or wanted by U+FFFD: a
// NUL, as in a compiler's output, would end the text wherever it is read as a C string.
Reason make_reason(Code code, std::string found, std::string wanted);
// Makes a reason of a code for which reason_codes.def has `found`, such as Code::kCancelled.
Reason make_reason(Code code);

bool has_code(std::span<const Reason> reasons, Code code);

// Returns the text with each NUL replaced by U+FFFD.
std::string without_nul(std::string text);

// Returns "abi-major: found ABI 1.0, wanted 0.x. Rebuild the plugin …" (defined in sentence.cc).
std::string to_text(const Reason& reason);

}  // namespace opdock
