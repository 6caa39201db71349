// What the stand-in driver reads of a device image: enough to refuse what a driver would refuse and
// to record launches with their arguments. Written apart from core/note, whose oracle it is.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "config.h"
#include "cuda_types.h"

namespace softgpu {

struct Parameter {
  uint32_t offset = 0, size = 0;
};

struct Image {
  bool ptx = false;
  int major = 0, minor = 0;
  char suffix = '\0';                // 'a' or 'f' where the image shows it
  int ptx_major = 0, ptx_minor = 0;  // PTX ISA version
  bool cuda13 = false;               // a cubin of the ELF ABI that drivers before 13 refuse
  uint64_t size = 0;
  std::string sha256;
  // Kernels with their parameters. A cubin that is only a header (tests make such) has none and
  // accepts any name.
  std::map<std::string, std::vector<Parameter>> kernels;
  bool any_kernel = false;
};

// An image's size is not passed to the driver: an ELF file ends with its tables, PTX with a NUL.
// CUDA_ERROR_INVALID_IMAGE for anything else (fat binaries too).
CUresult read_image(const void* data, Image* image);

// As the driver of `cuda_version` on `gpu` would: CUDA_ERROR_NO_BINARY_FOR_GPU for an architecture
// that does not fit, CUDA_ERROR_UNSUPPORTED_PTX_VERSION for PTX that is too new.
CUresult check_image(const Image& image, const Gpu& gpu, int cuda_version);

}  // namespace softgpu
