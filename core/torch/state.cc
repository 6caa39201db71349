// SPDX-License-Identifier: Apache-2.0
#include "state.h"

#include <dlfcn.h>

#include <initializer_list>

namespace opdock::torch {

namespace {

// Returns a library that is already loaded, or NULL.
void* loaded(const char* name) {
  return dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
}

template <typename Function>
void find(void* library, const char* name, Function** out) {
  if (library != nullptr) *out = reinterpret_cast<Function*>(dlsym(library, name));
}

Functions find_functions() {
  Functions found;
  void* const cpu = loaded("libtorch_cpu.so");
  find(cpu, "aoti_torch_cpu_randint_low_out", &found.randint);
  find(cpu, "_ZN5torch8autograd4impl12bump_versionERKN2at6TensorE", &found.bump_version);
  void* const c10 = loaded("libc10.so");
  find(c10, "_ZNK3c1010TensorImpl13requires_gradEv", &found.requires_grad);
  find(c10, "_ZNK3c1010TensorImpl8_fw_gradEmRKN2at10TensorBaseE", &found.tangent);
  return found;
}

GpuFunctions find_gpu_functions() {
  GpuFunctions found;
  for (const char* name : {"libtorch_cuda.so", "libtorch_hip.so"}) {
    if (found.current_stream == nullptr)
      find(loaded(name), "aoti_torch_get_current_cuda_stream", &found.current_stream);
    if (found.randint == nullptr)
      find(loaded(name), "aoti_torch_cuda_randint_low_out", &found.randint);
  }
  found.is_rocm = loaded("libtorch_hip.so") != nullptr;
  return found;
}

}  // namespace

opdock_torch_python python = {
    sizeof(opdock_torch_python), 0, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr};
opdock_torch_layout layout = {0, 0, 0};

const Functions& functions() {
  static const Functions found = find_functions();
  return found;
}

const GpuFunctions& gpu_functions() {
  static const GpuFunctions found = find_gpu_functions();
  return found;
}

const uint64_t* find_thread_keys() {
  static void* const c10 = loaded("libc10.so");
  if (c10 != nullptr) {
    thread_keys =
        static_cast<const uint64_t*>(dlsym(c10, "_ZN3c104impl26raw_local_dispatch_key_setE"));
  }
  return thread_keys;
}

Need need_of_differentiation(AtenTensorHandle tensor, const void* impl) {
  const Functions& torch = functions();
  if (torch.requires_grad == nullptr || torch.tangent == nullptr) return Need::kPython;
  bool has_tangent = true;
  if (aoti_torch_is_defined(torch.tangent(impl, 0, tensor), &has_tangent) != 0 || has_tangent)
    return Need::kPython;
  const bool is_recorded = aoti_torch_grad_mode_is_enabled() && torch.requires_grad(impl);
  return is_recorded ? Need::kRecord : Need::kNothing;
}

bool requires_gradient(AtenTensorHandle tensor) {
  const void* impl = nullptr;
  std::memcpy(&impl, reinterpret_cast<const void*>(tensor), sizeof impl);
  const Functions& torch = functions();
  return torch.requires_grad != nullptr && aoti_torch_grad_mode_is_enabled() &&
         torch.requires_grad(impl);
}

}  // namespace opdock::torch
