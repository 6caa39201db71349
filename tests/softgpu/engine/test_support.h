// Compiles and launches kernels that engine tests give as text.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "compile.h"
#include "engine.h"

namespace softgpu {

// Step limit of a block in these tests' kernels.
inline constexpr uint64_t kSteps = 1 << 24;

// Returns the text of a file of the repository; `path` is relative to its root.
std::string read_source(const std::string& path);
// Returns the vocabulary's headers and the files at `paths`, all without their folders.
std::vector<std::pair<std::string, std::string>> headers_with(
    const std::vector<std::string>& paths);

// Compiles and opens kernels; on failure, fails the test and returns nothing.
std::vector<Kernel> make_kernels(const std::string& program,
                                 const std::vector<std::string>& expressions, uint32_t warp_size,
                                 const std::vector<std::string>& paths = {});
Kernel make_kernel(const std::string& program, const std::string& expression,
                   uint32_t warp_size = 32);

// Array in device memory, released by its destructor.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count, int device = 0)
      : count_(count), data_(static_cast<T*>(allocate(device, count * sizeof(T)))) {}
  explicit DeviceArray(const std::vector<T>& values, int device = 0)
      : DeviceArray(values.size(), device) {
    set(values);
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { release(data_); }

  T* data() const { return data_; }
  void set(const std::vector<T>& values) const {
    EXPECT_TRUE(copy_to_device({}, data_, values.data(), values.size() * sizeof(T)));
  }
  std::vector<T> get() const {
    std::vector<T> values(count_);
    EXPECT_TRUE(copy_from_device({}, values.data(), data_, count_ * sizeof(T)));
    return values;
  }

 private:
  size_t count_;
  T* data_;
};

template <typename T>
std::vector<uint8_t> bytes_of(const T& value) {
  std::vector<uint8_t> bytes(sizeof(T));
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

template <typename... Args>
Launch launch_of(const Kernel& kernel, uint32_t blocks, uint32_t threads, const Args&... args) {
  Launch launch;
  launch.kernel = &kernel;
  launch.grid[0] = blocks;
  launch.block[0] = threads;
  launch.args = {bytes_of(args)...};
  return launch;
}

// Executes the launch and returns the text of its finding, or an empty string.
std::string finding_of(const Operation& operation, const Launch& launch);
inline std::string finding_of(const Launch& launch) {
  return finding_of(Operation(), launch);
}

// Fails the test for each of `parts` that the text does not contain.
void expect_finding(const std::string& text, const std::vector<std::string>& parts);

}  // namespace softgpu
