// SPDX-License-Identifier: Apache-2.0
#include "base/installed.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>

#include "base/configured.h"
#include "base/mutex.h"

namespace opdock {
namespace {

// Repeats a function of base/files, because the command compiles this file without the rest of the
// library.
std::string resolved(const std::string& path) {
  char* const real = realpath(path.c_str(), nullptr);
  if (real == nullptr) return {};
  std::string text(real);
  std::free(real);
  return text;
}

std::string parent(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash);
}

std::string find_own_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&find_own_folder), &info) == 0 || !info.dli_fname)
    return {};
  return parent(resolved(info.dli_fname));
}

bool exists(const std::string& path) {
  return access(path.c_str(), F_OK) == 0;
}

std::string if_there(const std::string& folder, const std::string& file) {
  return exists(folder + "/" + file) ? folder : std::string();
}

std::optional<Installed> override_value;

}  // namespace

const std::string& own_folder() {
  const NoFork no_fork;
  static const auto* const folder = new std::string(find_own_folder());
  return *folder;
}

std::string Installed::program(const std::string& name) const {
  if (root.empty()) return {};
  for (const char* folder : {"/bin/", "/libexec/opdock/"}) {
    const std::string path = root + folder + name;
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  const std::string configured = std::string(kConfiguredLibexecDir) + "/" + name;
  return access(configured.c_str(), X_OK) == 0 ? configured : std::string();
}

Installed find_installed(const std::string& libdir) {
  Installed found;
  if (!libdir.empty()) {
    found.data = resolved(libdir + "/../share/opdock");
    if (found.data.empty()) found.data = resolved(libdir + "/../../share/opdock");
  }
  if (found.data.empty()) found.data = resolved(kConfiguredDataDir);
  if (found.data.empty()) return found;
  found.root = parent(parent(found.data));
  found.include = if_there(found.root + "/include", "opdock/plugin.h");
  if (found.include.empty()) found.include = if_there(found.data + "/include", "opdock/plugin.h");
  found.device = if_there(found.data + "/device", "opdock/device.cuh");
  found.plugin_build = if_there(found.data + "/plugin-build", "meson.build");
  found.plugin_sources = if_there(found.data + "/plugins-src", "");
  return found;
}

const Installed& installed() {
  if (override_value) return *override_value;
  const NoFork no_fork;
  static const Installed found = find_installed(own_folder());
  return found;
}

void use_installed(const Installed& found) {
  override_value = found;
}

}  // namespace opdock
