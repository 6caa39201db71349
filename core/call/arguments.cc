// Checks of the arguments of a call: everything about them that needs no knowledge of the op.
// SPDX-License-Identifier: Apache-2.0
#include "call/call.h"
#include "call/dtype.h"
#include "call/tensor_check.h"

namespace opdock {
namespace {

constexpr uint32_t kList = OPDOCK_PARAM_LIST;

// A tensor among the arguments; element -1 unless it stands in a list.
struct Place {
  size_t param;
  int64_t element = -1;
};

struct Refusal {
  const opdock_function& function;
  opdock_status* status;
  ErrorBuffer error;

  std::string name(Place place) const {
    std::string text = "'" + function.schema().params[place.param].name + "'";
    if (place.element >= 0) text = "element " + std::to_string(place.element) + " of " + text;
    return text;
  }
  [[gnu::cold, gnu::noinline]] Target* operator()(opdock_status why, Place place,
                                                  const std::string& text) const {
    *status = why;
    error.write(function.schema().name, ": argument ", name(place) + ": " + text);
    return nullptr;
  }
};

// Visits every tensor of the arguments with its place and flags; f returns false to stop.
template <class F>
bool each_tensor(const opdock_function& function, const opdock_value* args, F&& f) {
  const std::vector<opdock_param>& params = function.params();
  for (size_t i = 0; i < params.size(); ++i) {
    if (args[i].tag == OPDOCK_TENSOR) {
      if (!f(Place{i}, args[i])) return false;
    } else if (args[i].tag == OPDOCK_LIST && params[i].tag == OPDOCK_TENSOR) {
      for (uint64_t k = 0; k < args[i].as.list->count; ++k) {
        const opdock_value& element = args[i].as.list->data[k];
        if (element.tag == OPDOCK_TENSOR && !f(Place{i, static_cast<int64_t>(k)}, element)) {
          return false;
        }
      }
    }
  }
  return true;
}

// Tensors that the op writes may share memory with no other argument, except with the very same
// tensor if the op is in-place.
[[gnu::noinline]] bool check_written(const opdock_function& function, const Target& target,
                                     const opdock_value* args, const Refusal& refuse) {
  const std::vector<opdock_param>& params = function.params();
  return each_tensor(function, args, [&](Place place, const opdock_value& written) {
    if ((params[place.param].flags & OPDOCK_PARAM_WRITTEN) == 0) return true;
    if ((written.flags & OPDOCK_VALUE_READ_ONLY) != 0) {
      refuse(OPDOCK_INVALID_ARGUMENT, place,
             "found a read-only tensor, wanted one that may be written; copy it");
      return false;
    }
    const opdock_tensor& x = *written.as.tensor;
    if (may_overlap_itself(x.ndim, x.shape, x.strides)) {
      refuse(OPDOCK_INVALID_ARGUMENT, place,
             "found strides " + shape_text(x.ndim, x.strides) + " for shape " +
                 shape_text(x.ndim, x.shape) +
                 ", by which several elements share an address, and the op writes it; copy it");
      return false;
    }
    if ((written.flags & OPDOCK_VALUE_NO_DATA) != 0) return true;
    return each_tensor(function, args, [&](Place other, const opdock_value& value) {
      if ((other.param == place.param && other.element == place.element) ||
          (value.flags & OPDOCK_VALUE_NO_DATA) != 0 || !may_share_memory(x, *value.as.tensor) ||
          (target.has_flag(OPDOCK_OP_IN_PLACE) && same_view(x, *value.as.tensor))) {
        return true;
      }
      refuse(OPDOCK_INVALID_ARGUMENT, place,
             "found memory shared with argument " + refuse.name(other) +
                 ", wanted memory of its own, as the op writes it; copy one of the two");
      return false;
    });
  });
}

bool has_dtype(const Target& target, opdock_dtype dtype) {
  if (target.dtypes.empty()) return true;
  for (opdock_dtype known : target.dtypes) {
    if (same(known, dtype)) return true;
  }
  return false;
}

}  // namespace

Target* check_arguments(const opdock_function& function, const opdock_value* args,
                        uint32_t num_args, bool planning, opdock_status* status,
                        ErrorBuffer error) {
  const Refusal refuse{function, status, error};
  const std::vector<opdock_param>& params = function.params();
  if (num_args != params.size() || (args == nullptr && num_args != 0)) {
    *status = OPDOCK_INVALID_ARGUMENT;
    error.write(function.schema().name, ": found " + std::to_string(num_args) +
                                            " arguments, wanted all " +
                                            std::to_string(params.size()) +
                                            " of the schema; opdock_bind fills in defaults");
    return nullptr;
  }
  const opdock_tensor* anchor = nullptr;  // the first tensor: all others must be on its device
  Place anchor_place{0};
  bool written = false;
  const opdock_value* device_value = nullptr;
  auto check_one = [&](Place place, const opdock_value& value) {
    const opdock_tensor* x = value.as.tensor;
    TensorProblem problem = check_tensor(x, value.flags);
    if (problem != TensorProblem::kNone) {
      refuse(OPDOCK_INVALID_ARGUMENT, place, describe(problem, x));
      return false;
    }
    if ((value.flags & OPDOCK_VALUE_NO_DATA) != 0 && !planning) {
      refuse(OPDOCK_INVALID_ARGUMENT, place,
             "found a shape without data, wanted memory, as the op is to run; pass a real tensor");
      return false;
    }
    if (anchor == nullptr) {
      anchor = x;
      anchor_place = place;
    } else if (!same(x->device, anchor->device)) {
      refuse(OPDOCK_INVALID_ARGUMENT, place,
             "found it on " + to_text(x->device) + ", wanted " + to_text(anchor->device) +
                 ", where argument " + refuse.name(anchor_place) + " is; move one of the two");
      return false;
    }
    return true;
  };
  for (size_t i = 0; i < params.size(); ++i) {
    const opdock_value& value = args[i];
    const opdock_param& param = params[i];
    written = written || (param.flags & OPDOCK_PARAM_WRITTEN) != 0;
    if (value.tag == OPDOCK_TENSOR && param.tag == OPDOCK_TENSOR && (param.flags & kList) == 0) {
      if (!check_one(Place{i}, value)) return nullptr;
      continue;
    }
    if (!fits(value, param)) {
      return refuse(OPDOCK_INVALID_ARGUMENT, Place{i},
                    misfit(value, param, function.schema().params[i].type));
    }
    if (value.tag == OPDOCK_LIST && param.tag == OPDOCK_TENSOR) {
      for (uint64_t k = 0; k < value.as.list->count; ++k) {
        const opdock_value& element = value.as.list->data[k];
        if (element.tag == OPDOCK_TENSOR &&
            !check_one(Place{i, static_cast<int64_t>(k)}, element)) {
          return nullptr;
        }
      }
    }
    if (value.tag == OPDOCK_DEVICE && device_value == nullptr) device_value = &value;
  }
  // Where the op runs: with its tensors; without one, on the device it was given; else the CPU.
  opdock_device device{OPDOCK_CPU, 0};
  if (anchor != nullptr) {
    device = anchor->device;
  } else if (device_value != nullptr) {
    device = device_value->as.device;
  }
  Target* target = function.target(device, status, error);
  if (target == nullptr) return nullptr;

  // The dtypes that the note lists are those of the deciding tensor.
  size_t deciding = target->op->device_arg;
  if (deciding < params.size() && args[deciding].tag == OPDOCK_TENSOR) {
    anchor = args[deciding].as.tensor;
    anchor_place = Place{deciding};
  }
  if (anchor != nullptr && !has_dtype(*target, anchor->dtype)) {
    std::string wanted;
    for (opdock_dtype known : target->dtypes)
      wanted += (wanted.empty() ? "" : ", ") + to_text(known);
    return refuse(OPDOCK_UNSUPPORTED, anchor_place,
                  "found dtype " + to_text(anchor->dtype) + ", wanted " + wanted + "; convert it");
  }
  if (written && !check_written(function, *target, args, refuse)) return nullptr;
  return target;
}

}  // namespace opdock
