// SPDX-License-Identifier: Apache-2.0
#include "random.h"

#include "direct.h"
#include "error.h"
#include "state.h"

namespace opdock::torch {

namespace {

// Has a kernel of torch draw a seed; a CUDA graph repeats that kernel, with torch's own state, in
// each replay. Returns NULL if torch cannot.
AtenTensorHandle draw_seed(opdock_device device) {
  const bool on_cpu = device.type == OPDOCK_CPU;
  const Randint randint = on_cpu ? functions().randint : gpu_functions().randint;
  const int64_t none = 0;
  AtenTensorHandle seed = nullptr;
  if (randint == nullptr || aoti_torch_empty_strided(0, &none, &none, aoti_torch_dtype_int64(),
                                                     on_cpu ? aoti_torch_device_type_cpu()
                                                            : aoti_torch_device_type_cuda(),
                                                     on_cpu ? -1 : device.index, &seed) != 0)
    return nullptr;
  if (randint(seed, 0, INT64_MAX, &none, 0) == 0) return seed;
  aoti_torch_delete_tensor_object(seed);
  return nullptr;
}

}  // namespace

Drawn::~Drawn() {
  if (seed_ != nullptr) aoti_torch_delete_tensor_object(seed_);
}

opdock_generator* Drawn::draw(const Operator& op, uint64_t count, opdock_device device,
                              void* stream) {
  generator_.struct_size = sizeof generator_;
  if (direct != nullptr) {
    direct->draw(count, device, stream, &generator_, &seed_);
    return &generator_;
  }
  seed_ = draw_seed(device);
  const void* data = nullptr;
  if (seed_ == nullptr || torch_get_const_data_ptr(seed_, &data) != 0)
    fail(OPDOCK_INTERNAL, op.name +
                              "(): found no random number of torch's, wanted a seed from the "
                              "device's default generator");
  if (device.type == OPDOCK_CPU)
    generator_.seed = *static_cast<const uint64_t*>(data);
  else
    generator_.device_seed = static_cast<const uint64_t*>(data);
  return &generator_;
}

bool can_draw() {
  // In Python the ops that call Opdock's own functions draw in Python, and the numbers must be the
  // same whichever way a call takes: only the direct kernels draw as these do.
  return direct != nullptr || (python.raise == nullptr && functions().randint != nullptr);
}

}  // namespace opdock::torch
