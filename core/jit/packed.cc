// SPDX-License-Identifier: Apache-2.0
#include "jit/packed.h"

#include <optional>

#include "call/dtype.h"

namespace opdock {
namespace {

// Statuses that say nothing against the image.
bool blames_device(opdock_status status) {
  return status == OPDOCK_DEVICE_LOST || status == OPDOCK_OUT_OF_MEMORY;
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
  const DriverStatus& status() const { return status_; }

 private:
  Driver* driver_;
  void* previous_ = nullptr;
  DriverStatus status_;
};

// Loads it and looks its first kernel up: what is damaged or for another GPU shows here.
DriverStatus try_image(const CompiledImage& image, Driver* driver, int index,
                       ModuleHandle* module) {
  DriverStatus done = driver->load(index, image.bytes, module);
  if (!done.ok()) return done;
  std::vector<std::pair<std::string, std::string>> names;
  if (!read_names(image.names, &names) || names.empty()) return done;
  FunctionHandle function = nullptr;
  return driver->find(*module, names.front().second.c_str(), &function);
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
        {row.arch, {reinterpret_cast<const char*>(row.bytes.data()), row.bytes.size()}});
    // The vocabulary's names have a folder; the plugin's own files have none.
    if (row.arch.find('/') == std::string::npos) out->sources.push_back(row.arch);
    if (read_names(row.names, &names)) {
      for (const auto& [kernel, _] : names) out->kernels.push_back(kernel);
    }
  }
  // Packed by an older tool: the compiled images name the kernels.
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
    const DriverStatus done = entered.status().ok()
                                  ? try_image(**image, driver, device.index, &module)
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

std::unique_ptr<Kernels> jit_kernels(const std::string& plugin, std::span<const ImageRow> rows,
                                     Driver* driver, opdock_device device, const Gpu& gpu,
                                     const JitContext& context, std::vector<Reason>* reasons) {
  CompileRequest request;
  const Backend backend = static_cast<Backend>(device.type);
  if (!packed_request(plugin, rows, backend, exact_arch(gpu), &request, reasons)) return nullptr;
  CompiledImagePtr image;
  return load_compiled(request, driver, device, context, &image, reasons);
}

}  // namespace opdock
