// SPDX-License-Identifier: Apache-2.0
#include "cuda_test_support.h"

#include <elf.h>

#include <cstring>

namespace softgpu_test {
namespace {

const char kProgram[] = R"(
extern "C" OPDOCK_KERNEL(256) fill(int* out, int count, int value) {
  const int i = static_cast<int>(block_index()) * block_threads() + thread_index();
  if (i < count) out[i] = value;
}
extern "C" OPDOCK_KERNEL(256) add(int* out, const int* in, int count) {
  const int i = static_cast<int>(block_index()) * block_threads() + thread_index();
  if (i < count) out[i] += in[i];
}
extern "C" OPDOCK_KERNEL(256) add_later(int* out, const int* in, int count) {
  launch_wait();
  const int i = static_cast<int>(block_index()) * block_threads() + thread_index();
  if (i < count) out[i] += in[i];
}
extern "C" OPDOCK_KERNEL(256) work(int* out, int rounds) {
  for (int i = 0; i < rounds; ++i) out[0] += i;
}
extern "C" OPDOCK_KERNEL(256) misalign(char* out) {
  if (thread_index() == 0) *reinterpret_cast<int*>(out + 1) = 1;
}
extern "C" OPDOCK_KERNEL(256) race(int* out) {
  out[0] = thread_index();
}
)";

}  // namespace

json cuda_config(const json& more) {
  json config = {{"cuda", 12040},
                 {"workers", 1},
                 {"gpus",
                  {{{"arch", "sm_90"}, {"memory", 1 << 20}, {"multiprocessors", 4}},
                   {{"arch", "sm_90"}, {"memory", 1 << 20}}}}};
  config.update(more);
  return config;
}

void cuda_child(const json& more, const std::function<void()>& body,
                const std::function<void()>& after) {
  in_child(
      "libcuda.so.1", cuda_config(more),
      [&] {
        CUcontext context = nullptr;
        ASSERT_EQ(call("cuInit", 0u), CUDA_SUCCESS);
        ASSERT_EQ(call("cuDevicePrimaryCtxRetain", &context, 0), CUDA_SUCCESS);
        ASSERT_EQ(call("cuCtxSetCurrent", context), CUDA_SUCCESS);
        body();
      },
      after);
}

CUstream new_stream(unsigned flags) {
  CUstream stream = nullptr;
  EXPECT_EQ(call("cuStreamCreate", &stream, flags), CUDA_SUCCESS);
  return stream;
}

CUdeviceptr new_memory(size_t bytes) {
  CUdeviceptr memory = 0;
  EXPECT_EQ(call("cuMemAlloc_v2", &memory, bytes), CUDA_SUCCESS);
  return memory;
}

CUdeviceptr new_ints(size_t count, int value) {
  const CUdeviceptr memory = new_memory(count * sizeof value);
  EXPECT_EQ(call("cuMemsetD32_v2", memory, static_cast<unsigned>(value), count), CUDA_SUCCESS);
  EXPECT_EQ(call("cuCtxSynchronize"), CUDA_SUCCESS);
  return memory;
}

std::vector<int> ints_at(CUdeviceptr memory, size_t count) {
  std::vector<int> values(count);
  EXPECT_EQ(call("cuMemcpyDtoH_v2", static_cast<void*>(values.data()), memory, count * sizeof(int)),
            CUDA_SUCCESS);
  return values;
}

CUdeviceptr new_ordered(CUstream stream, size_t count) {
  CUdeviceptr memory = 0;
  EXPECT_EQ(call("cuMemAllocAsync", &memory, count * sizeof(int), stream), CUDA_SUCCESS);
  return memory;
}

CUresult copy_back(CUdeviceptr memory, size_t count, CUstream stream) {
  std::vector<int> values(count);
  return call("cuMemcpyDtoHAsync_v2", static_cast<void*>(values.data()), memory,
              count * sizeof(int), stream);
}

CUmodule load_kernels() {
  // This cubin is only a header: the library defines its kernels' names and parameters.
  static const std::string image = [] {
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_ABIVERSION] = 7;
    header.e_machine = 190;
    header.e_flags = 90;
    return std::string(reinterpret_cast<const char*>(&header), sizeof header);
  }();
  add_code(image, "cuda", "sm_90", kProgram,
           {"fill", "add", "add_later", "work", "misalign", "race"});
  CUmodule module = nullptr;
  EXPECT_EQ(call("cuModuleLoadData", &module, static_cast<const void*>(image.data())),
            CUDA_SUCCESS);
  return module;
}

CUfunction kernel(const char* name) {
  static const CUmodule module = load_kernels();
  CUfunction function = nullptr;
  EXPECT_EQ(call("cuModuleGetFunction", &function, module, name), CUDA_SUCCESS);
  return function;
}

CUresult launch(CUfunction function, CUstream stream, Shape shape,
                const std::vector<void*>& arguments) {
  std::vector<void*> pointers = arguments;
  return call("cuLaunchKernel", function, shape.grid, 1u, 1u, shape.block, 1u, 1u, shape.shared,
              stream, pointers.data(), static_cast<void**>(nullptr));
}

CUresult launch_fill(CUdeviceptr out, int count, int value, CUstream stream) {
  const unsigned blocks = static_cast<unsigned>(count + 63) / 64;
  return launch(kernel("fill"), stream, {blocks, 64, 0}, {&out, &count, &value});
}

CUresult launch_add(CUdeviceptr out, CUdeviceptr in, int count, CUstream stream) {
  const unsigned blocks = static_cast<unsigned>(count + 63) / 64;
  return launch(kernel("add"), stream, {blocks, 64, 0}, {&out, &in, &count});
}

}  // namespace softgpu_test
