// The functions of compile.h.
// SPDX-License-Identifier: Apache-2.0
#include "opdock/compile.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#include "api/compile_context.h"
#include "api/report.h"
#include "base/installed.h"
#include "call/dtype.h"
#include "call/kernels.h"
#include "jit/packed.h"

namespace opdock {
namespace {

thread_local std::vector<Reason> last_reasons;

// The device vocabulary that is installed, read once.
const std::vector<SourceText>& vocabulary() {
  static const std::vector<SourceText>* const all = [] {
    namespace fs = std::filesystem;
    auto* found = new std::vector<SourceText>;
    const fs::path root = installed().device;
    std::error_code failed;
    for (const auto& entry : fs::directory_iterator(root / "opdock", failed)) {
      if (entry.path().extension() != ".cuh") continue;
      std::ifstream file(entry.path(), std::ios::binary);
      found->push_back({"opdock/" + entry.path().filename().string(),
                        std::string(std::istreambuf_iterator<char>(file), {})});
    }
    return found;
  }();
  return *all;
}

// The kernels of an image on a device, loaded once in this process and kept.
class Loaded {
 public:
  static Kernels* get(const CompileRequest& request, Driver* driver, opdock_device device,
                      const JitContext& context, CompiledImagePtr* image,
                      std::vector<Reason>* reasons) {
    static Loaded* all = new Loaded;
    *image = compile_image(request, context, reasons);
    if (*image == nullptr) return nullptr;
    const std::lock_guard lock(all->mutex_);
    if (Kernels* known = all->find(image->get(), device)) return known;
    std::unique_ptr<Kernels> made = load_compiled(request, driver, device, context, image, reasons);
    if (made == nullptr) return nullptr;
    return (all->kernels_[{image->get(), device.index}] = std::move(made)).get();
  }

 private:
  Kernels* find(const CompiledImage* image, opdock_device device) {
    const auto known = kernels_.find({image, device.index});
    return known == kernels_.end() ? nullptr : known->second.get();
  }
  std::mutex mutex_;
  // An image that is loaded is held by its kernels: its address is not used again.
  std::map<std::pair<const CompiledImage*, int32_t>, std::unique_ptr<Kernels>> kernels_;
};

opdock_status status_of(const std::vector<Reason>& reasons) {
  for (const Reason& reason : reasons) {
    switch (reason.code) {
      case Code::kCancelled:
        return OPDOCK_CANCELLED;
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

// Runs `work`, which returns a status and sets *problem, and turns exceptions into statuses.
template <typename Work>
opdock_status guarded(char* error, uint32_t error_size, const Work& work) {
  try {
    std::string problem;
    const opdock_status status = work(&problem);
    return status == OPDOCK_OK ? status : fail(status, problem, error, error_size);
  } catch (const std::exception& exception) {
    return fail(OPDOCK_INTERNAL, exception.what(), error, error_size);
  }
}

}  // namespace
}  // namespace opdock

using namespace opdock;

struct opdock_module {
  opdock_runtime* runtime = nullptr;
  CompileRequest request;  // with the kernels that were named beforehand
  opdock_device device{};
  Driver* driver = nullptr;   // NULL: an image alone
  bool arch_is_gpus = false;  // nobody named an architecture: it is the device's own
  std::mutex mutex;           // of what follows
  CompiledImagePtr image;     // of the kernels named beforehand
  std::map<std::string, opdock_kernel*, std::less<>> kernels;

  opdock_status fail_for(std::vector<Reason> reasons, std::string* problem) {
    std::erase_if(reasons, [](const Reason& reason) {
      return info(reason.code).severity == Severity::kNotice;
    });
    *problem = text_of(request.name, reasons);
    const opdock_status status = status_of(reasons);
    last_reasons = std::move(reasons);
    return status;
  }

  opdock_status compile(std::string* problem) {
    std::vector<Reason> reasons;
    const Waiting waiting(runtime->hooks());
    std::atomic<bool> told{true};  // it was asked for by name: no line in a log about it
    HookedProgress progress(runtime->hooks(), &told);
    JitContext context = jit_context(runtime, &progress, &reasons);
    // Without a device nothing of this process is needed, and it may be about to fork: NVRTC 13
    // initialises the CUDA driver where it compiles.
    context.in_worker = driver == nullptr;
    image = compile_image(request, context, &reasons);
    if (const auto ptx =
            image == nullptr ? for_newer_gpu(request, context, &reasons) : std::nullopt)
      image = compile_image(*ptx, context, &reasons);
    if (image == nullptr) return fail_for(std::move(reasons), problem);
    if (!image->log.empty()) runtime->log(1, (request.name + ":\n" + image->log).c_str());
    return OPDOCK_OK;
  }

  // What to compile instead where the GPU is newer than every compiler; `reasons`, why it could not
  // be compiled for itself, are settled then. An architecture that the caller named is never
  // replaced.
  std::optional<CompileRequest> for_newer_gpu(const CompileRequest& failed,
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

  // One that was not named beforehand gets an image of its own.
  opdock_status find(const std::string& name, opdock_kernel** out, std::string* problem) {
    std::vector<Reason> reasons;
    const Waiting waiting(runtime->hooks());
    std::atomic<bool> told{true};
    HookedProgress progress(runtime->hooks(), &told);
    const JitContext context = jit_context(runtime, &progress, &reasons);
    CompileRequest wanted = request;
    const bool named =
        std::find(wanted.kernels.begin(), wanted.kernels.end(), name) != wanted.kernels.end();
    if (!named) wanted.kernels = {name};
    CompiledImagePtr own;
    Kernels* loaded = Loaded::get(wanted, driver, device, context, &own, &reasons);
    if (const auto ptx =
            loaded == nullptr ? for_newer_gpu(wanted, context, &reasons) : std::nullopt)
      loaded = Loaded::get(*ptx, driver, device, context, &own, &reasons);
    if (loaded == nullptr) return fail_for(std::move(reasons), problem);
    if (named) image = own;
    void* previous = nullptr;
    DriverStatus entered = driver->enter(device.index, nullptr, &previous);
    if (!entered.ok()) {
      *problem = entered.text;
      return entered.status;
    }
    const opdock_status status = loaded->find(name.c_str(), out, problem);
    driver->leave(previous);
    return status;
  }
};

namespace {

opdock_status null_argument(const char* name, std::string* problem) {
  *problem = std::string(name) + ": found NULL, wanted a value";
  return OPDOCK_INVALID_ARGUMENT;
}

// The kernel has come from it, so it is there.
Driver* driver_of(const opdock_kernel& kernel) {
  if (kernel.device.type == OPDOCK_CUDA) {
    static Driver* const cuda = driver_for(Backend::kCuda, nullptr);
    return cuda;
  }
  static Driver* const rocm = driver_for(Backend::kRocm, nullptr);
  return rocm;
}

bool uses_vocabulary(const CompileRequest& request) {
  if (request.program.find("opdock/") != request.program.npos) return true;
  return std::any_of(request.headers.begin(), request.headers.end(), [](const SourceText& header) {
    return header.text.find("opdock/") != header.text.npos;
  });
}

// False and *problem if a member is NULL that must not be.
bool read_options(const opdock_compile_options& given, CompileRequest* out, std::string* problem) {
  if (given.source == nullptr) return null_argument("options.source", problem) == OPDOCK_OK;
  out->program = given.source;
  out->program_name = given.name != nullptr && *given.name != '\0' ? given.name : "program.cu";
  out->name = out->program_name;
  const auto missing = [&](const char* what, uint32_t index) {
    *problem = std::string("options.") + what + "[" + std::to_string(index) +
               "]: found NULL, wanted a text";
    return false;
  };
  for (uint32_t i = 0; i < given.num_headers; ++i) {
    const opdock_header* header = given.headers == nullptr ? nullptr : &given.headers[i];
    if (header == nullptr || header->name == nullptr || header->text == nullptr) {
      return missing("headers", i);
    }
    out->headers.push_back({header->name, header->text});
  }
  for (uint32_t i = 0; i < given.num_options; ++i) {
    if (given.options == nullptr || given.options[i] == nullptr) return missing("options", i);
    out->options.push_back(given.options[i]);
  }
  for (uint32_t i = 0; i < given.num_kernels; ++i) {
    if (given.kernels == nullptr || given.kernels[i] == nullptr) return missing("kernels", i);
    out->kernels.push_back(given.kernels[i]);
  }
  if (!uses_vocabulary(*out)) return true;
  for (const SourceText& header : vocabulary()) {
    const bool own = std::any_of(out->headers.begin(), out->headers.end(),
                                 [&](const SourceText& one) { return one.name == header.name; });
    if (!own) out->headers.push_back(header);
  }
  return true;
}

// The backend, the driver and the architecture.
opdock_status choose_target(const opdock_compile_options& given, opdock_module* module,
                            std::string* problem) {
  CompileRequest& request = module->request;
  if (given.arch != nullptr) request.arch = given.arch;
  if (given.device.type == 0 && given.arch != nullptr) {
    request.backend = request.arch.starts_with("gfx") ? Backend::kRocm : Backend::kCuda;
    return OPDOCK_OK;
  }
  if (given.device.type != OPDOCK_CUDA && given.device.type != OPDOCK_ROCM) {
    *problem = "options.device: found " + to_text(given.device) +
               ", wanted a GPU, or type 0 with `arch` for an image alone";
    return OPDOCK_INVALID_ARGUMENT;
  }
  request.backend = static_cast<Backend>(given.device.type);
  module->device = given.device;
  module->driver = driver_for(request.backend, problem);
  if (module->driver == nullptr) return OPDOCK_INCOMPATIBLE;
  const opdock_device_facts* facts = nullptr;
  const DriverStatus asked = module->driver->facts(given.device.index, &facts);
  if (!asked.ok()) {
    *problem = asked.text;
    return asked.status;
  }
  if (!request.arch.empty()) return OPDOCK_OK;
  Gpu gpu{};
  gpu.backend = request.backend;
  const DriverStatus told = module->driver->arch(given.device.index, &gpu.arch);
  if (!told.ok()) {
    *problem = told.text;
    return told.status;
  }
  gpu.major = static_cast<int>(facts->arch_major);
  gpu.minor = static_cast<int>(facts->arch_minor);
  request.arch = exact_arch(gpu);
  module->arch_is_gpus = true;
  return OPDOCK_OK;
}

}  // namespace

opdock_status opdock_compile(opdock_runtime* runtime, const opdock_compile_options* options,
                             opdock_module** out, char* error, uint32_t error_size) {
  last_reasons.clear();
  return guarded(error, error_size, [&](std::string* problem) {
    if (runtime == nullptr) return null_argument("runtime", problem);
    if (options == nullptr) return null_argument("options", problem);
    if (out == nullptr) return null_argument("out", problem);
    *out = nullptr;
    if (!OPDOCK_HAS(options, opdock_compile_options, arch)) {
      *problem = "options: found struct_size " + std::to_string(options->struct_size) +
                 ", wanted sizeof(opdock_compile_options), " + std::to_string(sizeof *options) +
                 "; set it before calling";
      return OPDOCK_INVALID_ARGUMENT;
    }
    auto module = std::make_unique<opdock_module>();
    module->runtime = runtime;
    if (!read_options(*options, &module->request, problem)) return OPDOCK_INVALID_ARGUMENT;
    opdock_status status = choose_target(*options, module.get(), problem);
    if (status == OPDOCK_OK && !module->request.kernels.empty()) status = module->compile(problem);
    if (status == OPDOCK_OK) *out = module.release();
    return status;
  });
}

void opdock_module_free(opdock_module* module) {
  delete module;
}

opdock_status opdock_module_kernel(opdock_module* module, const char* name, opdock_kernel** out,
                                   char* error, uint32_t error_size) {
  last_reasons.clear();
  return guarded(error, error_size, [&](std::string* problem) {
    if (module == nullptr) return null_argument("module", problem);
    if (name == nullptr) return null_argument("name", problem);
    if (out == nullptr) return null_argument("out", problem);
    if (module->driver == nullptr) {
      *problem = "kernel(\"" + std::string(name) +
                 "\"): found a module compiled for an architecture alone, wanted one for a device; "
                 "give options.device";
      return OPDOCK_INVALID_ARGUMENT;
    }
    const std::lock_guard lock(module->mutex);
    const auto known = module->kernels.find(std::string_view(name));
    if (known != module->kernels.end()) {
      *out = known->second;
      return OPDOCK_OK;
    }
    const opdock_status status = module->find(name, out, problem);
    if (status == OPDOCK_OK) module->kernels[name] = *out;
    return status;
  });
}

opdock_status opdock_module_get_image(opdock_module* module, opdock_module_image* out, char* error,
                                      uint32_t error_size) {
  last_reasons.clear();
  return guarded(error, error_size, [&](std::string* problem) {
    if (module == nullptr) return null_argument("module", problem);
    if (out == nullptr || !OPDOCK_HAS(out, opdock_module_image, log)) {
      return null_argument("out (with its struct_size)", problem);
    }
    const std::lock_guard lock(module->mutex);
    if (module->image == nullptr) {
      const opdock_status status = module->compile(problem);
      if (status != OPDOCK_OK) return status;
    }
    const CompiledImage& image = *module->image;
    *out = {out->struct_size,   image.from_cache ? 1u : 0u, image.bytes.data(), image.bytes.size(),
            image.arch.c_str(), image.maker.c_str(),        image.log.c_str()};
    return OPDOCK_OK;
  });
}

opdock_status opdock_kernel_get_info(const opdock_kernel* kernel, opdock_kernel_info* out,
                                     char* error, uint32_t error_size) {
  return guarded(error, error_size, [&](std::string* problem) {
    if (kernel == nullptr) return null_argument("kernel", problem);
    if (out == nullptr || !OPDOCK_HAS(out, opdock_kernel_info, device)) {
      return null_argument("out (with its struct_size)", problem);
    }
    Driver* driver = driver_for(static_cast<Backend>(kernel->device.type), problem);
    if (driver == nullptr) return OPDOCK_INCOMPATIBLE;
    const std::vector<uint32_t>* sizes = driver->params(kernel->function);
    *out = {out->struct_size,
            sizes == nullptr ? 0u : static_cast<uint32_t>(sizes->size()),
            sizes == nullptr ? 0u : 1u,
            0,
            sizes == nullptr ? nullptr : sizes->data(),
            kernel->image_name,
            kernel->device};
    return OPDOCK_OK;
  });
}

opdock_status opdock_launch_kernel(opdock_kernel* kernel, void* stream, const opdock_launch* launch,
                                   char* error, uint32_t error_size) {
  const auto refuse = [&](opdock_status status, const std::string& text) {
    return fail(status, text, error, error_size);
  };
  if (kernel == nullptr || launch == nullptr) {
    return refuse(OPDOCK_INVALID_ARGUMENT, "launch: found a NULL kernel or launch, wanted both");
  }
  if (!OPDOCK_HAS(launch, opdock_launch, num_args)) {
    return refuse(OPDOCK_INVALID_ARGUMENT,
                  "launch: struct_size ends before num_args; set it to sizeof(opdock_launch)");
  }
  for (int i = 0; i < 3; ++i) {
    if (launch->grid[i] == 0 || launch->block[i] == 0) {
      return refuse(OPDOCK_INVALID_ARGUMENT,
                    "launch: found a grid or block size of 0, wanted at least 1; skip the launch "
                    "where there is nothing to do");
    }
  }
  if (launch->num_args != 0 && launch->args == nullptr) {
    return refuse(OPDOCK_INVALID_ARGUMENT,
                  "launch: found args of NULL with num_args above 0, wanted their addresses");
  }
  try {
    Driver* const driver = driver_of(*kernel);
    void* previous = nullptr;
    DriverStatus done = driver->enter(kernel->device.index, stream, &previous);
    if (!done.ok()) return refuse(done.status, done.text);
    done = driver->launch(kernel->function, stream, *launch);
    driver->leave(previous);
    if (done.ok()) return OPDOCK_OK;
    // Here it is the program that gave the arguments, not a plugin.
    return refuse(done.status == OPDOCK_INTERNAL ? OPDOCK_INVALID_ARGUMENT : done.status,
                  done.text);
  } catch (const std::exception& exception) {
    return refuse(OPDOCK_INTERNAL, exception.what());
  }
}

opdock_status opdock_compile_reasons_json(char** out, char* error, uint32_t error_size) {
  return report([] { return to_json(last_reasons); }, out, error, error_size);
}

opdock_status opdock_add_compiler_folder(const char* folder, char* error, uint32_t error_size) {
  return guarded(error, error_size, [&](std::string* problem) {
    if (folder == nullptr) return null_argument("folder", problem);
    add_compiler_folder(folder);
    return OPDOCK_OK;
  });
}
