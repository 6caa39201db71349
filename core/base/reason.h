// Why something was rejected, left undecided or passed over: one record, the same everywhere.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace opdock {

// Every reason code. Their kebab-case names are stable; codes.def holds them with their texts.
enum class Code {
#define OPDOCK_CODE(id, name, stage, severity, meaning, cause, advice) k##id,
#include "base/codes.def"
#undef OPDOCK_CODE
};

// What a reason does to the verdict of the plugin (or of one of its devices).
enum class Severity { kNotice, kUndecided, kReject };

struct CodeInfo {
  Code code;
  std::string_view name;   // "abi-major"
  std::string_view stage;  // "file", "note", "abi", "system", "device", … (docs/verdicts.md)
  Severity severity;
  std::string_view meaning;
  std::string_view cause;
  std::string_view advice;  // used when the place that found it has nothing more precise
};

// All codes, in the order of codes.def.
const std::vector<CodeInfo>& all_codes();
const CodeInfo& info(Code code);

// found and wanted complete "found …, wanted …"; advice is a sentence in the imperative.
struct Reason {
  Code code;
  std::string found;
  std::string wanted;
  std::string advice;
};

// A reason with the code's own advice. A NUL in found or wanted, as a compiler's output may have,
// is replaced by U+FFFD: it would end the text wherever it is read as a C string.
Reason make_reason(Code code, std::string found, std::string wanted);

bool has_code(std::span<const Reason> reasons, Code code);

// The text with each NUL replaced in that way.
std::string without_nul(std::string text);

// "abi-major: found ABI 1.0, wanted 0.x. Rebuild the plugin …" (sentence.cc)
std::string to_text(const Reason& reason);

}  // namespace opdock
