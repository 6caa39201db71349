// A plugin's device image on one device, and the kernels in it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "driver/driver.h"
#include "note/note.h"
#include "opdock/plugin.h"

// The kernel that host->kernel() hands out.
struct opdock_kernel {
  opdock::FunctionHandle function = nullptr;
  opdock_device device{};
  const char* image_name = nullptr;
};

namespace opdock {

// One row of the mapped image table.
struct ImageRow {
  Backend backend;
  ImageKind kind;
  std::string arch;
  Version toolkit;
  std::span<const uint8_t> bytes;
  std::span<const uint8_t> names;  // pairs of NUL-terminated strings
  uint32_t index = 0;              // position in the table, and in the note's list
};

// Reads an image table (core/note/note.h describes the format). Returns false and sets *problem if
// the table is damaged.
bool read_mapped_table(std::span<const uint8_t> table, std::vector<ImageRow>* rows,
                       std::string* problem);

// The kernels of a plugin on one device. They are loaded on first use and kept until the process
// ends. Thread-safe; finding a kernel again takes no lock.
class Kernels {
  struct Entry {
    std::string_view source_name;
    const char* image_name = nullptr;
    opdock_kernel kernel;
    std::atomic<bool> ready{false};
  };

 public:
  virtual ~Kernels() = default;
  // For a device for which the plugin has no image: find() returns OPDOCK_NOT_FOUND with `problem`.
  explicit Kernels(std::string problem) : problem_(std::move(problem)) {}
  Kernels(Driver* driver, opdock_device device, const ImageRow& row);
  // For an image that is already loaded; `owner` keeps alive what `row` points to.
  Kernels(Driver* driver, opdock_device device, const ImageRow& row, ModuleHandle loaded,
          std::shared_ptr<const void> owner)
      : Kernels(driver, device, row) {
    module_ = loaded;
    owner_ = std::move(owner);
  }

  // Numbers the kernels in the order of the plugin's descriptor. Called once, before any look-up.
  void number(const char* const* names, uint32_t count);
  // Returns the name of kernel number `index`, or NULL if there is no such kernel.
  const char* name_of(uint32_t index) const;

  // Returns whether kernel number `index` is loaded, and stores it in *out if so.
  bool is_ready(uint32_t index, opdock_kernel** out) const {
    if (index >= numbered_.size()) return false;
    Entry* const entry = numbered_[index].entry;
    if (entry == nullptr || !entry->ready.load(std::memory_order_acquire)) return false;
    *out = &entry->kernel;
    return true;
  }
  // Finds kernel number `index`. The first use loads the image, and the device's context must be
  // current then. may_load: false while a stream is being captured; a kernel that is not loaded
  // then gives OPDOCK_UNSUPPORTED. OPDOCK_OK with a *out of NULL means that the kernel is compiled
  // on demand and has not been compiled yet; Resolver::make_kernels compiles it.
  Status find(uint32_t index, opdock_kernel** out, bool may_load = true);
  // Does the same for a kernel's name in the source.
  Status find(const char* name, opdock_kernel** out, bool may_load = true);
  // Loads the image if it is not loaded yet. Does nothing if kernels are compiled on demand.
  Status load();

 protected:
  // For kernels that are compiled on demand: each has no image until put() hands it over.
  // description: for messages.
  Kernels(opdock_device device, const std::vector<std::string>& names, std::string description);
  opdock_device device() const { return device_; }
  // Returns whether put() has handed over this kernel, or no kernel has this name.
  bool is_settled(std::string_view name) const;
  // Hands over the kernel of a known name. Only the first call for a name has an effect.
  void put(std::string_view name, const opdock_kernel& kernel);

 private:
  // pairs: names in the source and in the image. The strings must outlive this object.
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
  std::vector<std::string> names_;  // on demand: the entries point to these
  std::span<const uint8_t> image_;
  std::string ptx_;  // copy with a NUL at its end, which the driver requires of PTX
  std::unique_ptr<Entry[]> entries_;
  size_t count_ = 0;
  std::unordered_map<std::string_view, Entry*> by_name_;
  struct Numbered {
    const char* name;
    Entry* entry;  // NULL: the image has no such kernel
  };
  std::vector<Numbered> numbered_;
  std::mutex mutex_;
  ModuleHandle module_ = nullptr;
  std::shared_ptr<const void> owner_;
};

}  // namespace opdock
