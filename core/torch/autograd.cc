// Implements the recorder: each call becomes a node of autograd's graph, whose backward pass calls
// the operators of the declared gradients. They are called through torch's dispatcher, so that a
// second derivative is recorded, or refused, as for any other call.
// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <cstring>
#include <exception>
#include <list>
#include <memory>
#include <mutex>
#include <type_traits>

#include "recorder.h"

#define OPDOCK_TEXT(x) #x
#define OPDOCK_ABI(x) " " OPDOCK_TEXT(x)

namespace opdock::torch {

namespace {

using ::torch::autograd::Edge;
using ::torch::autograd::Node;
using ::torch::autograd::SavedVariable;
using ::torch::autograd::variable_list;

// A shared pointer in torch before 2.13, an intrusive one since.
using NodePointer = decltype(Edge::function);

// Returns a new node. Pointer: NodePointer, a parameter so that only the right branch is compiled.
template <typename T, typename Pointer>
Pointer make_node() {
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<Node>>) {
    // torch's deleter does not recurse along the graph.
    return Pointer(new T, [](auto* node) { deleteNode(node); });
  } else {
    return c10::make_intrusive<T>();
  }
}

const at::Tensor& tensor_of(AtenTensorOpaque* handle) {
  return *reinterpret_cast<const at::Tensor*>(handle);
}

c10::IValue constant_of(const Argument& argument) {
  switch (argument.kind) {
    case Argument::Kind::kBool:
      return argument.number != 0;
    case Argument::Kind::kInt:
    case Argument::Kind::kDtype:
      return argument.number;
    case Argument::Kind::kFloat: {
      double value;
      std::memcpy(&value, &argument.number, sizeof value);
      return value;
    }
    case Argument::Kind::kText:
      return std::string(argument.text, static_cast<size_t>(argument.number));
    case Argument::Kind::kDevice:
      return c10::Device(static_cast<c10::DeviceType>(argument.number >> 32),
                         static_cast<c10::DeviceIndex>(argument.number & 0xff));
    default:
      return {};
  }
}

struct PreparedCall {
  GradientCall call;
  c10::OperatorHandle op;
};

// An operator, and the calls for each set of gradients that has been asked for.
class Prepared {
 public:
  explicit Prepared(const Differentiable& differentiable) : op(differentiable) {}

  const std::vector<PreparedCall>& calls(uint64_t wanted) {
    if (const std::vector<PreparedCall>* const known = find(wanted)) return *known;
    // Planning may enter Python, which must not happen under the lock.
    std::vector<PreparedCall> calls;
    for (GradientCall& one : op.plan(wanted)) {
      const c10::OperatorHandle handle =
          c10::Dispatcher::singleton().findSchemaOrThrow(("opdock::" + one.name).c_str(), "");
      calls.push_back({std::move(one), handle});
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    plans_.emplace_back(wanted, std::move(calls));
    return plans_.back().second;
  }

  const Differentiable& op;

 private:
  const std::vector<PreparedCall>* find(uint64_t wanted) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [known, calls] : plans_) {
      if (known == wanted) return &calls;
    }
    return nullptr;
  }

  std::mutex mutex_;
  // Elements never move and are never removed; two threads may add the same plan.
  std::list<std::pair<uint64_t, std::vector<PreparedCall>>> plans_;
};

// The tensors of a parameter or a result.
struct Span {
  uint32_t begin = 0;  // of its edges, or of its gradients
  uint32_t end = 0;
  int32_t saved = -1;  // the first of its saved tensors, or -1
  bool is_list = false;
};

class RecordedCall : public Node {
 public:
  void begin(Prepared* prepared, const Argument* arguments, size_t count) {
    prepared_ = prepared;
    ::torch::autograd::edge_list edges;
    parameters_.resize(count);
    constants_.resize(count);
    for (size_t place = 0; place < count; ++place) {
      const Argument& argument = arguments[place];
      const bool is_saved = prepared->op.saved_parameters[place];
      Span& span = parameters_[place];
      span.begin = static_cast<uint32_t>(edges.size());
      if (argument.kind == Argument::Kind::kTensor) {
        add(tensor_of(argument.tensor), is_saved, &span, &edges);
      } else if (argument.kind == Argument::Kind::kList) {
        span.is_list = true;
        if (is_saved) span.saved = static_cast<int32_t>(saved_.size());
        for (int64_t i = 0; i < argument.number; ++i)
          add(tensor_of(argument.tensors[i]), is_saved, &span, &edges);
      } else if (is_saved) {
        constants_[place] = constant_of(argument);
      }
      span.end = static_cast<uint32_t>(edges.size());
    }
    set_next_edges(std::move(edges));
  }

  void finish(const NodePointer& self, AtenTensorOpaque* const* results, const uint32_t* counts) {
    const std::vector<bool>& is_saved = prepared_->op.saved_results;
    results_.resize(is_saved.size());
    for (size_t place = 0; place < is_saved.size(); ++place) {
      Span& span = results_[place];
      const uint32_t count = counts == nullptr ? 1 : counts[place];
      span.is_list = prepared_->op.list_results[place];
      span.begin = static_cast<uint32_t>(inputs_.size());
      if (is_saved[place] && count != 0) span.saved = static_cast<int32_t>(saved_.size());
      for (uint32_t i = 0; i < count; ++i) {
        const at::Tensor& result = tensor_of(*results++);
        const bool is_differentiable =
            ::torch::autograd::isDifferentiableType(result.scalar_type());
        inputs_.push_back(is_differentiable ? static_cast<int32_t>(num_inputs()) : -1);
        if (is_differentiable) ::torch::autograd::set_history(result, self);
        if (is_saved[place]) saved_.emplace_back(result, true);
      }
      span.end = static_cast<uint32_t>(inputs_.size());
    }
  }

  std::string name() const override { return "opdock::" + prepared_->op.name; }

  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (SavedVariable& one : saved_) one.reset_data();
  }

 protected:
  variable_list apply(variable_list&& gradients) override {
    try {
      const std::lock_guard<std::mutex> lock(mutex_);
      return differentiate(gradients);
    } catch (...) {
      // Exceptions of Opdock pass a call of the dispatcher as they are, but would become a
      // RuntimeError in torch's engine.
      if (prepared_->op.leave(std::current_exception())) raise_left(gradients);
      throw;
    }
  }

 private:
  static void raise_left(const variable_list& gradients) {
    static const c10::OperatorHandle op =
        c10::Dispatcher::singleton().findSchemaOrThrow("opdock_python::raise_left", "");
    for (const at::Tensor& one : gradients) {
      if (!one.defined()) continue;
      std::vector<c10::IValue> stack = {one};
      op.callBoxed(&stack);
    }
  }

  variable_list differentiate(const variable_list& gradients) {
    variable_list out(num_outputs());
    bool has_gradient = false;
    for (const at::Tensor& one : gradients) has_gradient = has_gradient || one.defined();
    const uint64_t wanted = has_gradient ? find_wanted() : 0;
    if (wanted == 0) return out;
    std::vector<c10::IValue> stack;
    for (const PreparedCall& one : prepared_->calls(wanted)) {
      stack.clear();
      stack.reserve(one.call.sources.size());
      for (const Source& source : one.call.sources) stack.push_back(value_of(source, gradients));
      one.op.callBoxed(&stack);
      for (const auto& [place, result] : one.call.outputs)
        put(place, stack[result], one.call.name, &out);
    }
    return out;
  }

  void add(const at::Tensor& tensor, bool is_saved, Span* span,
           ::torch::autograd::edge_list* edges) {
    edges->push_back(tensor.requires_grad() ? ::torch::autograd::impl::gradient_edge(tensor)
                                            : Edge());
    if (!is_saved) return;
    if (span->saved < 0) span->saved = static_cast<int32_t>(saved_.size());
    saved_.emplace_back(tensor, false);
  }

  // Returns the parameters whose gradients this backward pass uses, a bit for each.
  uint64_t find_wanted() const {
    uint64_t wanted = 0;
    for (size_t place = 0; place < parameters_.size(); ++place) {
      for (uint32_t i = parameters_[place].begin; i < parameters_[place].end; ++i) {
        if (task_should_compute_output(i)) wanted |= uint64_t{1} << place;
      }
    }
    return wanted;
  }

  c10::IValue value_of(const Source& source, const variable_list& gradients) {
    switch (source.kind) {
      case Source::Kind::kParameter:
        return parameters_[source.place].begin == parameters_[source.place].end &&
                       !parameters_[source.place].is_list
                   ? constants_[source.place]
                   : saved_of(parameters_[source.place], false);
      case Source::Kind::kResult:
        return saved_of(results_[source.place], true);
      case Source::Kind::kIncoming:
        return incoming(source, gradients);
      case Source::Kind::kConstant:
        return constant_of(source.constant);
    }
    return {};
  }

  c10::IValue saved_of(const Span& span, bool is_result) {
    const auto unpack = [&](uint32_t i) {
      const SavedVariable& saved = saved_[static_cast<size_t>(span.saved) + i];
      return saved.unpack(is_result ? getptr() : nullptr);
    };
    const uint32_t count = span.end - span.begin;
    if (!span.is_list) return count == 0 ? c10::IValue() : c10::IValue(unpack(0));
    c10::List<at::Tensor> list;
    for (uint32_t i = 0; i < count; ++i) list.push_back(unpack(i));
    return list;
  }

  c10::IValue incoming(const Source& source, const variable_list& gradients) {
    const Span& span = results_[source.place];
    const auto gradient = [&](uint32_t i, bool may_lack) -> c10::IValue {
      const int32_t input = inputs_[span.begin + i];
      if (input < 0) return {};
      const auto at = static_cast<size_t>(input);
      if (gradients[at].defined()) return gradients[at].contiguous();
      if (may_lack) return {};
      return input_metadata(at).zeros_like();
    };
    const uint32_t count = span.end - span.begin;
    if (!span.is_list) return count == 0 ? c10::IValue() : gradient(0, source.may_lack);
    c10::List<at::Tensor> list;
    for (uint32_t i = 0; i < count; ++i) list.push_back(gradient(i, false).toTensor());
    return list;
  }

  // Hands out the gradient of a parameter.
  void put(uint32_t place, const c10::IValue& gradient, const std::string& by, variable_list* out) {
    const Span& span = parameters_[place];
    if (gradient.isNone()) prepared_->op.refuse(place, by);
    if (!span.is_list) {
      (*out)[span.begin] = gradient.toTensor();
      return;
    }
    const c10::List<at::Tensor> list = gradient.toTensorList();
    for (uint32_t i = span.begin; i < span.end; ++i) (*out)[i] = list.get(i - span.begin);
  }

  Prepared* prepared_ = nullptr;
  std::vector<Span> parameters_, results_;
  std::vector<c10::IValue> constants_;  // of the parameters that are no tensors
  std::vector<SavedVariable> saved_;
  std::vector<int32_t> inputs_;  // for each tensor of the results its gradient's index, or -1
};

class RecorderOfTorch final : public Recorder {
 public:
  RecorderOfTorch() { built_for = OPDOCK_TORCH_BUILD OPDOCK_ABI(_GLIBCXX_USE_CXX11_ABI); }

  void* prepare(const Differentiable& op) override { return new Prepared(op); }

  void* begin(void* prepared, const Argument* arguments, size_t count) override {
    auto record = std::make_unique<NodePointer>(make_node<RecordedCall, NodePointer>());
    node(record.get())->begin(static_cast<Prepared*>(prepared), arguments, count);
    return record.release();
  }

  void finish(void* record, AtenTensorOpaque* const* results, const uint32_t* counts) override {
    const std::unique_ptr<NodePointer> owned(static_cast<NodePointer*>(record));
    node(owned.get())->finish(*owned, results, counts);
  }

  void drop(void* record) override { delete static_cast<NodePointer*>(record); }

 private:
  static RecordedCall* node(NodePointer* record) {
    return static_cast<RecordedCall*>(record->get());
  }
};

}  // namespace

}  // namespace opdock::torch

opdock::torch::Recorder* opdock_torch_recorder() {
  static opdock::torch::RecorderOfTorch recorder;
  return &recorder;
}
