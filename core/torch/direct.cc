// Implements the kernels that torch's dispatcher calls through its C++ interface.
// SPDX-License-Identifier: Apache-2.0
#include "direct.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <exception>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "direct_call.h"
#include "direct_memory.h"

namespace opdock::torch {

namespace {

using ::torch::jit::Stack;

// The kernel of one operator at one of torch's dispatch keys.
class DirectKernel final : public c10::OperatorKernel {
 public:
  DirectKernel(const Operator& op, Level level) : op_(op), level_(level) {}

  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
    // No mode, transform or recording of torch may be active in this thread.
    if (level_ == Level::kAutograd && c10::impl::raw_local_dispatch_key_set.included_ != 0)
        [[unlikely]]
      return call_python(stack);
    DirectCall call(op_, level_, stack->data() + stack->size() - op_.parameters.size());
    if (!call.convert()) [[unlikely]]
      return call_python(stack);
    call.run();
    call.give_back(stack);
  }

 private:
  // Calls the operator of Python for autograd, which has the same parameters and returns all
  // results as one list.
  [[gnu::noinline]] void call_python(Stack* stack) {
    const auto first = stack->end() - static_cast<std::ptrdiff_t>(op_.parameters.size());
    Stack values(std::make_move_iterator(first), std::make_move_iterator(stack->end()));
    stack->erase(first, stack->end());
    // Looked up anew, as the call enters Python anyway.
    c10::Dispatcher::singleton().findSchemaOrThrow(op_.python.c_str(), "").callBoxed(&values);
    host->python->rethrow();
    const at::ArrayRef<c10::IValue> found = values.back().toListRef();
    if (op_.results.size() == 1 && op_.results[0].is_list) {
      c10::List<at::Tensor> list;
      for (const c10::IValue& one : found) list.push_back(one.toTensor());
      stack->emplace_back(std::move(list));
      return;
    }
    for (size_t place = 0; place < op_.results.size(); ++place) stack->push_back(found[place]);
  }

  const Operator& op_;
  const Level level_;
};

class DirectOfTorch final : public Direct {
 public:
  std::string implement(const Operator& op, bool guarded) override {
    try {
      add(cpu_, op, Level::kDevice);
      add(cuda_, op, Level::kDevice);
      if (guarded) add(autograd_, op, Level::kAutograd);
      return "";
    } catch (const std::exception& problem) {
      return problem.what();
    }
  }

  AtenTensorHandle allocate(const opdock_output& output, int32_t dtype, opdock_device device,
                            opdock_tensor* tensor) override {
    return allocate_directly(output, dtype, device, tensor);
  }

  void draw(uint64_t count, opdock_device device, void* stream, opdock_generator* out,
            AtenTensorHandle* seed) override {
    draw_directly(count, device, stream, out, seed);
  }

 private:
  // Never deleted: torch crashes in a call of an operator whose library is gone.
  static ::torch::Library* open(c10::DispatchKey key) {
    return new ::torch::Library(::torch::Library::IMPL, "opdock", key, __FILE__, __LINE__);
  }

  static void add(::torch::Library* library, const Operator& op, Level level) {
    library->impl(op.name.c_str(), ::torch::CppFunction::makeFromBoxedFunctor(
                                       std::make_unique<DirectKernel>(op, level)));
  }

  ::torch::Library* const cpu_ = open(c10::DispatchKey::CPU);
  ::torch::Library* const cuda_ = open(c10::DispatchKey::CUDA);
  ::torch::Library* const autograd_ = open(c10::DispatchKey::Autograd);
};

}  // namespace

}  // namespace opdock::torch

opdock::torch::Direct* opdock_torch_direct(const opdock::torch::DirectHost* host) {
  static opdock::torch::DirectOfTorch direct;
  opdock::torch::host = host;
  return &direct;
}
