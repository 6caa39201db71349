// SPDX-License-Identifier: Apache-2.0
#include "chain/module.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <utility>

#include "base/fork_aware_lock.h"
#include "base/mutex.h"
#include "chain/compile_context.h"
#include "chain/function_table.h"
#include "facts/arch.h"
#include "jit/plugin_source.h"
#include "jit/vocabulary.h"

namespace opdock {
namespace {

// The kernels of an image on a device, loaded once in this process and kept.
class LoadedModule {
 public:
  static Kernels* get(const CompileRequest& request, Driver* driver, opdock_device device,
                      const JitContext& context, CompiledImagePtr* image,
                      std::vector<Reason>* reasons) {
    *image = compile_image(request, context, reasons);
    if (*image == nullptr) return nullptr;
    const ForkAwareGuard guard(&all.lock_, [&] { return context.progress->cancelled(); });
    if (!guard) {
      reasons->push_back(guard.was_cancelled()
                             ? make_reason(Code::kCancelled)
                             : deadlock_reason(request.name + " to be loaded on the device"));
      return nullptr;
    }
    if (Kernels* known = all.find(image->get(), device)) return known;
    std::unique_ptr<Kernels> made = load_compiled(request, driver, device, context, image, reasons);
    if (made == nullptr) return nullptr;
    const NoFork no_fork;
    return (all.kernels_[{image->get(), device.index}] = std::move(made)).get();
  }

 private:
  Kernels* find(const CompiledImage* image, opdock_device device) {
    const auto known = kernels_.find({image, device.index});
    return known == kernels_.end() ? nullptr : known->second.get();
  }
  static LoadedModule& all;
  ForkAwareLock lock_;  // guards what follows
  // An image's address identifies it: kernels keep their image alive, so its address is not reused.
  std::map<std::pair<const CompiledImage*, int32_t>, std::unique_ptr<Kernels>> kernels_;
};

LoadedModule& LoadedModule::all = *new LoadedModule;

opdock_status module_status(const std::vector<Reason>& reasons) {
  for (const Reason& reason : reasons) {
    switch (reason.code) {
      case Code::kCancelled:
        return OPDOCK_CANCELLED;
      case Code::kWithinItself:
      case Code::kJitSource:
      case Code::kJitOption:
        return OPDOCK_INVALID_ARGUMENT;
      case Code::kJitKernel:
        return OPDOCK_NOT_FOUND;
      case Code::kDriverFailed:
        return OPDOCK_DEVICE_ERROR;
      case Code::kJitFailed:
        return OPDOCK_INTERNAL;
      default:
        break;
    }
  }
  return OPDOCK_INCOMPATIBLE;
}

std::string text_of(const std::string& name, const std::vector<Reason>& reasons) {
  std::string text;
  for (const Reason& reason : reasons) {
    text += (text.empty() ? name + ": " : "\n") + to_text(reason);
  }
  return text.empty() ? name + ": no reason was recorded" : text;
}

}  // namespace

std::vector<Reason>& last_compile_reasons() {
  thread_local std::vector<Reason> reasons;
  return reasons;
}

Status null_argument(const char* name) {
  return {OPDOCK_INVALID_ARGUMENT, std::string(name) + ": found NULL, wanted a value"};
}

}  // namespace opdock

using namespace opdock;

Status opdock_module::fail_for(std::vector<Reason> reasons) {
  std::erase_if(reasons, [](const Reason& reason) {
    return info(reason.code).severity == Severity::kNotice;
  });
  Status failed{module_status(reasons), text_of(request.name, reasons)};
  last_compile_reasons() = std::move(reasons);
  return failed;
}

Status opdock_module::aim_at(opdock_device at) {
  request.backend = static_cast<Backend>(at.type);
  device = at;
  Status done = driver_for(request.backend, &driver);
  if (!done.ok()) return done;
  const opdock_device_facts* facts = nullptr;
  done = driver->facts(at.index, &facts);
  if (!done.ok() || !request.arch.empty()) return done;
  Gpu gpu{};
  gpu.backend = request.backend;
  done = driver->arch(at.index, &gpu.arch);
  if (!done.ok()) return done;
  gpu.major = static_cast<int>(facts->arch_major);
  gpu.minor = static_cast<int>(facts->arch_minor);
  request.arch = exact_arch(gpu);
  arch_is_gpus = true;
  return {};
}

Status FunctionTable::compile_kernel(opdock_device device, const std::string& name,
                                     std::string source, const char* kernel, opdock_kernel** out) {
  opdock_module module;
  module.runtime = runtime_;
  CompileRequest& request = module.request;
  request.program = std::move(source);
  request.program_name = name + ".cu";
  request.name = name;
  request.headers = vocabulary();
  request.kernels = {kernel};
  const Status aimed = module.aim_at(device);
  return aimed.ok() ? module.find(kernel, out) : aimed;
}

Status opdock_module::compile() {
  std::vector<Reason> reasons;
  const Waiting waiting(runtime->hooks());
  std::atomic<bool> announced{true};  // no log line: the caller knows of the compilation
  HookedProgress progress(runtime->hooks(), &announced);
  JitContext context = jit_context(runtime, &progress, &reasons);
  // Without a device, compile in a worker process: NVRTC 13 initialises the CUDA driver in the
  // process in which it compiles, and this process may be about to fork.
  context.in_worker = driver == nullptr;
  CompiledImagePtr made = compile_image(request, context, &reasons);
  if (const auto ptx = made == nullptr ? for_newer_gpu(request, context, &reasons) : std::nullopt)
    made = compile_image(*ptx, context, &reasons);
  if (made == nullptr) return fail_for(std::move(reasons));
  put(std::move(made));
  if (!image->log.empty()) runtime->log(1, (request.name + ":\n" + image->log).c_str());
  return {};
}

void opdock_module::put(CompiledImagePtr made) {
  const NoFork no_fork;
  image.swap(made);
}

// Returns what to compile instead if the GPU is newer than every compiler, and then clears
// `reasons`, which say why the GPU's own architecture could not be compiled. An architecture that
// the caller named is never replaced.
std::optional<CompileRequest> opdock_module::for_newer_gpu(const CompileRequest& failed,
                                                           const JitContext& context,
                                                           std::vector<Reason>* reasons) const {
  if (!arch_is_gpus) return std::nullopt;
  Reason why{};
  std::optional<CompileRequest> ptx = ptx_for_newer_gpu(failed, context, &why);
  if (!ptx) return std::nullopt;
  reasons->clear();
  runtime->log(1, (request.name + ": " + to_text(why)).c_str());
  return ptx;
}

Status opdock_module::find(const std::string& name, opdock_kernel** out) {
  std::vector<Reason> reasons;
  const Waiting waiting(runtime->hooks());
  std::atomic<bool> announced{true};
  HookedProgress progress(runtime->hooks(), &announced);
  const JitContext context = jit_context(runtime, &progress, &reasons);
  const bool named =
      std::find(request.kernels.begin(), request.kernels.end(), name) != request.kernels.end();
  std::optional<CompileRequest> other;
  if (!named) {
    other = request;
    other->kernels = {name};
  }
  const CompileRequest& wanted = named ? request : *other;
  CompiledImagePtr own;
  Kernels* loaded = LoadedModule::get(wanted, driver, device, context, &own, &reasons);
  if (const auto ptx = loaded == nullptr ? for_newer_gpu(wanted, context, &reasons) : std::nullopt)
    loaded = LoadedModule::get(*ptx, driver, device, context, &own, &reasons);
  if (loaded == nullptr) return fail_for(std::move(reasons));
  if (named) put(std::move(own));
  void* previous = nullptr;
  Status entered = driver->enter(device.index, nullptr, &previous);
  if (!entered.ok()) return entered;
  Status found = loaded->find(name.c_str(), out);
  driver->leave(previous);
  return found;
}
