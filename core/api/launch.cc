// The functions of compile.h that describe a kernel's parameters and launch it.
// SPDX-License-Identifier: Apache-2.0
#include "call/launch.h"

#include <atomic>
#include <string_view>

#include "chain/module.h"
#include "driver/driver.h"

using namespace opdock;

namespace {

// Returns the kernel's driver, which is open because it has loaded the kernel.
Driver* driver_of(const opdock_kernel& kernel) {
  static std::atomic<Driver*> cuda{nullptr}, rocm{nullptr};
  const bool is_cuda = kernel.device.type == OPDOCK_CUDA;
  std::atomic<Driver*>& known = is_cuda ? cuda : rocm;
  Driver* driver = known.load(std::memory_order_acquire);
  if (driver == nullptr) {
    driver_for(is_cuda ? Backend::kCuda : Backend::kRocm, &driver);
    known.store(driver, std::memory_order_release);
  }
  return driver;
}

}  // namespace

opdock_status opdock_kernel_get_info(const opdock_kernel* kernel, opdock_kernel_info* out,
                                     char* error, uint32_t error_size) {
  return guarded({error, error_size}, [&]() -> Status {
    if (kernel == nullptr) return null_argument("kernel");
    if (out == nullptr || !OPDOCK_HAS(out, opdock_kernel_info, device)) {
      return null_argument("out (with its struct_size)");
    }
    Driver* driver = nullptr;
    Status opened = driver_for(static_cast<Backend>(kernel->device.type), &driver);
    if (!opened.ok()) return opened;
    const std::vector<uint32_t>* sizes = driver->params(kernel->function);
    *out = {out->struct_size,
            sizes == nullptr ? 0u : static_cast<uint32_t>(sizes->size()),
            sizes == nullptr ? 0u : 1u,
            0,
            sizes == nullptr ? nullptr : sizes->data(),
            kernel->image_name,
            kernel->device};
    return {};
  });
}

opdock_status opdock_launch_kernel(opdock_kernel* kernel, void* stream, const opdock_launch* launch,
                                   char* error, uint32_t error_size) {
  const ErrorBuffer buffer{error, error_size};
  const auto refuse = [&](opdock_status status, std::string_view text) {
    return buffer.fail(status, text);
  };
  return guarded(buffer, [&] {
    opdock_launch room;
    std::string problem;
    const opdock_launch* const full = read_launch(kernel, launch, &room, &problem);
    if (full == nullptr) return refuse(OPDOCK_INVALID_ARGUMENT, "launch: " + problem);
    Driver* const driver = driver_of(*kernel);
    void* previous = nullptr;
    Status done = driver->enter(kernel->device.index, stream, &previous);
    if (!done.ok()) return refuse(done.status, done.text);
    done = driver->launch(kernel->function, stream, *full);
    driver->leave(previous);
    if (done.ok()) return OPDOCK_OK;
    // Blame the arguments for an internal error: they came from the program, not from a plugin.
    return refuse(done.status == OPDOCK_INTERNAL ? OPDOCK_INVALID_ARGUMENT : done.status,
                  done.text);
  });
}
