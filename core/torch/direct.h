// Kernels that torch's dispatcher calls through its C++ interface, without the stable one. They are
// in the library that is compiled for one build of torch (recorder.h). They spare a call the handle
// on the heap that the stable interface makes for each tensor, and they see which sizes are
// symbolic, so that calls with plain ones need no Python.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <string>

#include "bridge.h"
#include "operator.h"
#include "run.h"

namespace opdock::torch {

// The functions of libopdock_torch that the library for one build of torch calls.
struct DirectHost {
  void (*run)(const Operator& op, Arena* arena, Converted* call);
  void (*fail)(opdock_status status, const std::string& text);
  bool (*to_dtype)(int32_t number, opdock_dtype* out);
  opdock_device (*to_device)(int32_t type, int32_t index);
  const opdock_torch_python* python;
  const opdock_torch_layout* layout;
  const std::atomic<bool>* uses_recorder;
};

// All functions may be called by any thread.
class Direct {
 public:
  // Implements the operator, which is defined and lives as long as the process, for the CPU and for
  // CUDA, and for autograd if it is guarded. Returns "" or why torch does not take the kernels.
  virtual std::string implement(const Operator& op, bool guarded) = 0;
  // Allocates a contiguous tensor; the handle is new. dtype: torch's number. Returns NULL if that
  // is not possible here; the stable interface is to be tried then.
  virtual AtenTensorHandle allocate(const opdock_output& output, int32_t dtype,
                                    opdock_device device, opdock_tensor* tensor) = 0;
  // Takes `count` numbers of the device's default generator, as opdock.ops does for torch's
  // tensors. seed: gets the tensor that holds the seed on the device, which is new, if the stream
  // is being captured. Throws.
  virtual void draw(uint64_t count, opdock_device device, void* stream, opdock_generator* out,
                    AtenTensorHandle* seed) = 0;

 protected:
  ~Direct() = default;
};

// The open library's kernels; NULL: there are none, and the stable interface serves.
extern Direct* direct;
// Uses the kernels of a library, which stays open, if it has them.
void open_direct(void* library);

}  // namespace opdock::torch

extern "C" {
// Returns the kernels of the library, which live as long as the process, as `host` must.
[[gnu::visibility("default")]] opdock::torch::Direct* opdock_torch_direct(
    const opdock::torch::DirectHost* host);
}
