// Implements a call of an operator: torch's arguments become Opdock's, the op is planned, torch
// allocates the results, and the op runs.
// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "call_memory.h"
#include "call_python.h"
#include "call_record.h"
#include "error.h"
#include "operator.h"
#include "record.h"
#include "state.h"
#include "tensors.h"

namespace opdock::torch {

namespace {

constexpr size_t kErrorSize = 2048;

class Call {
 public:
  Call(const Operator& called, Level level, StableIValue* stack)
      : op_(called), level_(level), stack_(stack) {
    error_[0] = '\0';
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() {
    if (record_ != nullptr) recorder->drop(record_);
    if (takes_arguments_) {
      for (const Owned* one = arguments_; one != nullptr; one = one->next) release(*one);
    }
  }

  // Converts the arguments. Returns false if one is not plain; all are the caller's then.
  bool convert() {
    values_ = arena_.take<opdock_value>(op_.info->num_params);
    if (op_.parameters.size() != op_.info->num_params)
      std::memset(static_cast<void*>(values_), 0, sizeof(opdock_value) * op_.info->num_params);
    for (const Parameter& parameter : op_.parameters) {
      opdock_value* value = &values_[parameter.index];
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
    const bool on_gpu = gpu_.type != OPDOCK_CPU;
    if (op_.num_fresh == 0 && !on_gpu) return run_directly(nullptr);
    opdock_call_options options = {};
    options.struct_size = sizeof options;
    options.allows_tf32 = python.allows_tf32;
    if (on_gpu) options.stream = current_stream();
    const std::atomic_ref<bool> needs_workspace(op_.needs_workspace);
    if (op_.num_fresh == 0 && !needs_workspace.load(std::memory_order_relaxed))
      return run_directly(&options);
    opdock_plan plan;
    const uint32_t* const counts = make_plan(on_gpu ? &options : nullptr, &plan);
    if (op_.num_fresh == 0 && plan.workspace_bytes == 0)
      needs_workspace.store(false, std::memory_order_relaxed);
    AtenTensorHandle* const fresh = allocate_all(plan);
    AtenTensorHandle workspace = nullptr;
    if (on_gpu && plan.workspace_bytes != 0) workspace = allocate_workspace(plan, &options);
    opdock_value* const results = bind_results(counts);
    const opdock_status status = opdock_run_planned(op_.function, on_gpu ? &options : nullptr,
                                                    &plan, values_, op_.info->num_params, results,
                                                    op_.info->num_results, error_, kErrorSize);
    if (workspace != nullptr) aoti_torch_delete_tensor_object(workspace);
    if (status != OPDOCK_OK) [[unlikely]] {
      drop(fresh, plan.num_outputs);
      fail(status, error_);
    }
    if (record_ != nullptr) [[unlikely]]
      finish_record(fresh, plan.num_outputs, counts);
    give_back(fresh, counts);
  }

 private:
  [[noreturn]] void refuse(const Parameter& parameter, const char* what) {
    // All arguments are the call's: those that have not been converted yet too.
    takes_arguments_ = true;
    for (; place_ < op_.parameters.size(); ++place_)
      own_argument(op_.parameters[place_], stack_[place_]);
    fail(OPDOCK_INVALID_ARGUMENT,
         op_.name + "(): argument '" + op_.info->params[parameter.index].name + "': " + what);
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
          refuse(parameter, "found a dtype that Opdock does not have, wanted one of numbers");
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
      refuse(parameter,
             "found a tensor that Opdock cannot read, wanted dense memory on the CPU or on a GPU, "
             "of at most 16 dimensions and of a dtype of numbers");
    }
    out->as.tensor = tensor;
    if (!has_model_ && parameter.is_on_op_device) {
      has_model_ = true;
      device_ = tensor->device;
    }
    if (tensor->device.type != OPDOCK_CPU && gpu_.type == OPDOCK_CPU) gpu_ = tensor->device;
    return true;
  }

  // Runs a call that needs no memory of torch in one step, which is faster than two.
  void run_directly(const opdock_call_options* options) {
    opdock_value* const results = bind_results(nullptr);
    const opdock_status status = opdock_invoke(op_.function, options, values_, op_.info->num_params,
                                               results, op_.info->num_results, error_, kErrorSize);
    if (status != OPDOCK_OK) [[unlikely]]
      fail(status, error_);
  }

  // Raises the versions of the tensors that the op writes into: autograd notices writes by them.
  [[gnu::noinline]] void mark_written() {
    size_t place = 0;
    for (const Parameter& parameter : op_.parameters) {
      const opdock_value& value = values_[parameter.index];
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
      refuse(parameter,
             "found a tensor that was made in inference mode, wanted one of outside of it, as it "
             "is to be written; pass x.clone(), or call under torch.inference_mode()");
    }
  }

  void* current_stream() {
    void* stream = nullptr;
    const auto ask = gpu_functions().current_stream;
    if (ask == nullptr || ask(gpu_.index, &stream) != 0) {
      fail(OPDOCK_DEVICE_ERROR, op_.name + "(): found no current stream of torch for cuda:" +
                                    std::to_string(gpu_.index) +
                                    ", wanted a torch that was built with CUDA or ROCm");
    }
    return stream;
  }

  // Plans the call; returns the number of fresh tensors of each result, or NULL if each has one.
  const uint32_t* make_plan(const opdock_call_options* options, opdock_plan* plan) {
    uint32_t tensors = op_.num_fresh;
    uint32_t* counts = nullptr;
    opdock_status status = OPDOCK_OK;
    if (op_.is_variable) [[unlikely]] {
      counts = arena_.take<uint32_t>(op_.info->num_results);
      status = opdock_count_results(op_.function, values_, op_.info->num_params, counts, error_,
                                    kErrorSize);
      if (status != OPDOCK_OK) fail(status, error_);
      tensors = 0;
      for (uint32_t i = 0; i < op_.info->num_results; ++i) tensors += counts[i];
    }
    plan->struct_size = sizeof *plan;
    plan->room = tensors;
    plan->outputs = arena_.take<opdock_output>(tensors);
    status = opdock_plan_call(op_.function, options, values_, op_.info->num_params, plan, error_,
                              kErrorSize);
    if (status != OPDOCK_OK) [[unlikely]]
      fail(status, error_);
    return counts;
  }

  static void drop(AtenTensorHandle* handles, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) aoti_torch_delete_tensor_object(handles[i]);
  }

  AtenTensorHandle* allocate_all(const opdock_plan& plan) {
    AtenTensorHandle* const handles = arena_.take<AtenTensorHandle>(plan.num_outputs);
    tensors_ = arena_.take<opdock_tensor>(plan.num_outputs);
    for (uint32_t i = 0; i < plan.num_outputs; ++i) {
      if (allocate(plan.outputs[i], device_, &handles[i], &tensors_[i])) [[likely]]
        continue;
      drop(handles, i);
      fail(OPDOCK_OUT_OF_MEMORY, op_.name + "(): found no memory for a result");
    }
    return handles;
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
    if (!allocate(wanted, gpu_, &handle, &tensor)) return nullptr;
    options->workspace = tensor.data;
    options->workspace_bytes = plan.workspace_bytes;
    return handle;
  }

  opdock_value* bind_results(const uint32_t* counts) {
    opdock_value* const results = arena_.take<opdock_value>(op_.info->num_results);
    for (uint32_t i = 0; i < op_.info->num_results; ++i) results[i] = {};
    opdock_tensor* next = tensors_;
    for (const Result& result : op_.results) {
      opdock_value& value = results[result.index];
      const uint32_t count = counts == nullptr ? 1 : counts[result.index];
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

  [[gnu::noinline]] void begin_record() {
    const size_t count = op_.parameters.size();
    Argument* const arguments = arena_.take<Argument>(count);
    for (size_t place = 0; place < count; ++place) {
      const Parameter& parameter = op_.parameters[place];
      arguments[place] =
          recorded_argument(parameter, values_[parameter.index], stack_[place], &arena_);
    }
    record_ = recorder->begin(op_.recorded, arguments, count);
  }

  [[gnu::noinline]] void finish_record(AtenTensorHandle* fresh, uint32_t num_fresh,
                                       const uint32_t* counts) {
    uint32_t* of_results = nullptr;
    if (counts != nullptr) {
      of_results = arena_.take<uint32_t>(op_.results.size());
      for (size_t place = 0; place < op_.results.size(); ++place)
        of_results[place] = counts[op_.results[place].index];
    }
    try {
      recorder->finish(std::exchange(record_, nullptr), fresh, of_results);
    } catch (...) {
      drop(fresh, num_fresh);
      throw;
    }
  }

  // Leaves the results in the stack.
  void give_back(AtenTensorHandle* next, const uint32_t* counts) {
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
  opdock_value* values_ = nullptr;
  opdock_tensor* tensors_ = nullptr;
  Owned* arguments_ = nullptr;  // handles that torch has passed
  size_t place_ = 0;            // of the next argument to convert
  bool takes_arguments_ = false;
  bool has_model_ = false;
  bool is_recorded_ = false;                // a gradient of the call may be asked for
  void* record_ = nullptr;                  // while the call is recorded
  opdock_device device_ = {OPDOCK_CPU, 0};  // where results are allocated
  opdock_device gpu_ = {OPDOCK_CPU, 0};     // that of the first tensor on a GPU
  Arena arena_;
  char error_[kErrorSize];
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
