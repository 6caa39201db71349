// SPDX-License-Identifier: Apache-2.0
#include "call/kernels.h"

#include <cstring>

#include "note/image_table.h"
#include "schema/dtype.h"

namespace opdock {
namespace {

bool inside(std::span<const uint8_t> table, uint64_t offset, uint64_t size) {
  return offset <= table.size() && size <= table.size() - offset;
}

constexpr char kListIt[] = "list it under `kernels` in plugin.toml";

std::string quoted(const char* name) {
  return "\"" + std::string(name) + "\"";
}

}  // namespace

bool read_mapped_table(std::span<const uint8_t> table, std::vector<ImageRow>* rows,
                       std::string* problem) {
  rows->clear();
  if (table.empty()) return true;
  std::vector<ImageEntry> entries;
  Reason reason{};
  if (!read_image_entries(table, &entries, &reason)) {
    *problem = reason.found;
    return false;
  }
  for (uint32_t i = 0; i < entries.size(); ++i) {
    const ImageEntry& entry = entries[i];
    if (!inside(table, entry.offset, entry.size) ||
        !inside(table, entry.names_offset, entry.names_size)) {
      *problem = "entry " + std::to_string(i) + " of the image table leaves the table";
      return false;
    }
    std::span<const uint8_t> names = table.subspan(entry.names_offset, entry.names_size);
    if (!names.empty() && names.back() != 0) {
      *problem = "the kernel names of image " + std::to_string(i) + " do not end with a NUL";
      return false;
    }
    rows->push_back({static_cast<Backend>(entry.backend), static_cast<ImageKind>(entry.kind),
                     std::string(entry.arch, strnlen(entry.arch, sizeof entry.arch)),
                     Version{entry.toolkit_major, entry.toolkit_minor},
                     table.subspan(entry.offset, entry.size), names, i});
  }
  return true;
}

Kernels::Kernels(Driver* driver, opdock_device device, const ImageRow& row)
    : driver_(driver),
      device_(device),
      description_("the " + row.arch + " " + std::string(to_text(row.kind))),
      image_(row.bytes) {
  if (row.kind == ImageKind::kPtx && (image_.empty() || image_.back() != 0)) {
    ptx_.assign(reinterpret_cast<const char*>(image_.data()), image_.size());
    image_ = {reinterpret_cast<const uint8_t*>(ptx_.c_str()), ptx_.size() + 1};
  }
  std::vector<std::pair<const char*, const char*>> pairs;
  const char* at = reinterpret_cast<const char*>(row.names.data());
  const char* end = at + row.names.size();
  while (at < end) {
    const char* source = at;
    at += std::strlen(at) + 1;
    if (at >= end) break;
    pairs.emplace_back(source, at);
    at += std::strlen(at) + 1;
  }
  index(pairs);
}

Kernels::Kernels(opdock_device device, const std::vector<std::string>& names,
                 std::string description)
    : device_(device), description_(std::move(description)), on_demand_(true), names_(names) {
  std::vector<std::pair<const char*, const char*>> pairs;
  for (const std::string& name : names_) pairs.emplace_back(name.c_str(), nullptr);
  index(pairs);
}

void Kernels::index(const std::vector<std::pair<const char*, const char*>>& pairs) {
  count_ = pairs.size();
  entries_ = std::make_unique<Entry[]>(count_);
  for (size_t i = 0; i < count_; ++i) {
    entries_[i].source_name = pairs[i].first;
    entries_[i].image_name = pairs[i].second;
    entries_[i].kernel.device = device_;
    entries_[i].kernel.image_name = pairs[i].second;
    by_name_.try_emplace(pairs[i].first, &entries_[i]);
  }
}

Kernels::Entry* Kernels::lookup(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

bool Kernels::is_settled(std::string_view name) const {
  const Entry* entry = lookup(name);
  return entry == nullptr || entry->ready.load(std::memory_order_acquire);
}

void Kernels::put(std::string_view name, const opdock_kernel& kernel) {
  Entry* entry = lookup(name);
  const std::lock_guard lock(mutex_);
  if (entry == nullptr || entry->ready.load(std::memory_order_relaxed)) return;
  entry->kernel = kernel;
  entry->ready.store(true, std::memory_order_release);
}

void Kernels::number(const char* const* names, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) numbered_.push_back({names[i], lookup(names[i])});
}

const char* Kernels::name_of(uint32_t index) const {
  return index < numbered_.size() ? numbered_[index].name : nullptr;
}

Status Kernels::find(uint32_t index, opdock_kernel** out, bool may_load) {
  if (index < numbered_.size() && numbered_[index].entry != nullptr) [[likely]]
    return take(numbered_[index].entry, out, may_load);
  // The plugin's descriptor lists this name, so plugin.toml already lists it.
  if (index < numbered_.size())
    return refuse_unknown(quoted(numbered_[index].name), "build the plugin again");
  return refuse_unknown("number " + std::to_string(index), kListIt);
}

Status Kernels::find(const char* name, opdock_kernel** out, bool may_load) {
  Entry* entry = lookup(name);
  return entry != nullptr ? take(entry, out, may_load) : refuse_unknown(quoted(name), kListIt);
}

Status Kernels::refuse_unknown(const std::string& what, const char* advice) const {
  if (driver_ == nullptr && !on_demand_) return {OPDOCK_NOT_FOUND, problem_};
  std::string text = "found no kernel " + what + " in " + description_ + ", wanted one of its " +
                     std::to_string(count_) + ":";
  for (size_t i = 0; i < count_ && i < 16; ++i) {
    text += (i ? ", \"" : " \"") + std::string(entries_[i].source_name) + "\"";
  }
  return {OPDOCK_NOT_FOUND, text + "; " + advice};
}

Status Kernels::take(Entry* entry, opdock_kernel** out, bool may_load) {
  if (!entry->ready.load(std::memory_order_acquire)) [[unlikely]] {
    if (on_demand_) {
      *out = nullptr;
      return may_load ? Status() : refuse_in_capture(entry->source_name);
    }
    if (Status resolved = resolve(entry, may_load); !resolved.ok()) return resolved;
  }
  *out = &entry->kernel;
  return {};
}

Status Kernels::refuse_in_capture(std::string_view name) const {
  return {OPDOCK_UNSUPPORTED,
          "found the stream being captured and kernel \"" + std::string(name) +
              "\" not loaded on " + to_text(device_) +
              ", wanted it loaded; call the op once with such arguments, or opdock_prepare, before "
              "the capture"};
}

Status Kernels::load() {
  if (driver_ == nullptr) return {};
  const std::lock_guard lock(mutex_);
  return load_locked();
}

Status Kernels::load_locked() {
  if (module_ != nullptr) return {};
  Status loaded = driver_->load(device_.index, image_, &module_);
  if (loaded.ok()) return loaded;
  module_ = nullptr;
  return {loaded.status,
          "loading " + description_ + " on " + to_text(device_) + ": " + loaded.text};
}

Status Kernels::resolve(Entry* entry, bool may_load) {
  std::lock_guard lock(mutex_);
  if (entry->ready.load(std::memory_order_relaxed)) return {};
  if (module_ == nullptr && !may_load) return refuse_in_capture(entry->source_name);
  if (Status loaded = load_locked(); !loaded.ok()) return loaded;
  Status found = driver_->find(module_, entry->image_name, &entry->kernel.function);
  if (!found.ok()) {
    return {found.status, "kernel \"" + std::string(entry->source_name) + "\" in " + description_ +
                              ": " + found.text};
  }
  entry->ready.store(true, std::memory_order_release);
  return found;
}

}  // namespace opdock
