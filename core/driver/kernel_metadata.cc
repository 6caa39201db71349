// SPDX-License-Identifier: Apache-2.0
#include "driver/kernel_metadata.h"

#include <elf.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

namespace opdock {
namespace {

using nlohmann::json;

constexpr uint32_t kMetadataType = 32;  // NT_AMDGPU_METADATA, owner "AMDGPU"
constexpr uint16_t kMachineAmdgpu = 224;

template <class T>
bool read_at(std::span<const uint8_t> bytes, uint64_t at, T* out) {
  if (at > bytes.size() || bytes.size() - at < sizeof *out) return false;
  std::memcpy(out, bytes.data() + at, sizeof *out);
  return true;
}

std::span<const uint8_t> part(std::span<const uint8_t> bytes, uint64_t at, uint64_t size) {
  if (at > bytes.size() || size > bytes.size() - at) return {};
  return bytes.subspan(at, size);
}

// Returns the metadata among a segment's notes; empty if there is none.
std::span<const uint8_t> find_metadata(std::span<const uint8_t> notes) {
  uint64_t at = 0;
  for (Elf64_Nhdr note; read_at(notes, at, &note);) {
    const uint64_t name = at + sizeof note;
    const uint64_t text = name + (uint64_t{note.n_namesz} + 3) / 4 * 4;
    const std::span<const uint8_t> owner = part(notes, name, note.n_namesz);
    const bool is_amd = std::string_view(reinterpret_cast<const char*>(owner.data()),
                                         owner.size()) == std::string_view("AMDGPU", 7);
    if (is_amd && note.n_type == kMetadataType) return part(notes, text, note.n_descsz);
    at = text + (uint64_t{note.n_descsz} + 3) / 4 * 4;
  }
  return {};
}

std::span<const uint8_t> metadata_of(std::span<const uint8_t> image) {
  Elf64_Ehdr header;
  if (!read_at(image, 0, &header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != kMachineAmdgpu) {
    return {};
  }
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    if (!read_at(image, header.e_phoff + i * sizeof segment, &segment)) return {};
    if (segment.p_type != PT_NOTE) continue;
    const std::span<const uint8_t> found =
        find_metadata(part(image, segment.p_offset, segment.p_filesz));
    if (!found.empty()) return found;
  }
  return {};
}

const json& none = *new json;

// Returns the value of a map's member, or null.
const json& member(const json& object, const char* name) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  return object.is_object() && found != object.end() ? *found : none;
}

// Returns false if the description is not as expected. Skips hidden arguments, which the compiler
// adds for its own use.
bool read_sizes(const json& kernel, std::vector<uint32_t>* sizes) {
  const json& args = member(kernel, ".args");
  if (args.is_null()) return true;
  if (!args.is_array()) return false;
  for (const json& arg : args) {
    const json& kind = member(arg, ".value_kind");
    const json& size = member(arg, ".size");
    if (!kind.is_string() || !size.is_number_unsigned()) return false;
    if (kind.get_ref<const std::string&>().starts_with("hidden_")) continue;
    sizes->push_back(size.get<uint32_t>());
  }
  return true;
}

}  // namespace

std::map<std::string, KernelMetadata> read_kernel_metadata(std::span<const uint8_t> image) {
  std::map<std::string, KernelMetadata> found;
  const std::span<const uint8_t> text = metadata_of(image);
  const json metadata = json::from_msgpack(text.begin(), text.end(), true, false);
  const json& kernels = member(metadata, "amdhsa.kernels");
  if (!kernels.is_array()) return found;
  for (const json& kernel : kernels) {
    const json& name = member(kernel, ".name");
    const json& shared = member(kernel, ".group_segment_fixed_size");
    KernelMetadata facts;
    if (!name.is_string() || !read_sizes(kernel, &facts.params)) continue;
    if (shared.is_number_unsigned()) facts.static_shared = shared.get<uint32_t>();
    found.emplace(name.get<std::string>(), std::move(facts));
  }
  return found;
}

}  // namespace opdock
