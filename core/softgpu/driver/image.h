// Reads device images for the stand-in driver: enough to refuse what a driver would refuse, and to
// record launches with their arguments. Independent of core/note, so that tests can compare the
// two.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "config.h"
#include "result.h"

namespace softgpu {

struct Parameter {
  uint32_t offset = 0, size = 0;
};

// An image's description of a kernel.
struct KernelFacts {
  std::vector<Parameter> parameters;
  bool known = false;          // false: only the executed library describes the parameters
  uint32_t max_threads = 0;    // 0: unknown
  uint32_t static_shared = 0;  // bytes; 0 if the image does not tell
};

struct Image {
  bool ptx = false;
  int major = 0, minor = 0;
  char suffix = '\0';                // 'a' or 'f' if the image states it
  int ptx_major = 0, ptx_minor = 0;  // PTX ISA version
  bool cuda13 = false;               // a cubin with the ELF ABI that drivers before 13 refuse
  uint64_t size = 0;
  std::string sha256;
  // Kernels with their parameters. A cubin that consists only of a header (tests make such cubins)
  // has no kernels here, but accepts any name.
  std::map<std::string, KernelFacts> kernels;
  bool any_kernel = false;
  // For an AMD code object: "gfx90a", and for each feature '+', '-' or, if it does not matter,
  // '\0'.
  std::string processor;
  char xnack = '\0', sramecc = '\0';
  std::string arch() const;  // in the usual notation: "sm_90a", "gfx90a:xnack-"
};

// Reads an image whose size is unknown, because the driver does not get it: an ELF file ends with
// its tables, PTX with a NUL. Returns kInvalidImage for anything else, including fat binaries and
// bundles. `amd`: accepts only code objects; otherwise accepts none.
Result read_image(const void* data, bool amd, Image* image);
// Parts of read_image(), for an ELF file with a complete header.
Result read_cubin(const char* base, Image* image);
Result read_code_object(const char* base, Image* image);
uint64_t elf_size(const char* base);

// Checks an image as the driver for `gpu` would: kNoBinaryForGpu for an architecture that does not
// fit, kUnsupportedPtxVersion for PTX that is too new, kInvalidPtx for PTX whose kernels have more
// static shared memory than the compiler allows.
Result check_image(const Image& image, const Gpu& gpu);

}  // namespace softgpu
