// SPDX-License-Identifier: Apache-2.0
#include "worker/hiprtc.h"

#include <dlfcn.h>
#include <regex.h>

namespace opdock {
namespace {

// The C interface, declared as hipRTC's reference has it.
extern "C" {
typedef int HiprtcResult;
typedef struct HiprtcProgramImpl* HiprtcProgram;
}
constexpr HiprtcResult kSuccess = 0, kInvalidOption = 5, kCompilation = 6, kNoSuchName = 10;

struct HiprtcFunctions {
  const char* (*error_string)(HiprtcResult);
  HiprtcResult (*create)(HiprtcProgram*, const char*, const char*, int, const char* const*,
                         const char* const*);
  HiprtcResult (*destroy)(HiprtcProgram*);
  HiprtcResult (*add_name)(HiprtcProgram, const char*);
  HiprtcResult (*compile)(HiprtcProgram, int, const char* const*);
  HiprtcResult (*log_size)(HiprtcProgram, size_t*);
  HiprtcResult (*log)(HiprtcProgram, char*);
  HiprtcResult (*lowered_name)(HiprtcProgram, const char*, const char**);
  HiprtcResult (*code_size)(HiprtcProgram, size_t*);
  HiprtcResult (*code)(HiprtcProgram, char*);
};

template <typename F>
void find(void* library, const char* name, F* out, std::string* missing) {
  *out = reinterpret_cast<F>(dlsym(library, name));
  if (*out == nullptr && missing->empty()) *missing = name;
}

bool open_functions(const std::string& path, HiprtcFunctions* f, std::string* problem) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    *problem = path + ": " + (why != nullptr ? why : "cannot be opened");
    return false;
  }
  std::string missing;
  find(library, "hiprtcGetErrorString", &f->error_string, &missing);
  find(library, "hiprtcCreateProgram", &f->create, &missing);
  find(library, "hiprtcDestroyProgram", &f->destroy, &missing);
  find(library, "hiprtcAddNameExpression", &f->add_name, &missing);
  find(library, "hiprtcCompileProgram", &f->compile, &missing);
  find(library, "hiprtcGetProgramLogSize", &f->log_size, &missing);
  find(library, "hiprtcGetProgramLog", &f->log, &missing);
  find(library, "hiprtcGetLoweredName", &f->lowered_name, &missing);
  find(library, "hiprtcGetCodeSize", &f->code_size, &missing);
  find(library, "hiprtcGetCode", &f->code, &missing);
  if (missing.empty()) return true;
  *problem = path + " has no function " + missing + ": it is no hipRTC of ROCm 4 or newer";
  return false;
}

// Restores the user's file names in messages, because the compiler works on copies in a folder of
// its own.
std::string with_own_names(const std::string& log, const std::string& program_name) {
  regex_t copy;
  if (regcomp(&copy, "/[^[:space:]:]*/comgr-[^/[:space:]]*/(input/CompileSource|include/)",
              REG_EXTENDED) != 0) {
    return log;  // out of memory
  }
  std::string out;
  size_t at = 0;
  for (;;) {
    regmatch_t match[2] = {{static_cast<regoff_t>(at), static_cast<regoff_t>(log.size())}, {}};
    if (regexec(&copy, log.data(), 2, match, REG_STARTEND) != 0) break;
    out.append(log, at, static_cast<size_t>(match[0].rm_so) - at);
    if (log.compare(static_cast<size_t>(match[1].rm_so), 5, "input") == 0) out += program_name;
    at = static_cast<size_t>(match[0].rm_eo);
  }
  regfree(&copy);
  return out.append(log, at);
}

CompileFault fault_of(HiprtcResult code, const std::string& log, const CompileJob& job) {
  if (code == kInvalidOption || log.find("error: unsupported option") != log.npos ||
      log.find("error: unknown argument") != log.npos) {
    return CompileFault::kOption;
  }
  if (code == kNoSuchName) return CompileFault::kKernel;
  if (code != kCompilation) return CompileFault::kCompiler;
  // Names become variables at the end of the program. If all errors are in these lines, the names
  // are to blame.
  bool names = false;
  std::string last;  // file and line of such an error: it may be the first of several
  for (size_t at = 0; at < log.size();) {
    const size_t end = std::min(log.find('\n', at), log.size());
    const std::string line = log.substr(at, end - at);
    const std::string next = log.substr(std::min(end + 1, log.size()), 200);
    at = end + 1;
    const size_t error = line.find(": error:");
    if (error == line.npos) continue;
    const std::string place = line.substr(0, line.rfind(':', error - 1));
    if (next.find("__hiprtc_") == next.npos && place != last) return CompileFault::kSource;
    names = true;
    last = place;
  }
  return names && !job.kernels.empty() ? CompileFault::kKernel : CompileFault::kSource;
}

}  // namespace

CompileResult compile_with_hiprtc(const std::string& path, const CompileJob& job) {
  CompileResult result;
  HiprtcFunctions f{};
  if (!open_functions(path, &f, &result.log)) {
    result.fault = CompileFault::kCompiler;
    return result;
  }
  std::string main = job.program;
  if (main.empty()) {
    for (const std::string& source : job.sources) main += "#include \"" + source + "\"\n";
  }
  std::vector<const char*> texts, names;
  for (const SourceText& header : job.headers) {
    texts.push_back(header.text.c_str());
    names.push_back(header.name.c_str());
  }
  HiprtcProgram program = nullptr;
  const auto fail = [&](const char* step, HiprtcResult code) {
    result.log = with_own_names(result.log, job.program_name);
    result.fault = fault_of(code, result.log, job);
    result.log += std::string(step) + " for " + job.arch + ": " + f.error_string(code) + "\n";
    return result;  // the process ends soon: nothing is destroyed on this path
  };
  HiprtcResult code = f.create(&program, main.c_str(), job.program_name.c_str(),
                               static_cast<int>(texts.size()), texts.data(), names.data());
  if (code != kSuccess) return fail("hiprtcCreateProgram", code);
  for (const std::string& kernel : job.kernels) {
    code = f.add_name(program, kernel.c_str());
    if (code != kSuccess) return fail("hiprtcAddNameExpression", code);
  }
  const std::string arch = "--offload-arch=" + job.arch;
  std::vector<const char*> options = {arch.c_str()};
  bool standard = false;
  for (const std::string& option : job.options) {
    standard = standard || option.starts_with("-std=") || option.starts_with("--std=");
    options.push_back(option.c_str());
  }
  if (!standard) options.push_back("-std=c++17");
  code = f.compile(program, static_cast<int>(options.size()), options.data());
  size_t size = 0;
  if (f.log_size(program, &size) == kSuccess && size > 1) {
    result.log.resize(size);
    if (f.log(program, result.log.data()) != kSuccess) result.log.clear();
    while (!result.log.empty() && result.log.back() == '\0') result.log.pop_back();
  }
  if (code != kSuccess) return fail("hiprtcCompileProgram", code);
  for (const std::string& kernel : job.kernels) {
    const char* lowered = nullptr;
    code = f.lowered_name(program, kernel.c_str(), &lowered);
    if (code != kSuccess || lowered == nullptr) return fail("hiprtcGetLoweredName", kNoSuchName);
    result.names.emplace_back(kernel, lowered);
  }
  code = f.code_size(program, &size);
  if (code != kSuccess) return fail("hiprtcGetCodeSize", code);
  result.image.resize(size);
  code = f.code(program, reinterpret_cast<char*>(result.image.data()));
  if (code != kSuccess) return fail("hiprtcGetCode", code);
  result.log = with_own_names(result.log, job.program_name);
  f.destroy(&program);
  result.ok = true;
  return result;
}

}  // namespace opdock
