// Tests static shared memory: what images state about it, and launches of kernels that have too
// much.
// SPDX-License-Identifier: Apache-2.0
#include <elf.h>

#include <cstring>

#include "cuda_test_support.h"

namespace softgpu_test {
namespace {

constexpr int kSharedSize = 1, kMaxDynamic = 8;  // CUfunction_attribute

// Returns an sm_90 cubin whose kernel "k" takes no arguments and has `bytes` of static shared
// memory in addition to the system's.
std::string cubin(uint64_t bytes) {
  const std::string names("\0.shstrtab\0.text.k\0.nv.info.k\0.nv.shared.k\0.nv.shared.reserved.0\0",
                          65);
  const auto section = [&](const char* name, uint32_t type, uint64_t size) {
    Elf64_Shdr header{};
    header.sh_name = static_cast<uint32_t>(names.find(std::string(name) + '\0'));
    header.sh_type = type;
    header.sh_offset = sizeof(Elf64_Ehdr);
    header.sh_size = size;
    return header;
  };
  const Elf64_Shdr sections[] = {
      Elf64_Shdr{},
      section(".shstrtab", SHT_STRTAB, names.size()),
      section(".text.k", SHT_PROGBITS, 0),
      section(".nv.info.k", SHT_PROGBITS, 0),
      section(".nv.shared.k", SHT_NOBITS, 1024 + bytes),
      section(".nv.shared.reserved.0", SHT_NOBITS, 1024),
  };
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_ABIVERSION] = 7;
  header.e_machine = 190;
  header.e_flags = 90;
  header.e_shoff = (sizeof header + names.size() + 7) / 8 * 8;
  header.e_shnum = std::size(sections);
  header.e_shstrndx = 1;
  std::string image(reinterpret_cast<const char*>(&header), sizeof header);
  image += names;
  image.resize(header.e_shoff);
  image.append(reinterpret_cast<const char*>(sections), sizeof sections);
  return image;
}

CUfunction load(const std::string& image) {
  add_code(image, "cuda", "sm_90", "extern \"C\" OPDOCK_KERNEL(32) k() {}\n", {"k"});
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  EXPECT_EQ(call("cuModuleLoadData", &module, static_cast<const void*>(image.data())), 0);
  EXPECT_EQ(call("cuModuleGetFunction", &function, module, "k"), 0);
  return function;
}

int attribute(CUfunction function, int which) {
  int value = -1;
  EXPECT_EQ(call("cuFuncGetAttribute", &value, which, function), 0);
  return value;
}

std::string text_of(CUresult code) {
  const char* text = nullptr;
  EXPECT_EQ(call("cuGetErrorString", code, &text), CUDA_SUCCESS);
  return text;
}

TEST(Shared, StaticAndDynamicAreOneLimit) {
  cuda_child(json::object(), [] {
    const CUfunction kernel = load(cubin(40000));
    EXPECT_EQ(attribute(kernel, kSharedSize), 40000);
    EXPECT_EQ(attribute(kernel, kMaxDynamic), 49152 - 40000);
    EXPECT_EQ(launch(kernel, nullptr, {1, 32, 49152 - 40000}, {}), CUDA_SUCCESS);
    EXPECT_EQ(launch(kernel, nullptr, {1, 32, 49152 - 40000 + 1}, {}), CUDA_ERROR_INVALID_VALUE);
    const std::string told = text_of(CUDA_ERROR_INVALID_VALUE);
    EXPECT_NE(told.find("k has 40000 bytes of static shared memory, and 9153"), told.npos) << told;
    // A kernel may opt in to as much as the architecture has: 227 KiB.
    const int most = 227 * 1024 - 40000;
    EXPECT_EQ(call("cuFuncSetAttribute", kernel, kMaxDynamic, most + 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(call("cuFuncSetAttribute", kernel, kMaxDynamic, most), CUDA_SUCCESS);
    EXPECT_EQ(launch(kernel, nullptr, {1, 32, static_cast<unsigned>(most)}, {}), CUDA_SUCCESS);
    EXPECT_EQ(call("cuCtxSynchronize"), CUDA_SUCCESS);
  });
}

// A cubin may have as much static shared memory as its compiler allowed, which is over 48 KiB for
// sm_90a, but not more than a block can have.
TEST(Shared, MoreStaticThanTheGpuHasIsRefused) {
  cuda_child(json::object(), [] {
    const CUfunction kernel = load(cubin(227 * 1024));
    EXPECT_EQ(attribute(kernel, kMaxDynamic), 0);
    EXPECT_EQ(launch(kernel, nullptr, {}, {}), CUDA_SUCCESS);
    EXPECT_EQ(launch(kernel, nullptr, {1, 32, 1}, {}), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(launch(load(cubin(227 * 1024 + 1)), nullptr, {}, {}), CUDA_ERROR_INVALID_VALUE);
  });
  json config = cuda_config();
  config["gpus"][0]["attributes"] = {
      {"97", 65536}};  // CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
  cuda_child(config, [] {
    EXPECT_EQ(launch(load(cubin(65536)), nullptr, {}, {}), CUDA_SUCCESS);
    EXPECT_EQ(launch(load(cubin(65537)), nullptr, {}, {}), CUDA_ERROR_INVALID_VALUE);
    const std::string told = text_of(CUDA_ERROR_INVALID_VALUE);
    EXPECT_NE(told.find("more than the 65536 of a block"), told.npos) << told;
  });
}

// The driver's compiler reports the excess when it compiles PTX. Memory counts only for kernels
// that use it.
TEST(Shared, PtxWithTooMuchIsRefused) {
  cuda_child(json::object(), [] {
    const auto result = [](int own, int others, const std::string& target = "sm_80") {
      const std::string ptx =
          "//\n.version 8.0\n.target " + target + "\n.address_size 64\n.shared .align 4 .b8 tile[" +
          std::to_string(others) +
          "];\n"
          ".extern .shared .align 16 .b8 dynamic[];\n"
          ".visible .entry small()\n{ .reg .b32 %r; mov.u32 %r, dynamic; ret; }\n"
          ".visible .entry large()\n{\n .shared .align 8 .f64 own[" +
          std::to_string(own) +
          "];\n"
          " { mov.u32 %r, tile; }\n mov.u32 %r, own; ret; }\n";
      CUmodule module = nullptr;
      const CUresult found =
          call("cuModuleLoadData", &module, static_cast<const void*>(ptx.c_str()));
      CUfunction small = nullptr, large = nullptr;
      if (found != CUDA_SUCCESS) return found;
      EXPECT_EQ(call("cuModuleGetFunction", &small, module, "small"), 0);
      EXPECT_EQ(call("cuModuleGetFunction", &large, module, "large"), 0);
      EXPECT_EQ(attribute(small, kSharedSize), 0);
      EXPECT_EQ(attribute(large, kSharedSize), 8 * own + others);
      return found;
    };
    EXPECT_EQ(result(1000, 41152), CUDA_SUCCESS);
    EXPECT_EQ(result(1000, 41153, "sm_90a"), CUDA_SUCCESS);
    EXPECT_EQ(result(1000, 41153), 218);
    const std::string told = text_of(218);
    EXPECT_NE(told.find("large has 49153 bytes of static shared memory, more than the 49152"),
              told.npos)
        << told;
  });
}

// What an image does not state is checked when the kernel runs.
TEST(Shared, WhatIsExecutedIsLimitedToo) {
  cuda_child(json::object(), [] {
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_ABIVERSION] = 7;
    header.e_machine = 190;
    header.e_flags = 90;
    const std::string image(reinterpret_cast<const char*>(&header), sizeof header);
    add_code(image, "cuda", "sm_90",
             "extern \"C\" OPDOCK_KERNEL(32) k(int* out) {\n"
             "  OPDOCK_SHARED(int, tile, 58113);\n"
             "  tile[thread_index()] = 1;\n  out[thread_index()] = tile[thread_index()];\n}\n",
             {"k"});
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    ASSERT_EQ(call("cuModuleLoadData", &module, static_cast<const void*>(image.data())), 0);
    ASSERT_EQ(call("cuModuleGetFunction", &function, module, "k"), 0);
    CUdeviceptr out = new_memory(128);
    EXPECT_EQ(launch(function, nullptr, {}, {&out}), CUDA_SUCCESS);
    EXPECT_EQ(call("cuCtxSynchronize"), 719);
    EXPECT_TRUE(
        found("static shared memory of 232452 bytes, more than the 232448 that a block has"));
  });
}

}  // namespace
}  // namespace softgpu_test
