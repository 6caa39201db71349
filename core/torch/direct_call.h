// A call of an operator through torch's C++ interface: its arguments, which stay on torch's stack,
// become Opdock's.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <torch/csrc/autograd/variable.h>

#include <cstring>
#include <exception>
#include <string>
#include <type_traits>

#include "argument_error.h"
#include "direct.h"
#include "direct_memory.h"
#include "recorder.h"
#include "state.h"

namespace opdock::torch {

inline const DirectHost* host = nullptr;  // set before there is an operator

// Returns what has to see this tensor.
inline Need need_of(const at::Tensor& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if ((impl.key_set().raw_repr() & ~host->layout->allowed) != 0) return Need::kPython;
  if (impl.autograd_meta() == nullptr) return Need::kNothing;
  if (tensor._fw_grad(0).defined()) return Need::kPython;
  return c10::GradMode::is_enabled() && impl.requires_grad() ? Need::kRecord : Need::kNothing;
}

// Describes a tensor, whose shape and strides stay torch's. Returns false if torch cannot, or for a
// device or dtype that Opdock does not have.
inline bool to_tensor(const at::Tensor& tensor, bool written, opdock_tensor* out) {
  try {
    const at::IntArrayRef sizes = tensor.sizes();
    if (sizes.size() > OPDOCK_MAX_NDIM ||
        !host->to_dtype(static_cast<int32_t>(tensor.scalar_type()), &out->dtype))
      return false;
    const at::Device device = tensor.device();
    out->ndim = static_cast<int32_t>(sizes.size());
    out->shape = const_cast<int64_t*>(sizes.data());
    out->strides = const_cast<int64_t*>(tensor.strides().data());
    out->byte_offset = 0;
    out->data = written ? tensor.mutable_data_ptr() : const_cast<void*>(tensor.const_data_ptr());
    out->device = device.is_cpu()
                      ? opdock_device{OPDOCK_CPU, 0}
                      : host->to_device(static_cast<int32_t>(device.type()), device.index());
    return out->device.type != 0;
  } catch (const std::exception&) {
    return false;
  }
}

class DirectCall {
 public:
  // arguments: on torch's stack, where they stay until the call is over.
  DirectCall(const Operator& op, Level level, const c10::IValue* arguments)
      : op_(op), level_(level), arguments_(arguments) {}
  DirectCall(const DirectCall&) = delete;
  DirectCall& operator=(const DirectCall&) = delete;

  // Converts the arguments. Returns false if one is not plain.
  bool convert() {
    values_ = arena_.take<opdock_value>(op_.info->num_params);
    if (op_.parameters.size() != op_.info->num_params)
      std::memset(static_cast<void*>(values_), 0, sizeof(opdock_value) * op_.info->num_params);
    const c10::IValue* given = arguments_;
    for (const Parameter& parameter : op_.parameters) {
      opdock_value* const value = &values_[parameter.index];
      *value = {};
      if (!convert(parameter, *given++, value)) return false;
    }
    converted_.values = values_;
    return true;
  }

  void run() {
    if (op_.is_written) mark_written();
    if (is_recorded_) [[unlikely]]
      begin_record();
    host->run(op_, &arena_, &converted_);
  }

  // Leaves the results on the stack in place of the arguments.
  void give_back(::torch::jit::Stack* stack) {
    ::torch::jit::drop(*stack, op_.parameters.size());
    const AtenTensorHandle* next = converted_.fresh;
    for (const Result& result : op_.results) {
      const uint32_t count = converted_.counts == nullptr ? 1 : converted_.counts[result.index];
      if (result.is_list) {
        c10::List<at::Tensor> list;
        list.reserve(count);
        for (uint32_t k = 0; k < count; ++k) list.push_back(take(next[k]));
        stack->emplace_back(std::move(list));
      } else if (count == 0) {
        stack->emplace_back();
      } else {
        stack->emplace_back(take(*next));
      }
      next += count;
    }
  }

 private:
  [[noreturn]] void refuse(const Parameter& parameter, const char* what) const {
    host->fail(OPDOCK_INVALID_ARGUMENT, argument_error(op_, parameter, what));
    std::terminate();  // fail() throws
  }

  static bool is_absent(const Parameter& parameter, const c10::IValue& given) {
    return given.isNone() ||
           (parameter.is_optional && given.isTensor() && !given.toTensor().defined());
  }

  bool convert(const Parameter& parameter, const c10::IValue& given, opdock_value* out) {
    if (is_absent(parameter, given)) return true;
    return parameter.is_list ? convert_list(parameter, given, out)
                             : convert_one(parameter, given, out);
  }

  [[gnu::noinline]] bool convert_list(const Parameter& parameter, const c10::IValue& given,
                                      opdock_value* out) {
    const at::ArrayRef<c10::IValue> elements = given.toListRef();
    opdock_value* const items = arena_.take<opdock_value>(elements.size() + 1);
    for (size_t i = 0; i < elements.size(); ++i) {
      items[i] = {};
      if (!elements[i].isNone() && !convert_one(parameter, elements[i], &items[i])) return false;
    }
    opdock_list* const list = arena_.take<opdock_list>(1);
    *list = {items, elements.size()};
    out->tag = OPDOCK_TAG_LIST;
    out->as.list = list;
    return true;
  }

  bool convert_one(const Parameter& parameter, const c10::IValue& given, opdock_value* out) {
    out->tag = parameter.tag;
    switch (parameter.tag) {
      case OPDOCK_TAG_TENSOR:
        return convert_tensor(parameter, given.toTensor(), out);
      case OPDOCK_TAG_BOOL:
        if (!given.isBool()) return take_symbol(given.toSymBool(), &out->as.i64);
        out->as.i64 = given.toBool() ? 1 : 0;
        return true;
      case OPDOCK_TAG_INT:
        if (!given.isInt()) return take_symbol(given.toSymInt(), &out->as.i64);
        out->as.i64 = given.toInt();
        return true;
      case OPDOCK_TAG_FLOAT:
        if (!given.isDouble()) return take_symbol(given.toSymFloat(), &out->as.f64);
        out->as.f64 = given.toDouble();
        return true;
      case OPDOCK_TAG_STRING: {
        opdock_string* const text = arena_.take<opdock_string>(1);
        const std::string& chars = given.toStringRef();
        *text = {chars.data(), chars.size()};
        out->as.str = text;
        return true;
      }
      case OPDOCK_TAG_DTYPE:
        if (!host->to_dtype(static_cast<int32_t>(given.toInt()), &out->as.dtype))
          refuse(parameter, kUnknownDtype);
        return true;
      default: {  // a device
        const at::Device device = given.toDevice();
        out->as.device = host->to_device(static_cast<int32_t>(device.type()), device.index());
        return true;
      }
    }
  }

  // Takes the number of a symbol where the call has passed autograd, as torch's own kernels do. A
  // symbol is Python's before.
  template <typename Symbol, typename Number>
  bool take_symbol(const Symbol& symbol, Number* out) const {
    if (level_ == Level::kAutograd) return false;
    if constexpr (std::is_same_v<Symbol, c10::SymInt>) {
      *out = symbol.guard_int(__FILE__, __LINE__);
    } else if constexpr (std::is_same_v<Symbol, c10::SymFloat>) {
      *out = symbol.guard_float(__FILE__, __LINE__);
    } else {
      *out = symbol.guard_bool(__FILE__, __LINE__) ? 1 : 0;
    }
    return true;
  }

  bool convert_tensor(const Parameter& parameter, const at::Tensor& given, opdock_value* out) {
    if (level_ == Level::kAutograd) {
      const Need need = need_of(given);
      if (need != Need::kNothing) [[unlikely]] {
        if (need == Need::kPython || op_.recorded == nullptr || !*host->uses_recorder) return false;
        is_recorded_ = true;
      }
    }
    opdock_tensor* const tensor = arena_.take<opdock_tensor>(1);
    if (!to_tensor(given, parameter.is_written, tensor)) [[unlikely]]
      refuse(parameter, kUnreadableTensor);
    out->as.tensor = tensor;
    converted_.see(parameter, tensor->device);
    return true;
  }

  void mark_written() const {
    const c10::IValue* given = arguments_;
    for (const Parameter& parameter : op_.parameters) {
      const c10::IValue& one = *given++;
      if (!parameter.is_written || is_absent(parameter, one)) continue;
      if (!parameter.is_list) {
        mark_written(parameter, one.toTensor());
        continue;
      }
      for (const c10::IValue& element : one.toListRef()) {
        if (!element.isNone()) mark_written(parameter, element.toTensor());
      }
    }
  }

  // Raises the version of a tensor that the op writes into: autograd notices writes by it.
  void mark_written(const Parameter& parameter, const at::Tensor& tensor) const {
    try {
      ::torch::autograd::impl::bump_version(tensor);
    } catch (const std::exception&) {
      refuse(parameter, kInferenceTensor);
    }
  }

  [[gnu::noinline]] void begin_record() {
    const size_t count = op_.parameters.size();
    Argument* const recorded = arena_.take<Argument>(count);
    for (size_t place = 0; place < count; ++place)
      recorded[place] = recorded_argument(op_.parameters[place], arguments_[place]);
    converted_.record = opdock_torch_recorder()->begin(op_.recorded, recorded, count);
  }

  // Returns an argument as the recorder gets it.
  Argument recorded_argument(const Parameter& parameter, const c10::IValue& given) {
    using Kind = Argument::Kind;
    Argument out;
    if (is_absent(parameter, given)) return out;
    if (parameter.is_list) {
      // Lists of numbers are not recorded (GradientPlans::is_possible).
      if (parameter.tag != OPDOCK_TAG_TENSOR) return out;
      const at::ArrayRef<c10::IValue> elements = given.toListRef();
      AtenTensorHandle* const tensors = arena_.take<AtenTensorHandle>(elements.size());
      for (size_t i = 0; i < elements.size(); ++i) tensors[i] = handle_of(elements[i].toTensor());
      out.kind = Kind::kList;
      out.number = static_cast<int64_t>(elements.size());
      out.tensors = tensors;
      return out;
    }
    switch (parameter.tag) {
      case OPDOCK_TAG_TENSOR:
        out.kind = Kind::kTensor;
        out.tensor = handle_of(given.toTensor());
        break;
      case OPDOCK_TAG_STRING:
        out.kind = Kind::kText;
        out.text = given.toStringRef().data();
        out.number = static_cast<int64_t>(given.toStringRef().size());
        break;
      case OPDOCK_TAG_BOOL:
        out.kind = Kind::kBool;
        out.number = given.toBool() ? 1 : 0;
        break;
      case OPDOCK_TAG_FLOAT: {
        const double value = given.toDouble();
        out.kind = Kind::kFloat;
        std::memcpy(&out.number, &value, sizeof out.number);
        break;
      }
      case OPDOCK_TAG_DEVICE: {
        const at::Device device = given.toDevice();
        out.kind = Kind::kDevice;
        out.number = static_cast<int64_t>(device.type()) << 32 | (device.index() & 0xff);
        break;
      }
      default:
        out.kind = parameter.tag == OPDOCK_TAG_DTYPE ? Kind::kDtype : Kind::kInt;
        out.number = given.toInt();
    }
    return out;
  }

  const Operator& op_;
  const Level level_;
  const c10::IValue* const arguments_;
  opdock_value* values_ = nullptr;
  Converted converted_;
  bool is_recorded_ = false;  // a gradient of the call may be asked for
  Arena arena_;
};

}  // namespace opdock::torch
