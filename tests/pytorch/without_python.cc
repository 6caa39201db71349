// A program without Python that calls Opdock's operators through torch's dispatcher. Its arguments:
// the path of libopdock_torch.so, and what to do: softmax of a tensor (0), of one that requires a
// gradient (1), dropout of ones, twice (2), or softmax after the library was closed (3).
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "torch/shim.h"

extern "C" AOTITorchError torch_set_requires_grad(AtenTensorHandle tensor, bool requires_grad);

static AtenTensorHandle made() {
  const int64_t sizes[2] = {2, 2};
  const int64_t strides[2] = {2, 1};
  AtenTensorHandle tensor = nullptr;
  void* data = nullptr;
  if (aoti_torch_empty_strided(2, sizes, strides, aoti_torch_dtype_float32(),
                               aoti_torch_device_type_cpu(), -1, &tensor) != 0 ||
      torch_get_mutable_data_ptr(tensor, &data) != 0)
    std::abort();
  for (int i = 0; i < 4; ++i) static_cast<float*>(data)[i] = static_cast<float>(i * i);
  return tensor;
}

static int fail() {
  using Text = const char*();  // torch 2.13 and newer
  auto* const text =
      reinterpret_cast<Text*>(dlsym(RTLD_DEFAULT, "torch_exception_get_what_without_backtrace"));
  std::fprintf(stderr, "%s\n", text == nullptr ? "no text" : text());
  return 1;
}

// Calls dropout(x, p) and prints a line with the 64 numbers of its first result.
static int drop() {
  const int64_t size = 64, stride = 1;
  AtenTensorHandle tensor = nullptr;
  void* data = nullptr;
  if (aoti_torch_empty_strided(1, &size, &stride, aoti_torch_dtype_float32(),
                               aoti_torch_device_type_cpu(), -1, &tensor) != 0 ||
      torch_get_mutable_data_ptr(tensor, &data) != 0)
    return 3;
  for (int i = 0; i < 64; ++i) static_cast<float*>(data)[i] = 1;
  const double p = 0.5;
  StableIValue stack[2] = {reinterpret_cast<StableIValue>(tensor), 0};
  std::memcpy(&stack[1], &p, sizeof p);
  if (torch_call_dispatcher("opdock::dropout", "", stack, opdock::torch::kTorchVersion) != 0)
    return fail();
  const void* result = nullptr;
  if (torch_get_const_data_ptr(reinterpret_cast<AtenTensorHandle>(stack[0]), &result) != 0)
    return 3;
  for (int i = 0; i < 64; ++i) std::printf("%g ", static_cast<const float*>(result)[i]);
  std::printf("\n");
  return 0;
}

int main(int, char** arguments) {
  void* const library = dlopen(arguments[1], RTLD_NOW);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  const int what = std::atoi(arguments[2]);
  if (what == 3) dlclose(library);
  if (what == 2) return drop() == 0 ? drop() : 1;
  const AtenTensorHandle x = made();
  torch_set_requires_grad(x, what == 1);
  const double scale = 0.5;
  // softmax(x, scale, mask, causal)
  StableIValue stack[4] = {reinterpret_cast<StableIValue>(x), 0, 0, 0};
  std::memcpy(&stack[1], &scale, sizeof scale);
  if (torch_call_dispatcher("opdock::softmax", "", stack, opdock::torch::kTorchVersion) != 0)
    return fail();
  const void* data = nullptr;
  if (torch_get_const_data_ptr(reinterpret_cast<AtenTensorHandle>(stack[0]), &data) != 0) return 3;
  for (int i = 0; i < 4; ++i) std::printf("%.6f\n", static_cast<const float*>(data)[i]);
  return 0;
}
