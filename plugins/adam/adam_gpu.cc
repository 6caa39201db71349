// The step on a GPU: one launch computes what depends on the step's number, and each following one
// updates as many tensors as its parameters hold. Nothing is copied to the device, so a graph may
// capture it.
// SPDX-License-Identifier: Apache-2.0
#include <opdock/kernel_names.hpp>

#include "adam_job.h"
#include "device/adam_params.cuh"

namespace adam {
namespace {

using opdock::Call;
using opdock::Tensor;

constexpr uint32_t kBegin = OPDOCK_KERNEL_INDEX("adam::begin");
constexpr auto kUpdate = OPDOCK_KERNEL_FAMILY(
    "adam::update", opdock::KernelTypes<float, opdock::half, opdock::bfloat16>);

const float* number(const OptionalTensor& tensor) {
  return tensor ? tensor->data<const float>() : nullptr;
}

// Collects tensors into launches.
class Launches {
 public:
  Launches(const Call& call, const Arguments& a, bool is_decoupled)
      : call_(call), kernel_(kUpdate(a.params[0].dtype())) {
    const opdock::Dtype narrow = a.params[0].dtype();
    params_.current = static_cast<const Current*>(call.workspace());
    params_.beta1 = factor_of<float>(a.beta1);
    params_.beta2 = factor_of<float>(a.beta2);
    params_.rest1 = static_cast<float>(1 - a.beta1);
    params_.rest2 = static_cast<float>(1 - a.beta2);

    params_.weight_decay = is_decoupled ? 0 : static_cast<float>(a.weight_decay);
    params_.sign = a.maximize ? -1.0f : 1.0f;
    const auto is_other = [&](const Tensors& list) { return list[0].dtype() != narrow; };
    params_.is_float = static_cast<unsigned char>((is_other(a.weights()) ? kFloatWeights : 0) |
                                                  (is_other(a.grads) ? kFloatGrads : 0) |
                                                  (is_other(a.exp_avgs) ? kFloatAverages : 0));
    params_.has_copies = a.masters.has_value();
    params_.is_scaled = a.grad_scale.has_value();
  }

  void add(const Arguments& a, size_t i) {
    const int64_t numel = a.params[i].numel();
    const int64_t blocks = (numel + kChunk - 1) / kChunk;
    if (params_.count == kMaxTensors || blocks_ + blocks > kMaxBlocks) flush();
    const int at = params_.count++;
    params_.weight[at] = a.weights()[i].raw();
    params_.grad[at] = a.grads[i].raw();
    params_.average[at] = a.exp_avgs[i].raw();
    params_.square[at] = a.exp_avg_sqs[i].raw();
    params_.copy[at] = a.params[i].raw();
    params_.numel[at] = numel;
    blocks_ += blocks;
    params_.end[at] = static_cast<int>(blocks_);
  }

  void flush() {
    if (params_.count == 0) return;
    opdock::Launch how = {blocks_, kThreads};
    if (is_next_ && call_.is_cuda() && call_.facts().arch_major >= 9)
      how.flags = OPDOCK_LAUNCH_PROGRAMMATIC;
    call_.launch(kernel_, how, params_);
    is_next_ = true;
    params_.count = 0;
    blocks_ = 0;
  }

 private:
  // AMD's driver takes fewer than 2^32 threads per launch.
  static constexpr int64_t kMaxBlocks = (int64_t{1} << 32) / kThreads - 1;

  const Call& call_;
  uint32_t kernel_;
  Params params_ = {};
  int64_t blocks_ = 0;
  // Follows another launch of this kernel, at the same time as which this one may run.
  bool is_next_ = false;
};

}  // namespace

void run_on_gpu(const Call& call, const Arguments& a, bool is_decoupled) {
  Begin begin = {};
  begin.step = a.step.data<float>();
  begin.lr = number(a.lr_tensor);
  begin.grad_scale = number(a.grad_scale);
  begin.found_inf = number(a.found_inf);
  begin.current = static_cast<Current*>(call.workspace());
  begin.lr_number = a.lr;
  begin.beta1 = a.beta1;
  begin.beta2 = a.beta2;
  begin.eps = a.eps;
  begin.weight_decay = is_decoupled ? a.weight_decay : 0;
  call.launch(kBegin, {1, 1}, begin);
  if (a.params.empty()) return;
  Launches launches(call, a, is_decoupled);
  for (size_t i = 0; i < a.params.size(); ++i)
    if (!a.params[i].is_empty()) launches.add(a, i);
  launches.flush();
}

}  // namespace adam
