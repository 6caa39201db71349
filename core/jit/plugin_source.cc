// SPDX-License-Identifier: Apache-2.0
#include "jit/plugin_source.h"

#include <algorithm>
#include <optional>
#include <set>
#include <thread>

#include "schema/dtype.h"

namespace opdock {
namespace {

// Returns whether the status is the device's fault and says nothing against the image.
bool blames_device(opdock_status status) {
  return status == OPDOCK_DEVICE_LOST || status == OPDOCK_OUT_OF_MEMORY;
}

CompileRequest request_of(const CompileRequest& all, const std::string& kernel) {
  CompileRequest one = all;
  one.name += " " + kernel;
  one.kernels = {kernel};
  return one;
}

ImageRow row_of(const CompiledImage& image, Backend backend) {
  return {backend, image.kind, image.arch, image.toolkit, image.bytes, image.names, 0};
}

// Makes the device's context current while it lives.
class Entered {
 public:
  Entered(Driver* driver, int index) : driver_(driver) {
    status_ = driver->enter(index, nullptr, &previous_);
  }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;
  ~Entered() {
    if (status_.ok()) driver_->leave(previous_);
  }
  const Status& status() const { return status_; }

 private:
  Driver* driver_;
  void* previous_ = nullptr;
  Status status_;
};

// Loads the image and looks up its first kernel, which fails if it is damaged or for another GPU.
Status try_image(const CompiledImage& image, Driver* driver, int index, ModuleHandle* module) {
  Status done = driver->load(index, image.bytes, module);
  if (!done.ok()) return done;
  std::vector<std::pair<std::string, std::string>> names;
  if (!read_names(image.names, &names) || names.empty()) return done;
  FunctionHandle function = nullptr;
  return driver->find(*module, names.front().second.c_str(), &function);
}

// Returns the notice that a compiler now knows an architecture for which PTX stood in before. The
// notice is given once.
std::optional<Reason> newly_known(const CompileRequest& request, const std::string& memo,
                                  const JitContext& context) {
  if (context.cache == nullptr) return std::nullopt;
  const std::string before = context.cache->recall(memo).value_or("");
  if (before.empty()) return std::nullopt;
  context.cache->remember(memo, "");
  return make_reason(Code::kArchKnown, "a compiler that knows " + request.arch,
                     "no more PTX for " + before + ", which stood in for it");
}

}  // namespace

std::string exact_arch(const Gpu& gpu) {
  if (gpu.backend == Backend::kRocm) return gpu.arch;
  std::string arch = "sm_" + std::to_string(gpu.major) + std::to_string(gpu.minor);
  if (gpu.major >= 9) arch += 'a';
  return arch;
}

bool packed_request(const std::string& plugin, std::span<const ImageRow> rows, Backend backend,
                    const std::string& arch, CompileRequest* out, std::vector<Reason>* reasons) {
  *out = {};
  out->name = plugin;
  out->backend = backend;
  out->arch = arch;
  std::vector<std::pair<std::string, std::string>> names;
  for (const ImageRow& row : rows) {
    if (row.kind != ImageKind::kSource) continue;
    out->headers.push_back(
        {row.arch, std::string(reinterpret_cast<const char*>(row.bytes.data()), row.bytes.size())});
    // The vocabulary's names have a folder; the plugin's own files have none.
    if (row.arch.find('/') == std::string::npos) out->sources.push_back(row.arch);
    if (read_names(row.names, &names)) {
      for (const auto& [kernel, _] : names) out->kernels.push_back(kernel);
    }
  }
  // If an older tool packed the plugin, the compiled images name the kernels.
  for (const ImageRow& row : rows) {
    if (!out->kernels.empty()) break;
    if (row.kind == ImageKind::kSource || !read_names(row.names, &names)) continue;
    for (const auto& [kernel, _] : names) out->kernels.push_back(kernel);
  }
  if (!out->sources.empty() && !out->kernels.empty()) return true;
  reasons->push_back(make_reason(
      Code::kJitNoSource,
      plugin + (out->sources.empty() ? " without device source" : " without kernels' names"),
      "source to compile for " + arch));
  return false;
}

std::unique_ptr<Kernels> load_compiled(const CompileRequest& request, Driver* driver,
                                       opdock_device device, const JitContext& context,
                                       CompiledImagePtr* image, std::vector<Reason>* reasons) {
  *image = compile_image(request, context, reasons);
  for (bool again = false; *image != nullptr; again = true) {
    const Entered entered(driver, device.index);
    ModuleHandle module = nullptr;
    const Status done = entered.status().ok() ? try_image(**image, driver, device.index, &module)
                                              : entered.status();
    if (done.ok()) {
      return std::make_unique<Kernels>(driver, device, row_of(**image, request.backend), module,
                                       *image);
    }
    if (!entered.status().ok() || blames_device(done.status)) {
      reasons->push_back(
          make_reason(Code::kDriverFailed, done.text, to_text(device) + " to be usable"));
      break;
    }
    const std::string why = "the " + (*image)->arch + " " + std::string(to_text((*image)->kind)) +
                            " by " + (*image)->maker + ", refused on " + to_text(device) + ": " +
                            done.text;
    if (again) {
      reasons->push_back(make_reason(Code::kJitImage, why, "an image that loads"));
      break;
    }
    *image = compile_again(request, context, *image, why, reasons);
  }
  *image = nullptr;
  return nullptr;
}

std::vector<CompileRequest> kernel_requests(const CompileRequest& all) {
  std::vector<CompileRequest> requests;
  std::set<std::string> seen;
  for (const std::string& kernel : all.kernels) {
    if (seen.insert(kernel).second) requests.push_back(request_of(all, kernel));
  }
  return requests;
}

CompiledKernels::CompiledKernels(CompileRequest request, Driver* driver, opdock_device device)
    : Kernels(device, request.kernels, "the source for " + request.arch),
      request_(std::move(request)),
      driver_(driver) {}

bool CompiledKernels::make(std::string_view name, const JitContext& context,
                           std::vector<Reason>* reasons) {
  ForkAwareLock* making = nullptr;
  {
    const std::lock_guard lock(mutex_);
    making = &making_[std::string(name)];
  }
  const ForkAwareGuard guard(
      making, [&] { return context.progress != nullptr && context.progress->cancelled(); });
  if (!guard) {
    reasons->push_back(guard.was_cancelled() ? make_reason(Code::kCancelled)
                                             : deadlock_reason(request_.name + " to be compiled"));
    return false;
  }
  if (is_settled(name)) return true;
  CompiledImagePtr image;
  std::unique_ptr<Kernels> part = load_compiled(request_of(request_, std::string(name)), driver_,
                                                device(), context, &image, reasons);
  if (part == nullptr) return false;
  opdock_kernel* kernel = nullptr;
  const Entered entered(driver_, device().index);
  if (!entered.status().ok()) {
    reasons->push_back(make_reason(Code::kDriverFailed, entered.status().text,
                                   to_text(device()) + " to be usable"));
    return false;
  }
  const Status found = part->find(std::string(name).c_str(), &kernel);
  if (!found.ok()) {
    reasons->push_back(make_reason(Code::kDriverFailed, found.text, "the kernel to be found"));
    return false;
  }
  {
    const std::lock_guard lock(mutex_);
    parts_.push_back(std::move(part));
  }
  put(name, *kernel);
  return true;
}

bool CompiledKernels::make_all(const JitContext& context, std::vector<Reason>* reasons) {
  std::vector<CompileRequest> missing = kernel_requests(request_);
  std::erase_if(missing,
                [&](const CompileRequest& one) { return is_settled(one.kernels.front()); });
  std::vector<CompiledImagePtr> images(missing.size());  // held until they are loaded
  bool whole = true;
  if (missing.size() > 1) {
    const int jobs = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    compile_all(missing, jobs, context,
                [&](size_t i, const CompiledImagePtr& image, const std::vector<Reason>& why) {
                  images[i] = image;
                  if (image != nullptr) return;
                  if (whole) reasons->insert(reasons->end(), why.begin(), why.end());
                  whole = false;
                });
  }
  for (size_t i = 0; i < missing.size(); ++i) {
    if (missing.size() > 1 && images[i] == nullptr) continue;
    std::vector<Reason> why;
    if (make(missing[i].kernels.front(), context, &why)) continue;
    if (whole) reasons->insert(reasons->end(), why.begin(), why.end());
    whole = false;
  }
  return whole;
}

std::unique_ptr<CompiledKernels> jit_kernels(const std::string& plugin,
                                             std::span<const ImageRow> rows, Driver* driver,
                                             opdock_device device, const Gpu& gpu,
                                             const JitContext& context,
                                             std::vector<Reason>* reasons) {
  CompileRequest request;
  const Backend backend = static_cast<Backend>(device.type);
  if (!packed_request(plugin, rows, backend, exact_arch(gpu), &request, reasons)) return nullptr;
  std::vector<Reason> why;
  // Remembers what stood in for this architecture in this plugin, so that a notice can say when it
  // no longer has to.
  const std::string memo = "stand-in " + plugin + " " + request.arch;
  if (can_make(kernel_requests(request), context, &why)) {
    if (std::optional<Reason> notice = newly_known(request, memo, context))
      reasons->push_back(*std::move(notice));
  } else {
    Reason notice{};
    std::optional<CompileRequest> ptx = ptx_for_newer_gpu(request, context, &notice);
    if (!ptx) {
      reasons->insert(reasons->end(), why.begin(), why.end());
      return nullptr;
    }
    if (!can_make(kernel_requests(*ptx), context, reasons)) return nullptr;
    reasons->push_back(std::move(notice));
    request = *std::move(ptx);
    if (context.cache != nullptr && context.cache->recall(memo) != request.arch)
      context.cache->remember(memo, request.arch);
  }
  return std::make_unique<CompiledKernels>(std::move(request), driver, device);
}

}  // namespace opdock
