// SPDX-License-Identifier: Apache-2.0
#include "jit/toolchain.h"

#include <algorithm>
#include <map>

#include "base/fork_aware_lock.h"
#include "base/mutex.h"
#include "base/sha256.h"
#include "base/status.h"
#include "base/texts.h"
#include "facts/arch.h"
#include "jit/nvrtc_memo.h"
#include "jit/request.h"
#include "jit/worker.h"

namespace opdock {
namespace {

struct Opening {
  ForkAwareLock lock;  // guards what follows
  const Nvrtc* compiler = nullptr;
  std::string problem;  // a permanent one
};
struct Openings {
  Mutex mutex;
  std::map<std::string, std::shared_ptr<Opening>> all;
};
Openings& openings = *new Openings;

// Opens a library once; it stays open until the process ends. *out: NULL if it cannot be opened.
Status open_nvrtc(const std::string& path, const Nvrtc** out) {
  *out = nullptr;
  std::shared_ptr<Opening> opening;
  {
    const std::lock_guard lock(openings.mutex);
    std::shared_ptr<Opening>& place = openings.all[path];
    if (place == nullptr) place = std::make_shared<Opening>();
    opening = place;
  }
  const ForkAwareGuard guard(&opening->lock);
  if (!guard) return {OPDOCK_INVALID_ARGUMENT, to_text(deadlock_reason(path + " opened"))};
  if (guard.was_poisoned() && opening->compiler == nullptr) {
    std::string left = to_text(poisoned_reason(path + " open, or no thread opening it"));
    const NoFork no_fork;
    opening->problem.swap(left);
  }
  std::string problem = opening->problem;
  if (problem.empty() && opening->compiler == nullptr) {
    // A library that fails may be repaired while the process lives, so the next request tries
    // again.
    problem = library_problem(path);
    if (problem.empty()) opening->compiler = Nvrtc::open(path, &problem);
  }
  *out = opening->compiler;
  return *out != nullptr ? Status{} : Status{OPDOCK_INCOMPATIBLE, std::move(problem)};
}

// A cubin needs a driver of its toolkit's major, PTX one of its toolkit's version.
bool runs_on(const Version& toolkit, ImageKind kind, const std::optional<Version>& driver) {
  if (!driver || toolkit.empty()) return true;
  return kind == ImageKind::kPtx ? toolkit <= *driver : toolkit.major() <= driver->major();
}

class NvrtcToolchain : public Toolchain {
 public:
  NvrtcToolchain(const NvrtcFile& file, const CompileRequest& request, const JitContext& context)
      : file_(file), kind_(output_kind(request)), driver_(context.cuda_driver), context_(context) {
    version_ = file.version;
    maker_.text = "NVRTC " + file.version.text();
    // The toolkit's headers are a part of the compiler, if the program reads them.
    const OutsideHeaders outside = outside_of(request, file.include);
    FieldHasher hasher;
    hasher.add(file.id);
    for (const OutsideHeader& header : outside.toolkit) hasher.add(header.name).add(header.digest);
    maker_.id = outside.toolkit.empty() ? file.id : to_hex(hasher.finish());
    if (!outside.toolkit.empty()) include_ = file.include;
  }

  bool open(const std::string& arch, std::vector<Reason>* reasons) override {
    const Status opened = open_nvrtc(file_.path, &compiler_);
    if (!opened.ok()) {
      reasons->push_back(make_reason(Code::kJitNoCompiler, opened.text, "a libnvrtc that opens"));
      return false;
    }
    const CudaArch parsed = *parse_cuda_arch(arch);
    if (!compiler_->knows(parsed.major * 10 + parsed.minor)) {
      Reason reason = make_reason(Code::kJitArch, "NVRTC " + compiler_->version().text(),
                                  "one that knows " + arch);
      const std::vector<int>& archs = compiler_->archs();
      if (!archs.empty()) {
        reason.found += ", which knows sm_" + std::to_string(archs.front()) + " to sm_" +
                        std::to_string(archs.back());
      }
      reasons->push_back(std::move(reason));
      return false;
    }
    // Check the library's own version: the file name may not have told it.
    if (!runs_on(compiler_->version(), kind_, driver_)) {
      reasons->push_back(too_new(compiler_->version()));
      return false;
    }
    version_ = compiler_->version();
    maker_.text = "NVRTC " + version_.text();
    return true;
  }

  int newest_up_to(int number) override {
    const Status opened = open_nvrtc(file_.path, &compiler_);
    if (!opened.ok() || !runs_on(compiler_->version(), kind_, driver_)) return 0;
    int newest = 0;
    for (const int known : compiler_->archs())
      if (known <= number) newest = std::max(newest, known);
    return newest;
  }

  CompileResult compile(const CompileJob& job, std::vector<Reason>* reasons) override {
    CompileJob own = job;
    if (!include_.empty()) {
      own.options.push_back("--include-path=" + include_);
      own.options.push_back("--include-path=" + include_ + "/cccl");
    }
    // A forked child has inherited NVRTC's locks, which another thread may have held.
    const bool is_child = forks() != 0 && !(context_.worker + compile_worker_path()).empty();
    if (context_.in_worker || is_child)
      return compile_in_worker(context_, Backend::kCuda, file_.path, own, reasons);
    return compiler_->compile(own);
  }

  Reason too_new(const Version& version) const {
    const std::string most = kind_ == ImageKind::kPtx
                                 ? "CUDA " + driver_->text() + " at most"
                                 : "CUDA " + std::to_string(driver_->major()) + " at most";
    Reason reason = make_reason(Code::kJitDriver, "NVRTC " + version.text(),
                                "one of " + most + ", which is what the driver runs");
    reason.advice = "run `pip install nvidia-cuda-nvrtc-cu" + std::to_string(driver_->major()) +
                    "`, or upgrade the driver";
    if (driver_->major() >= 13)
      reason.advice = "run `pip install nvidia-cuda-nvrtc`, or upgrade the driver";
    return reason;
  }

 private:
  NvrtcFile file_;
  ImageKind kind_;
  std::optional<Version> driver_;
  std::string include_;
  const Nvrtc* compiler_ = nullptr;
  const JitContext& context_;
};

// The NVRTCs on the machine, searched again if none was found before or compiler_folders() changed.
struct MachineNvrtcs {
  ForkAwareLock lock;  // guards what follows
  std::vector<NvrtcFile> found;
  std::vector<std::string> folders;
  NvrtcMemo memo;  // of the search; empty if it was not written, or has been
};
MachineNvrtcs& nvrtcs_here = *new MachineNvrtcs;

std::vector<NvrtcFile> machine_nvrtcs(Cache* cache, std::vector<std::string>* searched) {
  const ForkAwareGuard guard(&nvrtcs_here.lock);
  std::vector<std::string> wanted = compiler_folders();
  if (nvrtcs_here.found.empty() || nvrtcs_here.folders != wanted) {
    NvrtcMemo memo;
    std::vector<NvrtcFile> found =
        find_nvrtc_files(wanted, current_environment(), cache, searched, &memo);
    const NoFork no_fork;
    nvrtcs_here.found = std::move(found);
    nvrtcs_here.folders = std::move(wanted);
    nvrtcs_here.memo = std::move(memo);
  }
  return nvrtcs_here.found;
}

void find_nvrtcs(const CompileRequest& request, const JitContext& context,
                 std::vector<std::unique_ptr<Toolchain>>* out, std::vector<Reason>* reasons) {
  std::vector<std::string> searched;
  const std::vector<NvrtcFile> files =
      context.nvrtcs != nullptr ? *context.nvrtcs : machine_nvrtcs(context.cache, &searched);
  const ImageKind kind = output_kind(request);
  for (const NvrtcFile& file : files) {
    auto toolchain = std::make_unique<NvrtcToolchain>(file, request, context);
    if (runs_on(file.version, kind, context.cuda_driver)) {
      out->push_back(std::move(toolchain));
    } else {
      reasons->push_back(toolchain->too_new(file.version));
    }
  }
  if (!files.empty()) return;
  std::string wanted = "libnvrtc";
  if (context.cuda_driver) wanted += " of CUDA " + std::to_string(context.cuda_driver->major());
  Reason reason = make_reason(
      Code::kJitNoCompiler,
      searched.empty() ? "no libnvrtc" : "no libnvrtc in " + join_some(searched, kFoldersShown),
      wanted);
  if (context.cuda_driver && context.cuda_driver->major() >= 13) {
    reason.advice = "install it: pip install nvidia-cuda-nvrtc, or the CUDA Toolkit";
  }
  reasons->push_back(std::move(reason));
}

}  // namespace

void remember_toolchains(Cache* cache) {
  const ForkAwareGuard guard(&nvrtcs_here.lock);
  if (!guard || nvrtcs_here.memo.text.empty()) return;
  cache->remember(nvrtcs_here.memo.name, nvrtcs_here.memo.text);
  const NoFork no_fork;
  nvrtcs_here.memo = {};
}

CompileResult compile_in_worker(const JitContext& context, Backend backend,
                                const std::string& library, const CompileJob& job,
                                std::vector<Reason>* reasons) {
  CompileWorker worker(context.worker);
  CompileResult result;
  worker.compile({backend, library, job}, context.deadline, job.progress, &result, reasons);
  return result;
}

OutsideHeaders outside_of(const CompileRequest& request, const std::string& toolkit) {
  const IncludeOptions options = include_options(request.options);
  std::string text = request.program;
  if (text.empty()) {
    for (const std::string& source : request.sources) text += "#include \"" + source + "\"\n";
  }
  for (const std::string& file : options.files) text += "#include \"" + file + "\"\n";
  return outside_headers(text, request.headers, options.folders, toolkit);
}

std::vector<std::unique_ptr<Toolchain>> find_toolchains(const CompileRequest& request,
                                                        const JitContext& context,
                                                        std::vector<Reason>* reasons) {
  std::vector<std::unique_ptr<Toolchain>> found;
  if (request.backend == Backend::kRocm) {
    find_hiprtcs(context, &found, reasons);
  } else {
    find_nvrtcs(request, context, &found, reasons);
  }
  return found;
}

}  // namespace opdock
