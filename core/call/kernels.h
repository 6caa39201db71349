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

// The kernels of a plugin on one device: loaded on first use, kept until the process ends.
// Thread-safe; finding a kernel a second time takes no lock.
class Kernels {
  struct Entry {
    std::string_view source_name;
    const char* image_name = nullptr;
    opdock_kernel kernel;
    std::atomic<bool> ready{false};
  };

 public:
  virtual ~Kernels() = default;
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

  // Numbers the kernels as the plugin's descriptor lists them. Once, before anybody asks.
  void number(const char* const* names, uint32_t count);
  // The name of kernel `index`; NULL: there is no such number.
  const char* name_of(uint32_t index) const;

  // The kernel that has this number, if it is loaded.
  bool is_ready(uint32_t index, opdock_kernel** out) const {
    if (index >= numbered_.size()) return false;
    Entry* const entry = numbered_[index].entry;
    if (entry == nullptr || !entry->ready.load(std::memory_order_acquire)) return false;
    *out = &entry->kernel;
    return true;
  }
  // The kernel that has this number. On first use loads the image: the device's
  // context must be current. may_load: false while a stream is being captured; what is not loaded
  // is OPDOCK_UNSUPPORTED then. OPDOCK_OK and *out of NULL: the kernel is one that is made when it
  // is asked for and has not been; Resolver::make_kernels makes it.
  Status find(uint32_t index, opdock_kernel** out, bool may_load = true);
  // The same by its source-level name.
  Status find(const char* name, opdock_kernel** out, bool may_load = true);
  // Loads the image if that has not happened; nothing where kernels are made on demand.
  Status load();

 protected:
  // Kernels that have no image until put() hands them over. description: for messages.
  Kernels(opdock_device device, const std::vector<std::string>& names, std::string description);
  opdock_device device() const { return device_; }
  // Whether there is no such name, or it has been handed over.
  bool is_settled(std::string_view name) const;
  // Hands over the kernel of a known name; of several only the first counts.
  void put(std::string_view name, const opdock_kernel& kernel);

 private:
  // pairs: names in the source and in the image, which outlive this.
  void index(const std::vector<std::pair<const char*, const char*>>& pairs);
  Entry* lookup(std::string_view name) const;
  Status take(Entry* entry, opdock_kernel** out, bool may_load);
  Status refuse_unknown(const std::string& what, const char* advice) const;
  Status resolve(Entry* entry, bool may_load);
  Status load_locked();
  Status refuse_in_capture(std::string_view name) const;

  std::string problem_;
  Driver* driver_ = nullptr;
  opdock_device device_{};
  std::string description_;  // "the sm_90 cubin", for messages
  bool on_demand_ = false;
  std::vector<std::string> names_;  // on demand: what the entries point at
  std::span<const uint8_t> image_;
  std::string ptx_;  // PTX goes to the driver as a NUL-terminated text
  std::unique_ptr<Entry[]> entries_;
  size_t count_ = 0;
  struct Numbered {
    const char* name;
    Entry* entry;  // NULL: the image has no such kernel
  };
  std::vector<Numbered> numbered_;
  std::vector<uint32_t> slots_;  // open addressing: index + 1 of an entry; a power of two of them
  std::mutex mutex_;
  ModuleHandle module_ = nullptr;
  std::shared_ptr<const void> owner_;
};

}  // namespace opdock
