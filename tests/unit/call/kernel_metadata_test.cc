// Kernels' parameters out of code objects, made here from LLVM's description of them.
// SPDX-License-Identifier: Apache-2.0
#include "driver/kernel_metadata.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

namespace opdock {
namespace {

using nlohmann::json;

template <class T>
void append(std::string* bytes, const T& value) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof value);
}

// A code object that has nothing but its notes: another owner's, and the metadata.
std::string code_object(const std::string& metadata) {
  std::string notes;
  const auto add = [&](uint32_t type, std::string owner, std::string text) {
    append(&notes, Elf64_Nhdr{static_cast<uint32_t>(owner.size()),
                              static_cast<uint32_t>(text.size()), type});
    owner.resize((owner.size() + 3) / 4 * 4);
    text.resize((text.size() + 3) / 4 * 4);
    notes += owner + text;
  };
  add(32, std::string("AMD\0", 4), "another's");
  add(32, std::string("AMDGPU\0", 7), metadata);
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_machine = 224;
  header.e_phoff = sizeof header;
  header.e_phnum = 2;
  Elf64_Phdr load{}, note{};
  load.p_type = PT_LOAD;
  note.p_type = PT_NOTE;
  note.p_offset = sizeof header + 2 * sizeof note;
  note.p_filesz = notes.size();
  std::string image;
  append(&image, header);
  append(&image, load);
  append(&image, note);
  return image + notes;
}

std::string packed(const json& metadata) {
  const std::vector<uint8_t> bytes = json::to_msgpack(metadata);
  return {bytes.begin(), bytes.end()};
}

std::map<std::string, std::vector<uint32_t>> read(const std::string& image) {
  return read_kernel_params({reinterpret_cast<const uint8_t*>(image.data()), image.size()});
}

json arg(unsigned size, const char* kind) {
  return {{".size", size}, {".value_kind", kind}, {".offset", 0u}};
}

const json kMetadata = {{"amdhsa.version", {1, 1}},
                        {"amdhsa.kernels",
                         {{{".name", "scale"},
                           {".args",
                            {arg(8, "global_buffer"), arg(4, "by_value"), arg(72, "by_value"),
                             arg(8, "hidden_global_offset_x"), arg(8, "hidden_none")}}},
                          {{".name", "nothing"}}}}};

TEST(KernelMetadata, TellsWhatALaunchGives) {
  const auto found = read(code_object(packed(kMetadata)));
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found.at("scale"), (std::vector<uint32_t>{8, 4, 72}));
  EXPECT_TRUE(found.at("nothing").empty());
}

TEST(KernelMetadata, LeavesOutWhatIsNotAsExpected) {
  json metadata = kMetadata;
  metadata["amdhsa.kernels"][0][".args"][1].erase(".size");
  EXPECT_EQ(read(code_object(packed(metadata))).count("scale"), 0u);
  metadata["amdhsa.kernels"] = "none";
  EXPECT_TRUE(read(code_object(packed(metadata))).empty());
  EXPECT_TRUE(read(code_object("no msgpack")).empty());
  EXPECT_TRUE(read(code_object("")).empty());
  EXPECT_TRUE(read("").empty());
  EXPECT_TRUE(read("__CLANG_OFFLOAD_BUNDLE__and more").empty());
}

TEST(KernelMetadata, SurvivesEveryTruncationAndEveryFlippedByte) {
  const std::string image = code_object(packed(kMetadata));
  for (size_t size = 0; size < image.size(); ++size) read(image.substr(0, size));
  for (size_t i = 0; i < image.size(); ++i) {
    for (const int bits : {0xff, 0x80, 0x01}) {
      std::string damaged = image;
      damaged[i] = static_cast<char>(damaged[i] ^ bits);
      read(damaged);
    }
  }
}

}  // namespace
}  // namespace opdock
