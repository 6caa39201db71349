// Device images that other tools embed: nvcc's fat binaries and HIP's offload bundles.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "note/elf_file.h"
#include "note/file_facts.h"

namespace opdock {

// Appends every image found: in the sections that nvcc and hipcc make, or, where there are none
// (stripped headers, images that a program embeds as data), anywhere in the loaded segments. The
// architectures stand in the containers' headers. Of a compressed cubin as much is decompressed as
// shows its toolkit. Of a compressed HIP bundle it is the beginning, which names the architectures;
// its images have the bundle's place in the file, and one that does not show them (of another
// format, over a limit) is one image without architecture. A container that is damaged is a defect
// (image-table). by_name_alone: only in those sections.
void find_device_bundles(const ElfFile& elf, bool by_name_alone, std::vector<DeviceImage>* images);

// The parsers for one container at `at`; *end is where it ends. False if it is none, or damaged.
// *budget: how many bytes may still be decompressed (a bundle may go beyond it by a MiB, a cubin by
// 64 KiB); what was is taken off. When it is used up, a compressed bundle does not show its
// architectures, and a compressed cubin not its toolkit.
bool read_fatbin(FileReader* reader, uint64_t at, uint64_t limit, uint64_t* budget,
                 std::vector<DeviceImage>* images, uint64_t* end);
bool read_hip_bundle(FileReader* reader, uint64_t at, uint64_t limit, uint64_t* budget,
                     std::vector<DeviceImage>* images, uint64_t* end);

// Of one file: large libraries have some thousands of bundles, or of cubins, whose toolkit stands
// behind their symbols.
inline constexpr uint64_t kDecompressionBudget = 64 << 20;
inline constexpr uint64_t kCubinBudget = uint64_t{4} << 30;

inline constexpr uint32_t kFatbinMagic = 0xba55ed50;
inline constexpr char kBundleMagic[] = "__CLANG_OFFLOAD_BUNDLE__";
inline constexpr char kCompressedBundleMagic[] = "CCOB";

}  // namespace opdock
