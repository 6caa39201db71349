// hipRTC as a toolchain. It runs only in processes of its own.
// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <mutex>

#include "base/mutex.h"
#include "base/texts.h"
#include "jit/toolchain.h"

namespace opdock {
namespace {

// Remembers what a hipRTC takes, by its id and the architecture, because asking takes a process.
// Only answers are kept, not failures to get one.
class KnownArchs {
 public:
  bool find(const std::string& key, std::string* others) {
    const std::lock_guard lock(mutex_);
    const auto known = all_.find(key);
    if (known == all_.end()) return false;
    *others = known->second;
    return true;
  }
  void put(const std::string& key, const std::string& others) {
    const std::lock_guard lock(mutex_);
    all_[key] = others;
  }

 private:
  Mutex mutex_;
  std::map<std::string, std::string> all_;
};
KnownArchs& known_archs = *new KnownArchs;

class HiprtcToolchain : public Toolchain {
 public:
  HiprtcToolchain(const HiprtcFile& file, const JitContext& context)
      : file_(file), context_(context) {
    version_ = file.version;
    maker_ = {"hipRTC " + file.version.text(), file.id};
  }
  bool open(const std::string& arch, std::vector<Reason>* reasons) override {
    const std::string problem = library_problem(file_.path);
    if (!problem.empty()) {
      reasons->push_back(make_reason(Code::kJitNoCompiler, problem, "a hipRTC that opens"));
      return false;
    }
    const std::string key = file_.id + " " + arch;
    std::string others;  // known ones; empty: it knows this one, or does not tell
    if (!known_archs.find(key, &others)) {
      CompileJob question;
      question.arch = arch;
      const CompileResult answer =
          compile_in_worker(context_, Backend::kRocm, file_.path, question, reasons);
      if (!answer.ok && answer.fault != CompileFault::kArch) return false;
      others = answer.log;
      known_archs.put(key, others);
    }
    if (others.empty()) return true;
    Reason reason = make_reason(Code::kJitArch, maker_.text + ", which knows " + others,
                                "one that knows " + arch);
    reason.advice = "install a ROCm that knows the GPU";
    reasons->push_back(std::move(reason));
    return false;
  }
  CompileResult compile(const CompileJob& job, std::vector<Reason>* reasons) override {
    return compile_in_worker(context_, Backend::kRocm, file_.path, job, reasons);
  }

 private:
  HiprtcFile file_;
  const JitContext& context_;
};

}  // namespace

void find_hiprtcs(const JitContext& context, std::vector<std::unique_ptr<Toolchain>>* out,
                  std::vector<Reason>* reasons) {
  std::vector<std::string> searched;
  const std::vector<HiprtcFile> files = context.hiprtcs != nullptr
                                            ? *context.hiprtcs
                                            : find_hiprtc_files(current_environment(), &searched);
  for (const HiprtcFile& file : files) {
    out->push_back(std::make_unique<HiprtcToolchain>(file, context));
  }
  if (!files.empty()) return;
  Reason reason = make_reason(Code::kJitNoCompiler, "no libhiprtc", "hipRTC");
  if (!searched.empty()) reason.found += " in " + join_some(searched, kFoldersShown);
  reason.advice = "install it: apt install libamdhip64-5, or AMD's ROCm";
  reasons->push_back(std::move(reason));
}

}  // namespace opdock
