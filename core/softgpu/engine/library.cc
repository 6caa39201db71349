// SPDX-License-Identifier: Apache-2.0
#include "library.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "engine.h"

namespace softgpu {

class Libraries {
 public:
  static std::shared_ptr<KernelLibrary> open(const std::string& path, std::string* problem);

 private:
  static std::mutex mutex_;
  static std::map<std::string, std::weak_ptr<KernelLibrary>>& known() {
    static auto* const all = new std::map<std::string, std::weak_ptr<KernelLibrary>>;
    return *all;
  }
};

std::mutex Libraries::mutex_;

std::shared_ptr<KernelLibrary> Libraries::open(const std::string& path, std::string* problem) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (std::shared_ptr<KernelLibrary> open = known()[path].lock()) return open;
  std::shared_ptr<KernelLibrary> library(new KernelLibrary);
  library->path_ = path;
  library->handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library->handle_) {
    *problem = dlerror();
    return nullptr;
  }
  auto* const module = static_cast<const Module*>(dlsym(library->handle_, "softgpu_module"));
  if (!module || module->version != kModuleVersion) {
    *problem = path + (module ? " was made for another version of the software GPU"
                              : " is not a kernel library of the software GPU");
    return nullptr;
  }
  library->module_ = module;
  // Must happen before the hooks are set: function() runs code of the library to find the kernel's
  // address.
  for (unsigned i = 0; i < module->kernel_count; ++i) {
    Dl_info info;
    const void* const function = module->kernels[i].function();
    const bool known = dladdr(function, &info) && info.dli_sname && info.dli_saddr == function;
    library->names_.emplace_back(known ? info.dli_sname : "");
  }
  *module->hooks = &kHooks;
  // Finds the library's range of addresses, from its first to its last segment.
  link_map* map = nullptr;
  if (dlinfo(library->handle_, RTLD_DI_LINKMAP, &map) != 0) {
    *problem = dlerror();
    return nullptr;
  }
  struct Search {
    uintptr_t base, end;
  } search{map->l_addr, 0};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto* const out = static_cast<Search*>(data);
        if (info->dlpi_addr != out->base) return 0;
        for (int i = 0; i < info->dlpi_phnum; ++i)
          if (info->dlpi_phdr[i].p_type == PT_LOAD)
            out->end = std::max<uintptr_t>(
                out->end, out->base + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz);
        return 1;
      },
      &search);
  library->begin_ = search.base;
  library->bytes_ = search.end - search.base;
  known()[path] = library;
  return library;
}

KernelLibrary::~KernelLibrary() {
  if (handle_) dlclose(handle_);
}

std::vector<Kernel> open_kernels(const std::string& path, std::string* problem) {
  std::vector<Kernel> kernels;
  const std::shared_ptr<KernelLibrary> library = Libraries::open(path, problem);
  if (!library) return kernels;
  const Module& module = library->module();
  for (unsigned i = 0; i < module.kernel_count; ++i) {
    const KernelEntry& entry = module.kernels[i];
    Kernel kernel;
    kernel.expression = entry.expression;
    kernel.name = library->names()[i];
    kernel.param_sizes.assign(entry.param_sizes, entry.param_sizes + entry.params);
    kernel.warp_size = module.warp_size;
    kernel.library = library;
    kernels.push_back(std::move(kernel));
  }
  if (kernels.empty()) *problem = path + " has no kernel";
  return kernels;
}

}  // namespace softgpu
