// opdock/compile.hpp: compiling kernels at run time, in C++17, over compile.h. Header-only.
// SPDX-License-Identifier: Apache-2.0
//
//   opdock::Module module(runtime, source, {.device = {OPDOCK_CUDA, 0}});      // C++20's spelling
//   opdock::Kernel saxpy = module.kernel("saxpy<float>");
//   saxpy({.grid = {64}, .block = {256}, .stream = stream}, n, 2.0f, x, y);
//
// Everything that fails throws opdock::Error. Threads and lifetimes are those of compile.h.
#ifndef OPDOCK_COMPILE_HPP_
#define OPDOCK_COMPILE_HPP_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "opdock/compile.h"
#include "opdock/opdock.hpp"

namespace opdock {

// Options of a Module, as in opdock_compile_options.
struct CompileOptions {
  opdock_device device{};            // where the kernels are to run
  std::string name = "program.cu";   // what the compiler's messages call the program
  std::vector<std::string> kernels;  // compiled now, in one image
  std::vector<std::string> options;  // options of the compiler
  std::vector<std::pair<std::string, std::string>> headers;  // name, text
  std::string arch;                                          // empty: exactly the device's
};

// How a kernel is launched. Sizes are at least 1 in each dimension.
struct LaunchShape {
  std::array<uint32_t, 3> grid{1, 1, 1};
  std::array<uint32_t, 3> block{1, 1, 1};
  uint32_t shared_bytes = 0;
  void* stream = nullptr;
  std::array<uint32_t, 3> cluster{};  // all 0: none
  uint32_t flags = 0;                 // OPDOCK_LAUNCH_…
};

// A handle of a kernel. It may be copied, and is valid until the process ends.
class Kernel {
 public:
  explicit Kernel(opdock_kernel* kernel) : kernel_(kernel) {}
  opdock_kernel* get() const { return kernel_; }

  // Launches the kernel and returns without waiting for the device. Each argument is passed by
  // value as the type it has here, which must be the parameter's: 1.0f for a float, int64_t{n} for
  // a long long, a device pointer for a pointer.
  template <class... Args>
  void operator()(const LaunchShape& shape, const Args&... args) const {
    static_assert((std::is_trivially_copyable_v<Args> && ...), "kernels take plain values");
    const std::tuple<Args...> kept(args...);  // until the launch has read them
    std::array<void*, sizeof...(Args) + 1> slots{};
    size_t count = 0;
    std::apply(
        [&](const auto&... value) {
          ((slots[count++] = const_cast<void*>(static_cast<const void*>(&value))), ...);
        },
        kept);
    opdock_launch launch{};
    launch.struct_size = sizeof launch;
    launch.flags = shape.flags;
    for (size_t i = 0; i < 3; ++i) {
      launch.grid[i] = shape.grid[i];
      launch.block[i] = shape.block[i];
      launch.cluster[i] = shape.cluster[i];
    }
    launch.shared_bytes = shape.shared_bytes;
    launch.args = slots.data();
    launch.num_args = sizeof...(Args);
    detail::checked([&](char* error, uint32_t size) {
      return opdock_launch_kernel(kernel_, shape.stream, &launch, error, size);
    });
  }

 private:
  opdock_kernel* kernel_;
};

// A compiled program. The runtime must outlive it.
class Module {
 public:
  // Compiles `source`, or finds the result in the cache. Throws an Error with the compiler's
  // messages if that fails. Blocks for as long as opdock_compile does.
  Module(const Runtime& runtime, const std::string& source, const CompileOptions& options) {
    std::vector<opdock_header> headers;
    for (const auto& [name, text] : options.headers)
      headers.push_back({name.c_str(), text.c_str()});
    const std::vector<const char*> texts = pointers(options.options);
    const std::vector<const char*> kernels = pointers(options.kernels);
    opdock_compile_options all{};
    all.struct_size = sizeof all;
    all.source = source.c_str();
    all.name = options.name.c_str();
    all.headers = headers.data();
    all.num_headers = static_cast<uint32_t>(headers.size());
    all.options = texts.data();
    all.num_options = static_cast<uint32_t>(texts.size());
    all.kernels = kernels.data();
    all.num_kernels = static_cast<uint32_t>(kernels.size());
    all.device = options.device;
    all.arch = options.arch.empty() ? nullptr : options.arch.c_str();
    opdock_module* made = nullptr;
    detail::checked([&](char* error, uint32_t size) {
      return opdock_compile(runtime.get(), &all, &made, error, size);
    });
    module_.reset(made);
  }

  // Gets a kernel by its C++ name: "saxpy", "ns::f<float, 4>".
  Kernel kernel(const std::string& name) const {
    opdock_kernel* found = nullptr;
    detail::checked([&](char* error, uint32_t size) {
      return opdock_module_kernel(module_.get(), name.c_str(), &found, error, size);
    });
    return Kernel(found);
  }

  // Returns the image, a cubin or PTX; valid as long as the module.
  std::string_view image() const {
    opdock_module_image found{};
    found.struct_size = sizeof found;
    detail::checked([&](char* error, uint32_t size) {
      return opdock_module_get_image(module_.get(), &found, error, size);
    });
    return {reinterpret_cast<const char*>(found.bytes), static_cast<size_t>(found.size)};
  }

 private:
  static std::vector<const char*> pointers(const std::vector<std::string>& texts) {
    std::vector<const char*> all;
    for (const std::string& text : texts) all.push_back(text.c_str());
    return all;
  }
  struct Free {
    void operator()(opdock_module* module) const { opdock_module_free(module); }
  };
  std::unique_ptr<opdock_module, Free> module_;
};

}  // namespace opdock
#endif  // OPDOCK_COMPILE_HPP_
