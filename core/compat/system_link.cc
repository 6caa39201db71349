// Reports what would make the dynamic loader fail, as reasons.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <utility>

#include "base/texts.h"
#include "compat/system.h"
#include "link/python.h"

namespace opdock {
namespace {

using Kind = LinkProblem::Kind;
using Problems = std::vector<const LinkProblem*>;

// The uncertainty of the space for static TLS: the loader aligns blocks and counts its own.
constexpr int64_t kTlsMargin = 64;
// Used if the space cannot be read: glibc keeps about as much by default, and part of it may be in
// use.
constexpr int64_t kAssumedTls = 1664, kAssumedMargin = 1024;

std::string with_needer(const std::string& name, const LinkProblem& problem) {
  return problem.needed_by.empty() ? name : name + " (needed by " + problem.needed_by + ")";
}

std::string level_text(int level) {
  return "x86-64-v" + std::to_string(level);
}

// Returns what to do about a missing library, by the beginning of its name.
std::string advice_for(const std::string& library) {
  static constexpr std::pair<std::string_view, const char*> kAdvice[] = {
      {"libcuda.so", "install NVIDIA's driver"},
      {"libnvidia-ml.so", "install NVIDIA's driver"},
      {"libcudart.so", "install the CUDA run-time library of that version"},
      {"libtorch", "import torch first"},
      {"libc10", "import torch first"},
      {"libpython", "use it from that Python, or install the library"},
      {"libamdhip64.so", "install ROCm of that version"},
      {"libhsa-runtime64.so", "install ROCm"},
      {"libOpenCL.so", "install an OpenCL loader (Debian: apt install ocl-icd-libopencl1)"},
      {"libGL.so", "install the vendor's OpenGL or Mesa's (Debian: apt install libgl1)"},
      {"libc.musl", "use the build for glibc: this one is for musl (Alpine)"},
  };
  for (const auto& [prefix, advice] : kAdvice) {
    if (library.starts_with(prefix)) return advice;
  }
  return {};
}

void add(Code code, std::string found, std::string wanted, const std::string& advice,
         std::vector<Reason>* reasons) {
  Reason reason = make_reason(code, std::move(found), std::move(wanted));
  if (!advice.empty()) reason.advice = advice;
  reasons->push_back(std::move(reason));
}

// Returns the code for the version's family.
Code version_code(const std::string& version) {
  if (version.starts_with("GLIBC_")) return Code::kGlibcVersion;
  if (version.starts_with("GLIBCXX_") || version.starts_with("CXXABI_")) {
    return Code::kLibstdcxxVersion;
  }
  return Code::kSymbolVersion;
}

// Adds one reason for all libraries of a kind.
void judge_absent(const Problems& problems, Code code, const std::string& before,
                  const std::string& wanted, std::vector<Reason>* reasons) {
  if (problems.empty()) return;
  std::vector<std::string> names;
  std::string advice;
  for (const LinkProblem* problem : problems) {
    const std::string& name = problem->where.empty() ? problem->name : problem->where;
    names.push_back(with_needer(name, *problem));
    if (advice.empty()) advice = advice_for(problem->name);
  }
  add(code, before + join_some(names, 20), wanted, advice, reasons);
}

void judge_refused(const LinkProblem& problem, std::vector<Reason>* reasons) {
  const bool own = problem.name.empty();
  add(own ? Code::kNoOpen : Code::kLibraryRefused,
      own ? problem.detail : with_needer(problem.where + ": " + problem.detail, problem),
      own ? "a library that programs may open" : "a library that the loader takes", {}, reasons);
}

// Adds one reason per family of versions. The problems have, for each library, the newest version
// of each family that it lacks.
void judge_versions(const Problems& problems, std::vector<Reason>* reasons) {
  std::vector<Code> told;
  for (const LinkProblem* problem : problems) {
    const Code code = version_code(problem->name);
    if (std::find(told.begin(), told.end(), code) != told.end()) continue;
    told.push_back(code);
    std::vector<std::string> names;
    for (const LinkProblem* other : problems) {
      if (version_code(other->name) != code) continue;
      const std::string text = other->name + " of " + other->library;
      const std::string name = with_needer(text, *other);
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
    std::string wanted = "a version that " + problem->where + " has";
    if (problem->where.empty()) wanted = "a version that the machine has";
    if (!problem->detail.empty())
      wanted = "at most " + problem->detail + ", as in " + problem->where;
    add(code, join_some(names, 5), wanted, {}, reasons);
  }
}

void judge_tls(const FileFacts& file, std::vector<Reason>* reasons) {
  const LinkFacts& link = file.link;
  const int64_t wanted = static_cast<int64_t>(link.tls_wanted);
  if (wanted == 0) {
    if (file.static_tls && !has_code(*reasons, Code::kStaticTls)) {
      add(Code::kStaticTls, "DF_STATIC_TLS", "dynamic TLS", {}, reasons);
    }
    return;
  }
  const int64_t left = link.tls_left.value_or(kAssumedTls);
  const int64_t margin = link.tls_left ? kTlsMargin : kAssumedMargin;
  const std::string found =
      std::to_string(wanted) + " bytes of static TLS, aligned to " + std::to_string(link.tls_align);
  const std::string have = std::to_string(std::max<int64_t>(left, 0)) + " bytes" +
                           (link.tls_left ? "" : " (assumed: glibc's default)");
  if (link.tls_align > link.tls_most_align) {
    add(Code::kStaticTlsFull, found,
        "an alignment of at most " + std::to_string(link.tls_most_align), {}, reasons);
  } else if (wanted > left + margin) {
    add(Code::kStaticTlsFull, found, "at most the " + have + " that the loader has left", {},
        reasons);
  } else if (wanted > left - margin) {
    add(Code::kStaticTlsClose, found, "clearly less than the " + have + " that are left", {},
        reasons);
  } else {
    add(Code::kStaticTls, found + ", of " + have, "dynamic TLS", {}, reasons);
  }
}

bool is_python(const LinkProblem& problem) {
  return problem.version.empty() && is_python_symbol(problem.name);
}

void judge_symbols(const FileFacts& file, const Problems& problems, Role role,
                   std::vector<Reason>* reasons) {
  std::vector<std::string> names;
  size_t python = 0;
  for (const LinkProblem* problem : problems) {
    if (file.link.program.empty() && is_python(*problem)) {
      ++python;
      continue;
    }
    std::string name = problem->name;
    if (!problem->version.empty()) name += "@" + problem->version;
    names.push_back(with_needer(name, *problem));
  }
  if (python != 0) {
    add(Code::kPythonNeeded, std::to_string(python) + " symbols of Python's interpreter",
        "a process of " + (file.link.wanted_python.empty() ? "Python" : file.link.wanted_python),
        {}, reasons);
  }
  if (names.empty()) return;
  // If the interpreter is unknown, so is what else its process has.
  const bool is_known = role == Role::kLibrary && python == 0;
  add(is_known ? Code::kSymbolsUndefined : Code::kSymbolsUnresolved, join_some(names, 5),
      "a definition in a library that the file needs", {}, reasons);
}

}  // namespace

void judge_link(const FileFacts& file, const MachineFacts& machine, Role role,
                std::vector<Reason>* reasons) {
  // The libraries of another architecture are not those of this machine.
  if (file.machine != machine.elf_machine) return;
  std::map<Kind, Problems> problems;
  for (const LinkProblem& problem : file.link.problems) {
    const bool is_absent = problem.kind == Kind::kMissing || problem.kind == Kind::kElsewhere;
    if (is_absent && file.note && is_declared(problem.name, *file.note)) continue;
    problems[problem.kind].push_back(&problem);
  }
  // Libraries are opened one after another, so the loader names the first that fails.
  const auto first = std::find_if(
      file.link.problems.begin(), file.link.problems.end(), [](const LinkProblem& problem) {
        return problem.kind == Kind::kMissing || problem.kind == Kind::kRefused;
      });
  const bool is_refused_first = first != file.link.problems.end() && first->kind == Kind::kRefused;
  const auto judge_all_refused = [&] {
    for (const LinkProblem* problem : problems[Kind::kRefused]) judge_refused(*problem, reasons);
  };
  if (is_refused_first) judge_all_refused();
  judge_absent(problems[Kind::kMissing], Code::kLibraryMissing,
               "nowhere that the loader looks: ", "every library that is needed", reasons);
  if (!is_refused_first) judge_all_refused();
  judge_absent(problems[Kind::kElsewhere], Code::kLibraryElsewhere,
               "not where the loader looks, but in ",
               "it loaded before, by the package that has it", reasons);
  judge_absent(problems[Kind::kUnknown], Code::kLibraryUnknown, "not told: whether there is ",
               "a machine that has it", reasons);
  judge_versions(problems[Kind::kVersion], reasons);
  for (const LinkProblem* problem : problems[Kind::kUnmarked]) {
    add(Code::kElfMalformed,
        with_needer("relative relocations (DT_RELR) and no need for GLIBC_ABI_DT_RELR", *problem),
        "both, as linkers write them", {}, reasons);
  }
  for (const LinkProblem* problem : problems[Kind::kCpuLevel]) {
    add(Code::kCpuLevel, with_needer(level_text(problem->level), *problem),
        "at most " + level_text(std::max(machine.cpu_level, 1)), {}, reasons);
  }
  judge_tls(file, reasons);
  judge_symbols(file, problems[Kind::kSymbol], role, reasons);
}

}  // namespace opdock
