// Finds device images that other tools embed: nvcc's fat binaries and HIP's offload bundles.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "note/elf_file.h"
#include "note/file_facts.h"

namespace opdock {

// Appends every image found: in the sections that nvcc and hipcc write, or, if there are none
// (stripped headers, images that a program embeds as data) and by_name_alone is not set, anywhere
// in the loaded segments. The architectures are read from the containers' headers.
// A compressed cubin is decompressed only until its toolkit is known. Of a compressed HIP bundle
// only the beginning is decompressed, which names the architectures; its images have the bundle's
// offset and size. A bundle that does not show the architectures (an unknown format, or over a
// limit) becomes one image without architecture. A damaged container is a defect (image-table).
void find_device_bundles(const ElfFile& elf, bool by_name_alone, std::vector<DeviceImage>* images);

// Parse one container at `at`; *end is where it ends. Return false if there is none, or it is
// damaged. *budget is the number of bytes that may still be decompressed (a bundle may exceed it by
// a MiB, a cubin by 64 KiB); it is reduced by what was decompressed. When it is used up, the
// architectures of a compressed bundle and the toolkit of a compressed cubin stay unknown.
bool read_fatbin(FileReader* reader, uint64_t at, uint64_t limit, uint64_t* budget,
                 std::vector<DeviceImage>* images, uint64_t* end);
bool read_hip_bundle(FileReader* reader, uint64_t at, uint64_t limit, uint64_t* budget,
                     std::vector<DeviceImage>* images, uint64_t* end);

// Limits of decompressed bytes per file. Large libraries have some thousands of bundles or cubins,
// and a cubin names its toolkit only after its symbols, so it takes more.
inline constexpr uint64_t kDecompressionBudget = 64 << 20;
inline constexpr uint64_t kCubinBudget = uint64_t{4} << 30;

inline constexpr uint32_t kFatbinMagic = 0xba55ed50;
inline constexpr char kBundleMagic[] = "__CLANG_OFFLOAD_BUNDLE__";
inline constexpr char kCompressedBundleMagic[] = "CCOB";

}  // namespace opdock
