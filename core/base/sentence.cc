// SPDX-License-Identifier: Apache-2.0
#include "base/sentence.h"

#include <algorithm>

namespace opdock {
namespace {

// Returns the template of a code's sentence, in which {found} and {wanted} stand for the reason's
// fields. NULL means "found {found}, wanted {wanted}", for two things that can be compared.
const char* form_of(Code code) {
  switch (code) {
    // For these, `found` is already a complete statement.
    case Code::kPathMissing:
    case Code::kPathUnreadable:
    case Code::kLinkBroken:
    case Code::kDuplicatePlugin:
    case Code::kSuperseded:
    case Code::kUntrustedWritable:
    case Code::kFileChanged:
    case Code::kEntryMissing:
    case Code::kLibraryMissing:
    case Code::kNoDriver:
    case Code::kNoGpu:
    case Code::kNoKernels:
    case Code::kDriverFailed:
    case Code::kLoadFailed:
    case Code::kCacheDamaged:
    case Code::kCacheWrite:
    case Code::kCacheLock:
    case Code::kJitPolicy:
    case Code::kJitNoCompiler:
    case Code::kJitSource:
    case Code::kJitKernel:
    case Code::kJitFailed:
    case Code::kJitWorker:
    case Code::kJitImage:
    case Code::kJitKeep:
    case Code::kBuildPolicy:
    case Code::kBuildUntrusted:
    case Code::kBuildSource:
    case Code::kBuildIncomplete:
    case Code::kBuildNoCompiler:
    case Code::kBuildNoMeson:
    case Code::kBuildNoNinja:
    case Code::kBuildNoNvcc:
    case Code::kBuildNoHipcc:
    case Code::kBuildNoPkgConfig:
    case Code::kBuildHeaderMissing:
    case Code::kBuildMemory:
    case Code::kBuildCompilerCrash:
    case Code::kBuildFailed:
    case Code::kBuildTimeout:
    case Code::kBuildResult:
    case Code::kBuildRemembered:
    case Code::kSourceChanged:
    case Code::kArchPtx:
    case Code::kReferenceMissing:
    case Code::kReferenceUnusable:
    case Code::kReferencePolicy:
      return "{found}";
    case Code::kManifestInvalid:
      return "{found}, wanted {wanted}";
    case Code::kCacheUnusable:
    case Code::kCacheArchive:
      return "found {found}";
    case Code::kDuplicateFile:
      return "it is {found}";
    case Code::kVariableIgnored:
      return "{found} is ignored";
    case Code::kLibraryUnknown:
      return "{found}, and the plugin needs {wanted}";
    case Code::kSymbolsUnresolved:
      return "no library that the file needs defines {found}";
    case Code::kDeviceNotServed:
      return "it is {found}, not for {wanted}";
    case Code::kInitFailed:
      return "init gave {found}";
    case Code::kBuildPrivileged:
      return "{found} builds and compiles nothing";
    case Code::kBuildDevNull:
      return "there is {found}";
    case Code::kBuildWaited:
      return "there were {found}";
    case Code::kLeftByFork:
      return "there was {found}: {wanted}";
    case Code::kCancelled:
      return "there was {found}";
    case Code::kArchKnown:
      return "{found} is here now";
    case Code::kReferenceRunner:
      return "this is {found}";
    default:
      return nullptr;
  }
}

std::string replaced(std::string text, std::string_view mark, std::string_view value) {
  if (const size_t at = text.find(mark); at != text.npos) text.replace(at, mark.size(), value);
  return text;
}

// Adds a capital letter and a full stop.
std::string as_sentence(std::string text) {
  if (text.empty()) return text;
  if (text.front() >= 'a' && text.front() <= 'z') text.front() += 'A' - 'a';
  if (std::string_view(".!?:").find(text.back()) == std::string_view::npos) text += '.';
  return text;
}

}  // namespace

std::string sentence(const Reason& reason) {
  const char* const own = form_of(reason.code);
  std::string form = own == nullptr ? "" : own;
  if (form.empty()) {
    const bool has_lines = reason.found.find('\n') != reason.found.npos;
    form = has_lines ? "{found}" : "found {found}";
    if (!reason.wanted.empty()) form += has_lines ? "\nwanted {wanted}" : ", wanted {wanted}";
  }
  // {wanted} is replaced first, because `found` may hold any text, even "{wanted}".
  return replaced(replaced(std::move(form), "{wanted}", reason.wanted), "{found}", reason.found);
}

std::string to_text(const Reason& reason) {
  const std::string text = sentence(reason), advice = as_sentence(reason.advice);
  const std::string head = std::string(info(reason.code).name) + ": ";
  if (text.find('\n') != text.npos) return head + text + (advice.empty() ? "" : "\n" + advice);
  const bool is_ended = text.ends_with('.') || text.ends_with('!') || text.ends_with('?');
  return head + text + (is_ended ? "" : ".") + (advice.empty() ? "" : " " + advice);
}

std::string to_line(const Reason& reason) {
  const size_t end = std::min(reason.found.find('\n'), reason.found.size());
  std::string text = std::string(info(reason.code).name) + ": found " +
                     reason.found.substr(0, end) + ", wanted " + reason.wanted;
  if (!reason.advice.empty()) text += "; " + reason.advice;
  return text + reason.found.substr(end);
}

std::optional<Reason> parse_line(std::string_view line) {
  constexpr std::string_view kFound = ": found ", kWanted = ", wanted ", kAdvice = "; ";
  const size_t found = line.find(kFound), wanted = line.find(kWanted);
  if (found == line.npos || wanted == line.npos || wanted < found) return std::nullopt;
  const size_t advice = std::min(line.find(kAdvice, wanted), line.size());
  for (const CodeInfo& code : all_codes()) {
    if (code.name != line.substr(0, found)) continue;
    const size_t begin = found + kFound.size(), middle = wanted + kWanted.size();
    Reason reason = make_reason(code.code, std::string(line.substr(begin, wanted - begin)),
                                std::string(line.substr(middle, advice - middle)));
    if (advice < line.size()) reason.advice = line.substr(advice + kAdvice.size());
    return reason;
  }
  return std::nullopt;
}

}  // namespace opdock
