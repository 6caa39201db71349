// Makes the device images of a plugin: compiled by NVRTC and hipRTC, and the source itself.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "arch/cuda_list.h"
#include "jit/hiprtc_files.h"
#include "jit/nvrtc.h"
#include "manifest/manifest.h"
#include "note/note.h"
#include "pack/image_cache.h"

namespace opdock::pack {

struct Image {
  Backend backend = Backend::kCuda;
  ImageKind kind = ImageKind::kSource;
  std::string arch;  // for source: the name as #include spells it
  Version toolkit;
  std::string bytes;
  std::vector<std::pair<std::string, std::string>> names;  // name expression, name in the image
};

// Returns the device sources under the names by which they include each other: the plugin's listed
// files by file name, and every *.cuh below `vocabulary` (core/device) by its path there,
// "opdock/…". *files gets the files read, for the depfile. Problems are as in read_manifest().
std::vector<SourceText> read_device_sources(const Manifest& manifest,
                                            const std::filesystem::path& vocabulary,
                                            std::vector<std::filesystem::path>* files,
                                            std::vector<std::string>* errors);

struct ImageRequest {
  const Manifest* manifest = nullptr;
  std::vector<SourceText> sources;
  std::vector<CudaTarget> archs;        // each known to one of `compilers`
  std::vector<const Nvrtc*> compilers;  // empty: no images for CUDA
  std::vector<std::string> hip_archs;   // target IDs: "gfx90a", "gfx90a:xnack+"
  std::vector<HiprtcFile> hiprtcs;      // the newest first; empty: no code objects
  std::string worker;                   // opdock-compile's path; empty: the installed one
  const ImageCache* cache = nullptr;    // NULL: everything is compiled
  // Images that only tests read need not be fast on a GPU. NVRTC knows this from 12.9 on.
  bool is_optimized = true;
};

// Compiles for each architecture with the oldest compiler that knows it. Adds PTX for those with
// +PTX (for a suffixed one, PTX of the plain architecture, because its own would run nowhere else),
// then the code objects (hip_images.h), and packs the sources. Errors are the compiler's messages.
std::vector<Image> make_images(const ImageRequest& request, std::vector<std::string>* errors);

// If OPDOCK_JIT_KEEP is set, keeps the source of each compiled image in its folder (jit/keep.h). A
// file that cannot be written gives a notice on stderr and stops nothing.
void keep_sources(const ImageRequest& request, const std::vector<Image>& images);

// Returns the image table with its images, to be placed in the file at a multiple of 64 bytes.
std::string image_table(const std::vector<Image>& images);

// Returns what the note says of the images, in the table's order.
std::vector<ImageClaim> image_claims(const std::vector<Image>& images);

}  // namespace opdock::pack
