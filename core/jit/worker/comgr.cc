// SPDX-License-Identifier: Apache-2.0
#include "worker/comgr.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <vector>

namespace opdock {
namespace {

// The C interface, declared as in amd_comgr.h of version 2.
struct ActionInfo {
  uint64_t handle;
};
struct Functions {
  int (*isa_count)(size_t*);
  int (*isa_name)(size_t, const char**);
  int (*create)(ActionInfo*);
  int (*set_isa)(ActionInfo, const char*);
  int (*destroy)(ActionInfo);
};

constexpr char kTarget[] = "amdgcn-amd-amdhsa--";

template <typename F>
bool find(void* library, const char* name, F* out) {
  *out = reinterpret_cast<F>(dlsym(library, name));
  return *out != nullptr;
}

bool open_functions(const std::string& path, Functions* f) {
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  std::vector<std::string> there;
  for (const char* name : {"libamd_comgr.so.2", "libamd_comgr.so.3", "libamd_comgr.so.4"}) {
    if (access((folder + name).c_str(), F_OK) == 0) there.push_back(folder + name);
  }
  if (there.size() != 1) return false;
  void* const library = dlopen(there.front().c_str(), RTLD_NOW | RTLD_LOCAL);
  return library != nullptr && find(library, "amd_comgr_get_isa_count", &f->isa_count) &&
         find(library, "amd_comgr_get_isa_name", &f->isa_name) &&
         find(library, "amd_comgr_create_action_info", &f->create) &&
         find(library, "amd_comgr_action_info_set_isa_name", &f->set_isa) &&
         find(library, "amd_comgr_destroy_action_info", &f->destroy);
}

}  // namespace

std::string archs_without(const std::string& path, const std::string& arch) {
  Functions f{};
  ActionInfo info{};
  if (!open_functions(path, &f) || f.create(&info) != 0) return {};
  const bool takes = f.set_isa(info, (kTarget + arch).c_str()) == 0;
  f.destroy(info);
  std::string names;
  size_t count = 0;
  if (takes || f.isa_count(&count) != 0) return {};
  for (size_t i = 0; i < count; ++i) {
    const char* name = nullptr;
    if (f.isa_name(i, &name) != 0 || name == nullptr) continue;
    const std::string text = name;
    if (text.starts_with(kTarget)) {
      names += (names.empty() ? "" : " ") + text.substr(sizeof kTarget - 1);
    }
  }
  return names;
}

}  // namespace opdock
