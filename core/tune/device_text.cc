// SPDX-License-Identifier: Apache-2.0
#include "tune/device_text.h"

#include "fmt/format.h"

namespace opdock {
namespace {

// Asks the driver, which knows which GPU has which number; the machine's facts may not.
std::string gpu_name(Driver* driver, int index) {
  char name[256] = "";
  if (driver->backend() == Backend::kCuda) {
    int handle = 0;
    const auto get = reinterpret_cast<int (*)(int*, int)>(driver->symbol("cuDeviceGet"));
    const auto ask = reinterpret_cast<int (*)(char*, int, int)>(driver->symbol("cuDeviceGetName"));
    if (get == nullptr || ask == nullptr || get(&handle, index) != 0 ||
        ask(name, sizeof name - 1, handle) != 0) {
      return {};
    }
  } else {
    const auto ask = reinterpret_cast<int (*)(char*, int, int)>(driver->symbol("hipDeviceGetName"));
    if (ask == nullptr || ask(name, sizeof name - 1, index) != 0) return {};
  }
  return name;
}

}  // namespace

std::string device_text(Driver* driver, opdock_device device, const opdock_device_facts& facts,
                        const MachineFacts& machine) {
  if (driver == nullptr) {
    const std::string level =
        machine.cpu_level > 0 ? fmt::format(" level {}", machine.cpu_level) : std::string();
    return fmt::format("{}, {}{}", machine.cpu_model.empty() ? "CPU" : machine.cpu_model,
                       machine.cpu_arch, level);
  }
  std::string arch;
  if (!driver->arch(device.index, &arch).ok()) return {};
  const std::string name = gpu_name(driver, device.index);
  return fmt::format("{}, {}, {} multiprocessors", name.empty() ? "GPU" : name, arch,
                     facts.multiprocessors);
}

}  // namespace opdock
