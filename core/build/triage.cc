// SPDX-License-Identifier: Apache-2.0
#include "build/triage.h"

#include <signal.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "base/sentence.h"
#include "build/missing_files.h"
#include "build/op_mismatch.h"

namespace opdock {
namespace {

constexpr size_t kMaxLines = 20;
constexpr size_t kLongestLine = 400;

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != text.npos;
}

// Returns whether a compiler, linker or Meson reports an error by this line.
bool is_error(std::string_view line) {
  for (const std::string_view mark : {": error:",
                                      ": fatal error:",
                                      "): error",
                                      ": Error:",
                                      ": ERROR:",
                                      "nvcc fatal",
                                      "undefined reference to",
                                      ": cannot find -l",
                                      ": final link failed:",
                                      ": undefined symbol:",
                                      "collect2: fatal",
                                      "clang: error",
                                      "relocation R_",
                                      "error: linker",
                                      "internal compiler error",
                                      "ninja: error:",
                                      "ninja: fatal:",
                                      "ptxas fatal",
                                      "ptxas error",
                                      "PLEASE submit a bug",
                                      "Error: [Errno "}) {
    if (contains(line, mark)) return true;
  }
  return line.starts_with("ERROR: ") ||
         (line.starts_with("opdock-pack:") && !line.starts_with("opdock-pack: notice:"));
}

bool ends_message(std::string_view line) {
  return line.starts_with("ninja: ") || line.starts_with("FAILED: ") ||
         line.starts_with("A full log can be found") ||
         (line.starts_with('[') && line.size() > 1 && std::isdigit(line[1]));
}

// Replaces `from` by `to` only where a name begins with it, and not inside a name.
std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != text.npos;) {
    const bool begins = at == 0 || std::strchr(" \n'\"(`=<", text[at - 1]) != nullptr;
    if (begins) text.replace(at, from.size(), to);
    at += begins ? to.size() : from.size();
  }
  return text;
}

struct Meaning {
  Code code;
  std::vector<std::string_view> marks;  // any of them in the log
};

// In the order of the search: what ends a compiler comes before what the compiler reports.
const std::vector<Meaning>& meanings() {
  const NoFork no_fork;
  static const std::vector<Meaning> all = {
      {Code::kBuildDiskFull, {"No space left on device", "Disk quota exceeded"}},
      {Code::kBuildMemory,
       {"virtual memory exhausted", "out of memory allocating", "Cannot allocate memory",
        "std::bad_alloc", "Killed signal terminated program", "memory exhausted"}},
      {Code::kBuildHostCompiler,
       {"unsupported GNU version", "unsupported clang version", "unsupported Clang version",
        "host compiler not supported"}},
      {Code::kBuildArch,
       {"Unsupported gpu architecture", "is not defined for option 'gpu-architecture'",
        "unsupported HIP gpu architecture", "invalid target ID", "Unknown CUDA arch",
        "unsupported CUDA gpu architecture"}},
      {Code::kBuildCompilerCrash,
       {"internal compiler error", "PLEASE submit a bug report", "Segmentation fault"}},
  };
  return all;
}

Reason reason_for(Code code, std::string found, std::string wanted, std::string advice = "") {
  Reason reason = make_reason(code, std::move(found), std::move(wanted));
  if (!advice.empty()) reason.advice = without_nul(std::move(advice));
  return reason;
}

Reason header_reason(const std::string& error, const std::string& header) {
  const std::string package = package_of_header(header);
  return reason_for(Code::kBuildHeaderMissing, error, "the header " + header,
                    package.empty() ? "install what has " + header : package);
}

// Returns nvcc's own message about what it accepts: "… later than 15 are not supported! …".
std::string accepted_compilers(std::string_view log) {
  for (const std::string_view line : lines_of(log)) {
    const size_t at = line.find("-- unsupported");
    if (at != line.npos) return std::string(line.substr(at + 3, kLongestLine));
  }
  return "a host compiler that this nvcc supports";
}

Reason arch_reason(const FailedStep& step, const std::string& error) {
  std::string advice;
  const bool is_hip =
      contains(step.log, "HIP gpu architecture") || contains(step.log, "invalid target ID");
  if (!step.newest_arch.empty() && !is_hip) {
    advice = "ask for " + step.newest_arch + "+PTX: the newest that this nvcc knows, and PTX, " +
             "which newer GPUs can run";
  }
  return reason_for(Code::kBuildArch, error,
                    "architectures that the compiler knows: not all of " + step.archs, advice);
}

// Returns the reason that opdock-pack has printed, if any: its errors are reasons already.
std::optional<Reason> packed_reason(std::string_view log) {
  constexpr std::string_view kMark = "opdock-pack: error: ";
  for (const std::string_view line : lines_of(log)) {
    if (!line.starts_with(kMark)) continue;
    if (std::optional<Reason> reason = parse_line(line.substr(kMark.size()))) return reason;
  }
  return std::nullopt;
}

// Returns the reason for an error of Meson's, before any file is compiled.
Reason setup_reason(std::string_view log, const std::string& error) {
  const bool is_compiler = contains(log, "Unknown compiler") ||
                           contains(log, "cannot compile programs") ||
                           contains(log, "not runnable") || contains(log, "sanity check");
  if (is_compiler) return reason_for(Code::kBuildNoCompiler, error, "a compiler that works");
  if (contains(log, "Could not detect Ninja")) {
    return reason_for(Code::kBuildNoNinja, error, "ninja 1.8.2 or newer");
  }
  if (contains(log, "Meson version is") || contains(log, "Traceback (most recent call last)") ||
      contains(log, "No module named 'mesonbuild'")) {
    return reason_for(Code::kBuildNoMeson, error, "Meson 1.1 or newer that works");
  }
  return reason_for(Code::kBuildFailed, error, "a meson.build that configures");
}

Reason ended_reason(const FailedStep& step) {
  const bool is_setup = step.phase == FailedStep::kSetup;
  const std::string program = is_setup ? "meson setup" : "ninja";
  const std::string found = program + " " + step.end.text();
  switch (step.end.kind) {
    case ProcessEnd::kTimeout:
      return reason_for(Code::kBuildTimeout, found, "an end of the build in time");
    case ProcessEnd::kCancelled:
      return make_reason(Code::kCancelled);
    case ProcessEnd::kNotStarted:
      return reason_for(is_setup ? Code::kBuildNoMeson : Code::kBuildNoNinja, found,
                        program + " running");
    case ProcessEnd::kSignal:
      if (step.end.number == SIGKILL) {
        return reason_for(Code::kBuildMemory, found, "its end; memory running out kills programs");
      }
      return reason_for(is_setup ? Code::kBuildNoMeson : Code::kBuildNoNinja, found,
                        program + " ending by itself");
    case ProcessEnd::kExit:
      break;
  }
  return reason_for(Code::kBuildFailed, found, "status 0");
}

}  // namespace

std::string first_error(const FailedStep& step) {
  const std::vector<std::string_view> lines = lines_of(step.log);
  size_t begin = 0;
  while (begin < lines.size() && !is_error(lines[begin])) ++begin;
  if (begin == lines.size()) {
    // No line looks like an error: the message is what the program printed after its command.
    begin = 0;
    while (begin < lines.size() && !lines[begin].starts_with("FAILED: ")) ++begin;
    begin += 2;
    if (begin >= lines.size()) return {};
  }
  // "In file included from …" and "In function …" stand before the error and belong to it.
  size_t from = begin;
  while (from > 0 && begin - from < 6 &&
         (contains(lines[from - 1], "In file included from") ||
          contains(lines[from - 1], "                 from ") ||
          contains(lines[from - 1], ": In instantiation of ") ||
          contains(lines[from - 1], "   required from ") ||
          contains(lines[from - 1], ": In function ") ||
          contains(lines[from - 1], ": in function "))) {
    --from;
  }
  std::string text;
  for (size_t i = from; i < lines.size() && i < from + kMaxLines; ++i) {
    if (i > begin && (ends_message(lines[i]) || contains(lines[i], ": error:"))) break;
    text += (text.empty() ? "" : "\n") + std::string(lines[i].substr(0, kLongestLine));
  }
  text = replaced(text, step.copied_folder + "/", step.plugin_folder + "/");
  text = replaced(text, "project/plugins/plugin/", step.plugin_folder + "/");
  return replaced(text, "../project/plugins/plugin/", step.plugin_folder + "/");
}

bool is_passing(const Reason& reason) {
  switch (reason.code) {
    case Code::kBuildFailed:
    case Code::kBuildOp:
    case Code::kBuildHostCompiler:
    case Code::kBuildArch:
    case Code::kBuildResult:
      return false;
    case Code::kBuildHeaderMissing: {
      constexpr std::string_view kHeader = "the header ";
      return std::string_view(reason.wanted).starts_with(kHeader) &&
             is_installed_header(reason.wanted.substr(kHeader.size()));
    }
    default:
      return true;
  }
}

namespace {

// Returns the reason for a step that exited with a status, according to its log.
Reason logged_reason(const FailedStep& step, const std::string& error) {
  for (const Meaning& meaning : meanings()) {
    for (const std::string_view mark : meaning.marks) {
      if (!contains(step.log, mark)) continue;
      if (meaning.code == Code::kBuildHostCompiler) {
        return reason_for(meaning.code, error, accepted_compilers(step.log));
      }
      if (meaning.code == Code::kBuildArch) return arch_reason(step, error);
      return reason_for(meaning.code, error, "a compiler that ends by itself");
    }
  }
  if (step.phase == FailedStep::kCompile) {
    if (std::optional<Reason> op = find_op_mismatch(step.log, error, step.ops)) return *op;
  }
  const std::string header = missing_header(step.log),
                    file = left_out(step.plugin_folder, step.copied_folder, error);
  Reason reason = !header.empty() ? header_reason(error, header)
                  : step.phase == FailedStep::kSetup
                      ? setup_reason(step.log, error)
                      : reason_for(Code::kBuildFailed, error, "source that compiles and links");
  if (!file.empty()) {
    reason.advice = "name " + file + " in plugin.toml's `sources`: of the folder only what the " +
                    "plugin names or includes is built";
  }
  return reason;
}

}  // namespace

Reason triage(const FailedStep& step) {
  if (step.end.kind != ProcessEnd::kExit) {
    const Reason reason = ended_reason(step);
    if (step.end.kind != ProcessEnd::kSignal) return reason;
    return hit_limit(step.limits, step.end, "", reason.found).value_or(reason);
  }
  if (std::optional<Reason> packed = packed_reason(step.log)) return *packed;
  std::string error = first_error(step);
  if (error.empty()) error = ended_reason(step).found;
  // Checked before anything is reported as a compiler's crash, because hitting a limit may look
  // like one.
  if (std::optional<Reason> limit = hit_limit(step.limits, step.end, step.log, error))
    return *limit;
  return logged_reason(step, error);
}

}  // namespace opdock
