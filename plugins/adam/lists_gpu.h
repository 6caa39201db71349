// Launches kernels for lists of tensors: as many tensors at a time as their parameters hold.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lists.h"

namespace optimizer {

// Collects tensors into launches of one kernel. Params: has `lists`, a TensorLists.
template <class Params>
class Launches {
 public:
  // params: all but the lists. They must stay.
  Launches(const opdock::Call& call, uint32_t kernel, Params* params, const Lists& lists)
      : call_(call), kernel_(kernel), params_(*params), lists_(lists) {
    const auto is_other = [&](const Tensors& list) {
      return list[0].dtype() != lists.params[0].dtype();
    };
    params_.lists.is_float =
        static_cast<unsigned char>((is_other(lists.weights()) ? kFloatWeights : 0) |
                                   (is_other(lists.grads) ? kFloatGrads : 0) |
                                   (is_other(*lists.states[0]) ? kFloatStates : 0));
    params_.lists.has_copies = lists.masters.has_value();
    params_.lists.count = 0;
  }

  // Adds tensor number i, for which a launch has so many blocks. Returns whether a launch was made
  // of those before it.
  bool add(size_t i, int64_t blocks) {
    auto& to = params_.lists;
    const bool is_full = to.count == to.kMaxTensors || blocks_ + blocks > kMaxBlocks;
    if (is_full) flush();
    const int at = to.count++;
    to.weight[at] = lists_.weights()[i].raw();
    to.grad[at] = lists_.grads[i].raw();
    for (int s = 0; s < to.kStates; ++s) to.state[s][at] = (*lists_.states[s])[i].raw();
    to.copy[at] = lists_.params[i].raw();
    to.numel[at] = lists_.params[i].numel();
    blocks_ += blocks;
    to.end[at] = static_cast<int>(blocks_);
    return is_full;
  }

  void flush() {
    if (params_.lists.count == 0) return;
    opdock::Launch how = {blocks_, kThreads};
    if (is_next_ && call_.is_cuda() && call_.facts().arch_major >= 9)
      how.flags = OPDOCK_LAUNCH_PROGRAMMATIC;
    call_.launch(kernel_, how, params_);
    is_next_ = true;
    params_.lists.count = 0;
    blocks_ = 0;
  }

 private:
  // AMD's driver takes fewer than 2^32 threads per launch.
  static constexpr int64_t kMaxBlocks = (int64_t{1} << 32) / kThreads - 1;

  const opdock::Call& call_;
  uint32_t kernel_;
  Params& params_;
  const Lists& lists_;
  int64_t blocks_ = 0;
  // Follows another launch of this kernel, at the same time as which this one may run.
  bool is_next_ = false;
};

// Launches a kernel in which each block updates kChunk elements, for all tensors that have some.
template <class Params>
void launch_chunks(const opdock::Call& call, uint32_t kernel, Params* params, const Lists& lists) {
  if (lists.params.empty()) return;
  Launches<Params> launches(call, kernel, params, lists);
  for (size_t i = 0; i < lists.params.size(); ++i)
    if (const int64_t numel = lists.params[i].numel())
      launches.add(i, (numel + kChunk - 1) / kChunk);
  launches.flush();
}

}  // namespace optimizer
