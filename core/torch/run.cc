// SPDX-License-Identifier: Apache-2.0
#include "run.h"

#include <atomic>
#include <utility>

#include "error.h"
#include "random.h"
#include "record.h"
#include "state.h"
#include "tensors.h"

namespace opdock::torch {

namespace {

constexpr size_t kErrorSize = 2048;

// Python's answer for the call that this thread makes. Plan and run of a call both ask, and each
// question takes the GIL.
constexpr int32_t kNotAsked = -1;
thread_local int32_t deterministic_answer = kNotAsked;

int32_t ask_deterministic_once() {
  if (deterministic_answer == kNotAsked) deterministic_answer = python.wants_deterministic();
  return deterministic_answer;
}

class Run {
 public:
  Run(const Operator& op, Arena* arena, Converted* call) : op_(op), arena_(*arena), call_(*call) {
    error_[0] = '\0';
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run() {
    if (call_.record != nullptr) [[unlikely]]
      recorder->drop(call_.record);
  }

  void run() {
    const bool on_gpu = call_.gpu.type != OPDOCK_CPU;
    if (op_.num_fresh == 0 && !on_gpu && !op_.is_random) return run_directly(nullptr);
    opdock_call_options options = {};
    options.struct_size = sizeof options;
    options.allows_tf32 = python.allows_tf32;
    if (on_gpu) {
      options.stream = current_stream();
      deterministic_answer = kNotAsked;
      if (python.wants_deterministic != nullptr)
        options.wants_deterministic = ask_deterministic_once;
    }
    const std::atomic_ref<bool> needs_workspace(op_.needs_workspace);
    if (op_.num_fresh == 0 && !needs_workspace.load(std::memory_order_relaxed) && !op_.is_random)
      return run_directly(&options);
    opdock_plan plan;
    make_plan(on_gpu ? &options : nullptr, &plan);
    if (op_.num_fresh == 0 && plan.workspace_bytes == 0)
      needs_workspace.store(false, std::memory_order_relaxed);
    Drawn drawn;  // before there is memory to give back, since drawing may throw
    if (plan.random_numbers != 0) [[unlikely]]
      options.generator = drawn.draw(op_, plan.random_numbers, call_.gpu, options.stream);
    allocate_all(plan);
    AtenTensorHandle workspace = nullptr;
    if (on_gpu && plan.workspace_bytes != 0) workspace = allocate_workspace(plan, &options);
    const bool has_options = on_gpu || options.generator != nullptr;
    opdock_value* const results = bind_results();
    const opdock_status status = opdock_run_planned(
        op_.function, has_options ? &options : nullptr, &plan, call_.values, op_.info->num_params,
        results, op_.info->num_results, error_, kErrorSize);
    if (workspace != nullptr) aoti_torch_delete_tensor_object(workspace);
    if (status != OPDOCK_OK) [[unlikely]] {
      drop(plan.num_outputs);
      fail(status, error_);
    }
    if (call_.record != nullptr) [[unlikely]]
      finish_record(plan.num_outputs);
  }

 private:
  // Runs a call that needs no memory of torch in one step, which is faster than two.
  void run_directly(const opdock_call_options* options) {
    opdock_value* const results = bind_results();
    const opdock_status status =
        opdock_invoke(op_.function, options, call_.values, op_.info->num_params, results,
                      op_.info->num_results, error_, kErrorSize);
    if (status != OPDOCK_OK) [[unlikely]]
      fail(status, error_);
  }

  void* current_stream() {
    void* stream = nullptr;
    const auto ask = gpu_functions().current_stream;
    if (ask == nullptr || ask(call_.gpu.index, &stream) != 0) {
      fail(OPDOCK_DEVICE_ERROR, op_.name + "(): found no current stream of torch for cuda:" +
                                    std::to_string(call_.gpu.index) +
                                    ", wanted a torch that was built with CUDA or ROCm");
    }
    return stream;
  }

  // Plans the call, and counts the fresh tensors of each result if they do not all have one.
  void make_plan(const opdock_call_options* options, opdock_plan* plan) {
    uint32_t tensors = op_.num_fresh;
    opdock_status status = OPDOCK_OK;
    if (op_.is_variable) [[unlikely]] {
      uint32_t* const counts = arena_.take<uint32_t>(op_.info->num_results);
      status = opdock_count_results(op_.function, call_.values, op_.info->num_params, counts,
                                    error_, kErrorSize);
      if (status != OPDOCK_OK) fail(status, error_);
      tensors = 0;
      for (uint32_t i = 0; i < op_.info->num_results; ++i) tensors += counts[i];
      call_.counts = counts;
    }
    plan->struct_size = sizeof *plan;
    plan->room = tensors;
    plan->outputs = arena_.take<opdock_output>(tensors);
    status = opdock_plan_call(op_.function, options, call_.values, op_.info->num_params, plan,
                              error_, kErrorSize);
    if (status != OPDOCK_OK) [[unlikely]]
      fail(status, error_);
  }

  void drop(uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) aoti_torch_delete_tensor_object(call_.fresh[i]);
  }

  void allocate_all(const opdock_plan& plan) {
    call_.fresh = arena_.take<AtenTensorHandle>(plan.num_outputs);
    tensors_ = arena_.take<opdock_tensor>(plan.num_outputs);
    for (uint32_t i = 0; i < plan.num_outputs; ++i) {
      if (allocate(plan.outputs[i], call_.device, &call_.fresh[i], &tensors_[i])) [[likely]]
        continue;
      drop(i);
      fail(OPDOCK_OUT_OF_MEMORY, op_.name + "(): found no memory for a result");
    }
  }

  // Allocates the workspace from torch, which reuses memory in stream order; libopdock allocates it
  // if that fails.
  AtenTensorHandle allocate_workspace(const opdock_plan& plan, opdock_call_options* options) {
    constexpr uint64_t kAlignment = 256;  // a plan's 0 means 256; torch's memory has 512
    if (plan.workspace_alignment > kAlignment) return nullptr;
    opdock_output wanted = {};
    wanted.dtype = {OPDOCK_DTYPE_UINT, 8, 1};
    wanted.ndim = 1;
    wanted.shape[0] = static_cast<int64_t>(plan.workspace_bytes);
    AtenTensorHandle handle = nullptr;
    opdock_tensor tensor;
    if (!allocate(wanted, call_.gpu, &handle, &tensor)) return nullptr;
    options->workspace = tensor.data;
    options->workspace_bytes = plan.workspace_bytes;
    return handle;
  }

  opdock_value* bind_results() {
    opdock_value* const results = arena_.take<opdock_value>(op_.info->num_results);
    for (uint32_t i = 0; i < op_.info->num_results; ++i) results[i] = {};
    opdock_tensor* next = tensors_;
    for (const Result& result : op_.results) {
      opdock_value& value = results[result.index];
      const uint32_t count = call_.counts == nullptr ? 1 : call_.counts[result.index];
      if (result.is_list) {
        opdock_value* const items = arena_.take<opdock_value>(count + 1);
        for (uint32_t k = 0; k < count; ++k)
          items[k] = {OPDOCK_TAG_TENSOR, 0, {.tensor = next + k}};
        opdock_list* const list = arena_.take<opdock_list>(1);
        *list = {items, count};
        value = {OPDOCK_TAG_LIST, 0, {.list = list}};
      } else if (count != 0) {
        value = {OPDOCK_TAG_TENSOR, 0, {.tensor = next}};
      }
      next += count;
    }
    return results;
  }

  [[gnu::noinline]] void finish_record(uint32_t num_fresh) {
    uint32_t* of_results = nullptr;
    if (call_.counts != nullptr) {
      of_results = arena_.take<uint32_t>(op_.results.size());
      for (size_t place = 0; place < op_.results.size(); ++place)
        of_results[place] = call_.counts[op_.results[place].index];
    }
    try {
      recorder->finish(std::exchange(call_.record, nullptr), call_.fresh, of_results);
    } catch (...) {
      drop(num_fresh);
      throw;
    }
  }

  const Operator& op_;
  Arena& arena_;
  Converted& call_;
  opdock_tensor* tensors_ = nullptr;
  char error_[kErrorSize];
};

}  // namespace

void run(const Operator& op, Arena* arena, Converted* call) {
  Run(op, arena, call).run();
}

}  // namespace opdock::torch
