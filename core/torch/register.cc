// SPDX-License-Identifier: Apache-2.0
#include "register.h"

#include <cstdio>
#include <utility>

#include "bridge.h"
#include "direct.h"
#include "kernels.h"
#include "record.h"
#include "schema.h"
#include "state.h"
#include "tensors.h"

namespace opdock::torch {

namespace {

// Returns torch's library object for a dispatch key, or NULL. It is never deleted: torch crashes in
// a call of an operator whose library is gone.
TorchLibraryHandle open_library(const char* key) {
  TorchLibraryHandle made = nullptr;
  return aoti_torch_library_init_impl("opdock", key, __FILE__, __LINE__, &made) == 0 ? made
                                                                                     : nullptr;
}

bool add(TorchLibraryHandle library, const std::string& name, Kernel kernel) {
  return library != nullptr &&
         torch_library_impl(library, name.c_str(), kernel, kTorchVersion) == 0;
}

bool add_kernels(const std::string& name, const Kernels& kernels, bool guarded) {
  static const TorchLibraryHandle cpu = open_library("CPU");
  static const TorchLibraryHandle cuda = open_library("CUDA");
  static const TorchLibraryHandle autograd = open_library("Autograd");
  return add(cpu, name, kernels.device) && add(cuda, name, kernels.device) &&
         (!guarded || add(autograd, name, kernels.autograd));
}

opdock_status answer(opdock_status status, const std::string& text, char* error,
                     uint32_t error_size) {
  if (text.empty()) return OPDOCK_OK;
  if (error != nullptr && error_size != 0) std::snprintf(error, error_size, "%s", text.c_str());
  return status;
}

}  // namespace

std::string check_version() {
  const uint64_t found = aoti_torch_abi_version();
  if (found >= kTorchVersion) return "";
  return "libopdock_torch: found torch " + std::to_string(found >> 56) + "." +
         std::to_string(found >> 48 & 0xff) + ", wanted 2.11 or newer; update torch";
}

std::string implement(opdock_function* function, const std::string& name, Gradients gradients,
                      bool is_formula) {
  Operator op;
  const std::string why = describe(function, name, &op);
  if (!why.empty())
    return name + ": found " + why + ", wanted one that can be called without Python";
  if (op.is_written && functions().bump_version == nullptr)
    return name +
           ": found no way to raise a tensor's version in this torch, wanted one for an op "
           "that writes";
  const bool guarded = gradients == Gradients::kGuarded;
  op.refuses_gradients = gradients == Gradients::kRefused;
  if (guarded) {
    op.python = "opdock_python::" + name;
    op.recorded = prepare_record(op, is_formula);
  }
  if (direct != nullptr) {
    const std::string problem = direct->implement(*new Operator(std::move(op)), guarded);
    return problem.empty() ? "" : name + ": found that torch does not take its kernels: " + problem;
  }
  const Kernels kernels = make_kernels(std::move(op));
  if (kernels.device == nullptr)
    return name + ": found more than 1024 operators of Opdock, wanted fewer";
  if (add_kernels(name, kernels, guarded)) return "";
  return name + ": found that torch does not take its kernels, wanted an operator that is defined";
}

}  // namespace opdock::torch

using opdock::torch::answer;

opdock_status opdock_torch_connect(const opdock_torch_python* python, char* error,
                                   uint32_t error_size) {
  opdock::torch::python = *python;
  return answer(OPDOCK_INCOMPATIBLE, opdock::torch::check_version(), error, error_size);
}

opdock_status opdock_torch_set_layout(const opdock_torch_layout* layout, char* error,
                                      uint32_t error_size) {
  opdock::torch::layout = *layout;
  const bool known = opdock::torch::find_thread_keys() != nullptr;
  return answer(OPDOCK_UNSUPPORTED,
                known ? "" : "found no dispatch keys of this thread, wanted those of torch's c10",
                error, error_size);
}

const uint64_t* opdock_torch_thread_keys() {
  return opdock::torch::find_thread_keys();
}

const char* opdock_torch_schema(opdock_function* function, const char* name) {
  thread_local std::string text;
  opdock::torch::Operator op;
  const bool is_possible = opdock::torch::describe(function, name, &op).empty();
  text = is_possible ? opdock::torch::schema(op) : "";
  return text.c_str();
}

opdock_torch_tensor opdock_torch_allocate(const opdock_output* output, const opdock_device* device,
                                          opdock_tensor* tensor) {
  AtenTensorHandle made = nullptr;
  return opdock::torch::allocate(*output, *device, &made, tensor) ? made : nullptr;
}

void opdock_torch_release(opdock_torch_tensor tensor) {
  aoti_torch_delete_tensor_object(tensor);
}

opdock_status opdock_torch_open_recorder(const char* path, const char* build, char* error,
                                         uint32_t error_size) {
  return answer(OPDOCK_INCOMPATIBLE, opdock::torch::open_recorder(path, build), error, error_size);
}

void opdock_torch_use_recorder(int32_t wanted) {
  opdock::torch::uses_recorder = wanted != 0;
}

opdock_status opdock_torch_implement(opdock_function* function, const char* name, uint32_t flags,
                                     char* error, uint32_t error_size) {
  using opdock::torch::Gradients;
  const bool guarded = (flags & OPDOCK_TORCH_GUARDED) != 0;
  const std::string why =
      opdock::torch::implement(function, name, guarded ? Gradients::kGuarded : Gradients::kPython,
                               (flags & OPDOCK_TORCH_FORMULA) != 0);
  return answer(OPDOCK_UNSUPPORTED, why, error, error_size);
}
