// What the stand-in driver reads of a device image: enough to refuse what a driver would refuse and
// to record launches with their arguments. Written apart from core/note, whose oracle it is.
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

// What an image says of a kernel.
struct KernelFacts {
  std::vector<Parameter> parameters;
  bool known = false;        // whether it describes the parameters; else the executed library does
  uint32_t max_threads = 0;  // 0: unknown
  uint32_t static_shared = 0;  // bytes, as far as the image says
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
  std::map<std::string, KernelFacts> kernels;
  bool any_kernel = false;
  // An AMD code object's: "gfx90a"; '+', '-' or, where it does not matter, '\0'.
  std::string processor;
  char xnack = '\0', sramecc = '\0';
  std::string arch() const;  // as people write it
};

// An image's size is not passed to the driver: an ELF file ends with its tables, PTX with a NUL.
// kInvalidImage for anything else (fat binaries and bundles too). `amd`: only code objects, else
// none.
Result read_image(const void* data, bool amd, Image* image);
// Its parts, of an ELF file with its header.
Result read_cubin(const char* base, Image* image);
Result read_code_object(const char* base, Image* image);
uint64_t elf_size(const char* base);

// As the driver on `gpu` would: kNoBinaryForGpu for an architecture that does not fit,
// kUnsupportedPtxVersion for PTX that is too new, kInvalidPtx for PTX whose kernels have more
// static shared memory than its compiler lets them have.
Result check_image(const Image& image, const Gpu& gpu);

}  // namespace softgpu
