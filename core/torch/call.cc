// Implements a call of an operator through torch's stable interface: its arguments become Opdock's.
// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <exception>
#include <new>

#include "argument_error.h"
#include "call_memory.h"
#include "call_python.h"
#include "call_record.h"
#include "error.h"
#include "operator.h"
#include "record.h"
#include "run.h"
#include "state.h"
#include "tensors.h"

namespace opdock::torch {

namespace {

class Call {
 public:
  Call(const Operator& called, Level level, StableIValue* stack)
      : op_(called), level_(level), stack_(stack) {}
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() {
    if (takes_arguments_) {
      for (const Owned* one = arguments_; one != nullptr; one = one->next) release(*one);
    }
  }

  // Converts the arguments. Returns false if one is not plain; all are the caller's then.
  bool convert() {
    converted_.values = arena_.take<opdock_value>(op_.info->num_params);
    if (op_.parameters.size() != op_.info->num_params)
      std::memset(static_cast<void*>(converted_.values), 0,
                  sizeof(opdock_value) * op_.info->num_params);
    for (const Parameter& parameter : op_.parameters) {
      opdock_value* value = &converted_.values[parameter.index];
      *value = {};
      if (!convert(parameter, stack_[place_++], value)) return false;
    }
    takes_arguments_ = true;
    return true;
  }

  void run() {
    if (op_.is_written) mark_written();
    if (is_recorded_) [[unlikely]]
      begin_record();
    opdock::torch::run(op_, &arena_, &converted_);
    give_back();
  }

 private:
  [[noreturn]] void refuse(const Parameter& parameter, const char* what) {
    // All arguments are the call's: those that have not been converted yet too.
    takes_arguments_ = true;
    for (; place_ < op_.parameters.size(); ++place_)
      own_argument(op_.parameters[place_], stack_[place_]);
    fail(OPDOCK_INVALID_ARGUMENT, argument_error(op_, parameter, what));
  }

  void own(Owned::Kind kind, StableIValue value) {
    Owned* const one = arena_.take<Owned>(1);
    *one = {arguments_, value, kind};
    arguments_ = one;
  }

  // Owns all that an argument consists of.
  void own_argument(const Parameter& parameter, StableIValue given) {
    given = unwrap(parameter.is_optional, given);
    if (given == 0 && parameter.is_optional) return;
    if (parameter.is_list) return own_list(parameter, given);
    own_one(parameter, given);
  }

  void own_list(const Parameter& parameter, StableIValue given) {
    own(Owned::kList, given);
    size_t count = 0;
    torch_list_size(reinterpret_cast<StableListHandle>(given), &count);
    for (size_t i = 0; i < count; ++i)
      own_one(parameter, unwrap(parameter.has_optional_elements, element(given, i)));
  }

  void own_one(const Parameter& parameter, StableIValue given) {
    if (given == 0) return;
    if (parameter.tag == OPDOCK_TAG_TENSOR) own(Owned::kTensor, given);
    if (parameter.tag == OPDOCK_TAG_STRING) own(Owned::kString, given);
  }

  // Returns what is at the address that an optional value is, which is owned then; 0 if absent.
  StableIValue unwrap(bool is_optional, StableIValue given) {
    if (!is_optional || given == 0) return given;
    own(Owned::kAddress, given);
    return *reinterpret_cast<const StableIValue*>(given);
  }

  // Returns an element of a list. What it consists of is not freed with the list.
  static StableIValue element(StableIValue list, size_t i) {
    StableIValue item = 0;
    torch_list_get_item(reinterpret_cast<StableListHandle>(list), i, &item);
    return item;
  }

  bool convert(const Parameter& parameter, StableIValue given, opdock_value* out) {
    if (parameter.is_optional && given == 0) return true;
    given = unwrap(parameter.is_optional, given);
    if (parameter.is_list) return convert_list(parameter, given, out);
    own_one(parameter, given);
    return convert_one(parameter, given, out);
  }

  [[gnu::noinline]] bool convert_list(const Parameter& parameter, StableIValue given,
                                      opdock_value* out) {
    own_list(parameter, given);
    size_t count = 0;
    torch_list_size(reinterpret_cast<StableListHandle>(given), &count);
    opdock_value* const items = arena_.take<opdock_value>(count + 1);
    for (size_t i = 0; i < count; ++i) {
      items[i] = {};
      StableIValue item = element(given, i);
      if (parameter.has_optional_elements) {
        if (item == 0) continue;
        item = *reinterpret_cast<const StableIValue*>(item);
      }
      if (!convert_one(parameter, item, &items[i])) return false;
    }
    opdock_list* const list = arena_.take<opdock_list>(1);
    *list = {items, count};
    out->tag = OPDOCK_TAG_LIST;
    out->as.list = list;
    return true;
  }

  bool convert_one(const Parameter& parameter, StableIValue given, opdock_value* out) {
    out->tag = parameter.tag;
    switch (parameter.tag) {
      case OPDOCK_TAG_TENSOR:
        return convert_tensor(parameter, reinterpret_cast<AtenTensorHandle>(given), out);
      case OPDOCK_TAG_BOOL:
        out->as.i64 = (given & 1) != 0 ? 1 : 0;
        return true;
      case OPDOCK_TAG_STRING: {
        opdock_string* const text = arena_.take<opdock_string>(1);
        const auto handle = reinterpret_cast<StringHandle>(given);
        size_t size = 0;
        if (torch_string_length(handle, &size) != 0 || torch_string_c_str(handle, &text->data) != 0)
          refuse(parameter, "found a text that torch does not show");
        text->size = size;
        out->as.str = text;
        return true;
      }
      case OPDOCK_TAG_DTYPE:
        if (!to_dtype(static_cast<int32_t>(given), &out->as.dtype))
          refuse(parameter, kUnknownDtype);
        return true;
      case OPDOCK_TAG_DEVICE:
        out->as.device =
            to_device(static_cast<int32_t>(given >> 32), static_cast<int32_t>(given & 0xffffffff));
        return true;
      default:  // an int or a float: its bits
        out->as.i64 = static_cast<int64_t>(given);
        return true;
    }
  }

  bool convert_tensor(const Parameter& parameter, AtenTensorHandle handle, opdock_value* out) {
    if (level_ == Level::kAutograd) {
      const Need need = need_of(handle);
      if (need != Need::kNothing) [[unlikely]] {
        if (need == Need::kPython || op_.recorded == nullptr || !uses_recorder) return false;
        is_recorded_ = true;
      }
    }
    if (op_.refuses_gradients && requires_gradient(handle)) {
      refuse(
          parameter,
          "found a tensor that requires a gradient, wanted one that does not, as libopdock_torch "
          "alone records no gradients; call it under torch::NoGradGuard, or from Python");
    }
    opdock_tensor* const tensor = arena_.take<opdock_tensor>(1);
    if (!to_tensor(handle, parameter.is_written, tensor)) [[unlikely]] {
      refuse(parameter, kUnreadableTensor);
    }
    out->as.tensor = tensor;
    converted_.see(parameter, tensor->device);
    return true;
  }

  // Raises the versions of the tensors that the op writes into: autograd notices writes by them.
  [[gnu::noinline]] void mark_written() {
    size_t place = 0;
    for (const Parameter& parameter : op_.parameters) {
      const opdock_value& value = converted_.values[parameter.index];
      StableIValue given = stack_[place++];
      if (!parameter.is_written || value.tag == OPDOCK_TAG_NONE) continue;
      if (parameter.is_optional) given = *reinterpret_cast<const StableIValue*>(given);
      if (!parameter.is_list) {
        mark_written(parameter, reinterpret_cast<AtenTensorHandle>(given));
        continue;
      }
      for (uint64_t i = 0; i < value.as.list->count; ++i) {
        StableIValue item = element(given, i);
        if (parameter.has_optional_elements && item != 0)
          item = *reinterpret_cast<const StableIValue*>(item);
        if (item != 0) mark_written(parameter, reinterpret_cast<AtenTensorHandle>(item));
      }
    }
  }

  void mark_written(const Parameter& parameter, AtenTensorHandle tensor) {
    try {
      functions().bump_version(tensor);
    } catch (const std::exception&) {
      refuse(parameter, kInferenceTensor);
    }
  }

  [[gnu::noinline]] void begin_record() {
    const size_t count = op_.parameters.size();
    Argument* const arguments = arena_.take<Argument>(count);
    for (size_t place = 0; place < count; ++place) {
      const Parameter& parameter = op_.parameters[place];
      arguments[place] =
          recorded_argument(parameter, converted_.values[parameter.index], stack_[place], &arena_);
    }
    converted_.record = recorder->begin(op_.recorded, arguments, count);
  }

  // Leaves the results in the stack.
  void give_back() {
    const AtenTensorHandle* next = converted_.fresh;
    const uint32_t* const counts = converted_.counts;
    size_t place = 0;
    for (const Result& result : op_.results) {
      const uint32_t count = counts == nullptr ? 1 : counts[result.index];
      StableIValue& out = stack_[place++];
      if (result.is_list) {
        StableListHandle list = nullptr;
        if (torch_new_list_reserve_size(count, &list) != 0) throw std::bad_alloc();
        for (uint32_t k = 0; k < count; ++k)
          torch_list_push_back(list, reinterpret_cast<StableIValue>(next[k]));
        out = reinterpret_cast<StableIValue>(list);
      } else if (result.is_optional) {
        out = count == 0 ? 0
                         : reinterpret_cast<StableIValue>(
                               new StableIValue(reinterpret_cast<StableIValue>(*next)));
      } else {
        out = reinterpret_cast<StableIValue>(*next);
      }
      next += count;
    }
  }

  const Operator& op_;
  const Level level_;
  StableIValue* const stack_;
  Converted converted_;
  Owned* arguments_ = nullptr;  // handles that torch has passed
  size_t place_ = 0;            // of the next argument to convert
  bool takes_arguments_ = false;
  bool is_recorded_ = false;  // a gradient of the call may be asked for
  Arena arena_;
};

}  // namespace

void call(const Operator& op, Level level, StableIValue* stack) {
  if (level == Level::kAutograd && !is_plain_thread()) [[unlikely]]
    return call_python(op, stack);
  Call one(op, level, stack);
  if (!one.convert()) [[unlikely]]
    return call_python(op, stack);
  one.run();
}

}  // namespace opdock::torch
