// Takes random numbers from torch's default generators, which torch.manual_seed seeds.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "opdock/opdock.h"
#include "operator.h"

namespace opdock::torch {

// The part of a generator's sequence that a call uses.
class Drawn {
 public:
  Drawn() = default;
  Drawn(const Drawn&) = delete;
  Drawn& operator=(const Drawn&) = delete;
  ~Drawn();

  // Takes `count` numbers of the device's generator. stream: the call's, on a GPU. Throws.
  opdock_generator* draw(const Operator& op, uint64_t count, opdock_device device, void* stream);

 private:
  opdock_generator generator_ = {};
  AtenTensorHandle seed_ = nullptr;  // on a GPU; the kernels that read it were launched before
};

// Returns whether calls can draw random numbers here without Python.
bool can_draw();

}  // namespace opdock::torch
