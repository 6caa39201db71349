// SPDX-License-Identifier: Apache-2.0
#include "jit/nvrtc.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "base/mutex.h"

namespace opdock {

// NVRTC's C interface, declared as its documentation has it; the toolkit's header need not be
// installed.
extern "C" {
typedef int NvrtcResult;
typedef struct NvrtcProgramImpl* NvrtcProgram;
}
constexpr NvrtcResult kSuccess = 0;
constexpr NvrtcResult kInvalidOption = 5;
constexpr NvrtcResult kCompilation = 6;
constexpr NvrtcResult kNoSuchName = 10;

struct Nvrtc::Functions {
  NvrtcResult (*version)(int* major, int* minor);
  NvrtcResult (*num_archs)(int* count);
  NvrtcResult (*archs)(int* archs);
  const char* (*error_string)(NvrtcResult result);
  NvrtcResult (*create)(NvrtcProgram* program, const char* source, const char* name,
                        int num_headers, const char* const* headers, const char* const* names);
  NvrtcResult (*destroy)(NvrtcProgram* program);
  NvrtcResult (*add_name)(NvrtcProgram program, const char* expression);
  NvrtcResult (*compile)(NvrtcProgram program, int num_options, const char* const* options);
  NvrtcResult (*log_size)(NvrtcProgram program, size_t* size);
  NvrtcResult (*log)(NvrtcProgram program, char* log);
  NvrtcResult (*lowered_name)(NvrtcProgram program, const char* expression, const char** name);
  NvrtcResult (*cubin_size)(NvrtcProgram program, size_t* size);
  NvrtcResult (*cubin)(NvrtcProgram program, char* cubin);
  NvrtcResult (*ptx_size)(NvrtcProgram program, size_t* size);
  NvrtcResult (*ptx)(NvrtcProgram program, char* ptx);
  // Since 12.8: NVRTC calls the callback now and then; a result of 1 stops the compilation.
  NvrtcResult (*set_flow_callback)(NvrtcProgram program, int (*callback)(void*, void*),
                                   void* payload);
};

template <typename Function>
static void find(void* library, const char* name, Function* out, std::string* missing) {
  *out = reinterpret_cast<Function>(dlsym(library, name));
  if (!*out && missing->empty()) *missing = name;
}

// Opens the builtins library first. libnvrtc opens it by its bare name, which succeeds only if it
// is in the loader's path or already loaded.
static void open_builtins(const std::filesystem::path& library) {
  std::error_code failed;
  std::filesystem::path real = std::filesystem::canonical(library, failed);
  if (failed) return;
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(real.parent_path(), failed)) {
    std::string name = entry.path().filename().string();
    if (name.starts_with("libnvrtc-builtins.so.")) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  for (const std::filesystem::path& path : found) dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
}

const Nvrtc* Nvrtc::open(const std::string& path, std::string* problem) {
  if (path.find('/') != std::string::npos) open_builtins(path);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* text = dlerror();
    *problem = fmt::format("{}: {}", path, text ? text : "cannot be opened");
    return nullptr;
  }
  Functions f{};
  std::string missing;
  find(library, "nvrtcVersion", &f.version, &missing);
  find(library, "nvrtcGetNumSupportedArchs", &f.num_archs, &missing);
  find(library, "nvrtcGetSupportedArchs", &f.archs, &missing);
  find(library, "nvrtcGetErrorString", &f.error_string, &missing);
  find(library, "nvrtcCreateProgram", &f.create, &missing);
  find(library, "nvrtcDestroyProgram", &f.destroy, &missing);
  find(library, "nvrtcAddNameExpression", &f.add_name, &missing);
  find(library, "nvrtcCompileProgram", &f.compile, &missing);
  find(library, "nvrtcGetProgramLogSize", &f.log_size, &missing);
  find(library, "nvrtcGetProgramLog", &f.log, &missing);
  find(library, "nvrtcGetLoweredName", &f.lowered_name, &missing);
  find(library, "nvrtcGetCUBINSize", &f.cubin_size, &missing);
  find(library, "nvrtcGetCUBIN", &f.cubin, &missing);
  find(library, "nvrtcGetPTXSize", &f.ptx_size, &missing);
  find(library, "nvrtcGetPTX", &f.ptx, &missing);
  f.set_flow_callback =
      reinterpret_cast<decltype(f.set_flow_callback)>(dlsym(library, "nvrtcSetFlowCallback"));
  if (!missing.empty()) {
    *problem =
        fmt::format("{} has no function {}: it is no NVRTC of CUDA 11.2 or newer", path, missing);
    return nullptr;
  }
  int major = 0, minor = 0, count = 0;
  if (f.version(&major, &minor) != kSuccess || f.num_archs(&count) != kSuccess || count <= 0) {
    *problem = fmt::format("{}: does not tell its version and architectures", path);
    return nullptr;
  }
  std::vector<int> archs(static_cast<size_t>(count));
  if (f.archs(archs.data()) != kSuccess) {
    *problem = fmt::format("{}: does not tell its architectures", path);
    return nullptr;
  }
  std::sort(archs.begin(), archs.end());
  // Kept for the whole process, in a place that a leak checker sees.
  const NoFork no_fork;
  static Mutex& mutex = *new Mutex;
  static std::vector<const Nvrtc*>* opened = new std::vector<const Nvrtc*>;
  Nvrtc* out = new Nvrtc;
  out->path_ = path;
  out->version_ = Version{static_cast<uint32_t>(major), static_cast<uint32_t>(minor)};
  out->archs_ = std::move(archs);
  out->functions_ = new Functions(f);
  const std::lock_guard lock(mutex);
  opened->push_back(out);
  return out;
}

bool Nvrtc::knows(int arch) const {
  return std::binary_search(archs_.begin(), archs_.end(), arch);
}

// The state for NVRTC's question whether to stop. The answer is kept, because the program may give
// it only once.
struct Flow {
  Progress* progress;
  bool stopped = false;
};

static int asks_to_stop(void* context, void*) {
  auto* flow = static_cast<Flow*>(context);
  if (!flow->stopped) flow->stopped = flow->progress->cancelled();
  return flow->stopped ? 1 : 0;
}

static bool names_standard(const std::vector<std::string>& options) {
  return std::any_of(options.begin(), options.end(), [](const std::string& option) {
    return option.starts_with("--std=") || option.starts_with("-std=");
  });
}

std::vector<std::string> own_options(const CompileJob& job) {
  std::vector<std::string> options;
  // A plugin's lambdas are for the device, like everything else there. For other programs this
  // option would change what errors say.
  if (job.program.empty()) options.push_back("--device-as-default-execution-space");
  if (!names_standard(job.options)) options.push_back("--std=c++17");
  return options;
}

// The compiler parses name expressions in a file of its own, before the program.
constexpr std::string_view kNameFile = "__nv_name_map(";

static bool blames_names_only(const std::string& log) {
  bool any = false;
  for (size_t at = 0; at < log.size();) {
    const size_t end = std::min(log.find('\n', at), log.size());
    const std::string_view line = std::string_view(log).substr(at, end - at);
    at = end + 1;
    if (line.find(": error:") == line.npos) continue;
    if (!line.starts_with(kNameFile)) return false;
    any = true;
  }
  return any;
}

// Removes the errors that a faulty program causes in name expressions: its own faults are the
// cause.
static std::string without_names(const std::string& log) {
  std::string kept;
  for (size_t at = 0; at < log.size();) {
    const size_t blank = log.find("\n\n", at);
    const size_t end = blank == log.npos ? log.size() : blank + 2;
    if (!std::string_view(log).substr(at).starts_with(kNameFile)) kept += log.substr(at, end - at);
    at = end;
  }
  return kept;
}

static CompileFault fault_of(NvrtcResult code, std::string* log) {
  if (code == kInvalidOption) return CompileFault::kOption;
  if (code == kNoSuchName) return CompileFault::kKernel;
  if (code != kCompilation) return CompileFault::kCompiler;
  if (blames_names_only(*log)) return CompileFault::kKernel;
  *log = without_names(*log);
  return CompileFault::kSource;
}

CompileResult Nvrtc::compile(const CompileJob& job) const {
  const Functions& f = *functions_;
  CompileResult result;
  std::string main = job.program;
  if (main.empty())
    for (const std::string& source : job.sources) main += "#include \"" + source + "\"\n";
  std::vector<const char*> texts, names;
  for (const SourceText& header : job.headers) {
    texts.push_back(header.text.c_str());
    names.push_back(header.name.c_str());
  }

  NvrtcProgram program = nullptr;
  Flow flow{job.progress};
  auto fail = [&](const char* step, NvrtcResult code) {
    result.fault = flow.stopped ? CompileFault::kCancelled : fault_of(code, &result.log);
    result.log += fmt::format("{} of NVRTC {} for {}: {}\n", step, version_.text(), job.arch,
                              f.error_string(code));
    if (program) f.destroy(&program);
    return result;
  };
  NvrtcResult code = f.create(&program, main.c_str(), job.program_name.c_str(),
                              static_cast<int>(texts.size()), texts.data(), names.data());
  if (code != kSuccess) return fail("nvrtcCreateProgram", code);
  for (const std::string& kernel : job.kernels) {
    code = f.add_name(program, kernel.c_str());
    if (code != kSuccess) return fail("nvrtcAddNameExpression", code);
  }
  const std::string arch = "--gpu-architecture=" + job.arch;
  const std::vector<std::string> own = own_options(job);
  std::vector<const char*> options = {arch.c_str()};
  for (const std::string& option : own) options.push_back(option.c_str());
  for (const std::string& option : job.options) options.push_back(option.c_str());
  if (job.progress && f.set_flow_callback) {
    code = f.set_flow_callback(program, asks_to_stop, &flow);
    if (code != kSuccess) return fail("nvrtcSetFlowCallback", code);
  }
  code = f.compile(program, static_cast<int>(options.size()), options.data());
  size_t log_size = 0;
  if (f.log_size(program, &log_size) == kSuccess && log_size > 1) {
    result.log.resize(log_size);
    if (f.log(program, result.log.data()) != kSuccess) result.log.clear();
    while (!result.log.empty() && result.log.back() == '\0') result.log.pop_back();
  }
  if (code != kSuccess) return fail("nvrtcCompileProgram", code);

  for (const std::string& kernel : job.kernels) {
    const char* lowered = nullptr;
    code = f.lowered_name(program, kernel.c_str(), &lowered);
    if (code != kSuccess) return fail("nvrtcGetLoweredName", code);
    result.names.emplace_back(kernel, lowered);
  }
  const auto get = [program](auto size_of, auto copy, std::vector<uint8_t>* out) {
    size_t size = 0;
    if (const NvrtcResult failed = size_of(program, &size); failed != kSuccess) return failed;
    out->resize(size);
    return copy(program, reinterpret_cast<char*>(out->data()));
  };
  const bool cubin = job.arch.starts_with("sm_");
  if (cubin) code = get(f.cubin_size, f.cubin, &result.image);
  if (code == kSuccess && !cubin) code = get(f.ptx_size, f.ptx, &result.image);
  if (code == kSuccess && cubin && job.with_ptx) code = get(f.ptx_size, f.ptx, &result.ptx);
  if (code != kSuccess) return fail("the image", code);
  f.destroy(&program);
  result.ok = true;
  return result;
}

std::vector<const Nvrtc*> open_nvrtcs(const std::vector<std::string>& candidates,
                                      std::vector<std::string>* problems) {
  std::vector<const Nvrtc*> compilers;
  for (const std::string& path : candidates) {
    const bool by_name = path.find('/') == std::string::npos;
    std::string problem;
    const Nvrtc* compiler = Nvrtc::open(path, &problem);
    if (!compiler) {
      // The loader's names are guesses, so it is no problem if they lead nowhere.
      if (!by_name) problems->push_back(problem);
      continue;
    }
    bool have_major = false;
    for (const Nvrtc*& other : compilers) {
      if (other->version().major() != compiler->version().major()) continue;
      have_major = true;
      if (other->version() < compiler->version()) other = compiler;
    }
    if (!have_major) compilers.push_back(compiler);
  }
  std::sort(compilers.begin(), compilers.end(),
            [](const Nvrtc* a, const Nvrtc* b) { return a->version() < b->version(); });
  return compilers;
}

const Nvrtc* choose_nvrtc(const std::vector<const Nvrtc*>& compilers, int arch) {
  for (const Nvrtc* compiler : compilers)
    if (compiler->knows(arch)) return compiler;
  return nullptr;
}

}  // namespace opdock
