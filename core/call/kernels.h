// The device image of a plugin on one device, and its kernels.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "driver/driver.h"
#include "note/note.h"
#include "opdock/plugin.h"

// What host->kernel() hands out.
struct opdock_kernel {
  opdock::FunctionHandle function = nullptr;
  opdock_device device{};
  const char* image_name = nullptr;
};

namespace opdock {

// One row of the image table, as mapped.
struct ImageRow {
  Backend backend;
  ImageKind kind;
  std::string arch;
  Version toolkit;
  std::span<const uint8_t> bytes;
  std::span<const uint8_t> names;  // pairs of NUL-terminated texts
  uint32_t index = 0;              // its place in the table, and in the note's list
};

// Reads an image table (core/note/note.h has the format). False and *problem if it is damaged.
bool read_mapped_table(std::span<const uint8_t> table, std::vector<ImageRow>* rows,
                       std::string* problem);

// The kernels of one image on one device: loaded on first use, kept until the process ends.
// Thread-safe; finding a kernel a second time takes no lock.
class Kernels {
 public:
  // A device for which the plugin brings no image: find() gives OPDOCK_NOT_FOUND with `problem`.
  explicit Kernels(std::string problem) : problem_(std::move(problem)) {}
  Kernels(Driver* driver, opdock_device device, const ImageRow& row);
  // The same for an image that is loaded already; `owner` keeps what `row` points at.
  Kernels(Driver* driver, opdock_device device, const ImageRow& row, ModuleHandle loaded,
          std::shared_ptr<const void> owner)
      : Kernels(driver, device, row) {
    module_ = loaded;
    owner_ = std::move(owner);
  }

  // The kernel whose source-level name is `name`. On first use loads the image: the device's
  // context must be current.
  opdock_status find(const char* name, opdock_kernel** out, std::string* problem);

 private:
  struct Entry {
    std::string_view source_name;
    const char* image_name = nullptr;
    opdock_kernel kernel;
    std::atomic<bool> ready{false};
  };
  Entry* lookup(std::string_view name) const;
  opdock_status resolve(Entry* entry, std::string* problem);

  std::string problem_;
  Driver* driver_ = nullptr;
  opdock_device device_{};
  std::string description_;  // "the sm_90 cubin", for messages
  std::span<const uint8_t> image_;
  std::string ptx_;  // PTX goes to the driver as a NUL-terminated text
  std::unique_ptr<Entry[]> entries_;
  size_t count_ = 0;
  std::vector<uint32_t> slots_;  // open addressing: index + 1 of an entry; a power of two of them
  std::mutex mutex_;
  ModuleHandle module_ = nullptr;
  std::shared_ptr<const void> owner_;
};

}  // namespace opdock
