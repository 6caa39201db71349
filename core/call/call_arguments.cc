// Checks of a call's arguments that need no knowledge of the op.
// SPDX-License-Identifier: Apache-2.0
#include "base/quantity.h"
#include "call/call.h"
#include "call/tensor_arguments.h"
#include "call/tensor_check.h"
#include "schema/dtype.h"

namespace opdock {
namespace {

constexpr uint32_t kList = OPDOCK_PARAM_LIST;

struct Refusal {
  const opdock_function& function;
  opdock_status* status;
  const ErrorBuffer& error;

  [[gnu::cold, gnu::noinline]] Target* operator()(opdock_status why, ArgumentPlace place,
                                                  const std::string& text) const {
    *status = why;
    error.write(function.schema().name, ": ", name_of(function, place) + ": " + text);
    return nullptr;
  }
};

// Checks that the tensors that the op writes are writable and that no two elements of one of them
// overlap. check_sharing() checks before run that they share memory with no other tensor: while
// planning there may be no memory yet.
[[gnu::noinline]] bool check_written(const opdock_function& function, const opdock_value* args,
                                     const Refusal& refuse) {
  const opdock_param* params = function.params();
  return each_tensor(function, args, [&](ArgumentPlace place, const opdock_value& written) {
    if ((params[place.param].flags & OPDOCK_PARAM_WRITTEN) == 0) return true;
    if ((written.flags & OPDOCK_VALUE_READ_ONLY) != 0) {
      refuse(OPDOCK_INVALID_ARGUMENT, place,
             "found a read-only tensor, wanted one that may be written; copy it");
      return false;
    }
    const opdock_tensor& x = *written.as.tensor;
    const std::string overlap = self_overlap(x.ndim, x.shape, x.strides);
    if (overlap.empty()) return true;
    refuse(OPDOCK_INVALID_ARGUMENT, place, overlap + ", and the op writes it; copy it");
    return false;
  });
}

// The first tensor on the op's device. The others must lie on the same device, except the ones
// declared to lie elsewhere.
struct Anchor {
  const opdock_tensor* tensor = nullptr;
  ArgumentPlace place{0};
};

constexpr opdock_device kCpuDevice{OPDOCK_CPU, 0};

[[gnu::cold, gnu::noinline]] void refuse_tensor(const Refusal& refuse, ArgumentPlace place,
                                                const opdock_value& value, const Anchor& anchor) {
  const opdock_tensor* x = value.as.tensor;
  const uint32_t where = refuse.function.params()[place.param].device;
  TensorProblem problem = check_tensor(x, value.flags);
  if (problem != TensorProblem::kNone) {
    refuse(OPDOCK_INVALID_ARGUMENT, place, describe(problem, x));
  } else if (where == OPDOCK_ON_CPU && !same(x->device, kCpuDevice)) {
    refuse(OPDOCK_INVALID_ARGUMENT, place,
           "found it on " + to_text(x->device) +
               ", wanted it on the CPU, as the op declares it; move it there");
  } else if (where == OPDOCK_ON_OP_DEVICE && anchor.tensor != nullptr &&
             !same(x->device, anchor.tensor->device)) {
    refuse(OPDOCK_INVALID_ARGUMENT, place,
           "found it on " + to_text(x->device) + ", wanted " + to_text(anchor.tensor->device) +
               ", where " + name_of(refuse.function, anchor.place) + " is; move one of the two");
  } else {
    refuse(OPDOCK_INVALID_ARGUMENT, place,
           "found a shape without data, wanted memory, as the op is to run; pass a real tensor");
  }
}

inline bool good_tensor(const opdock_value& value, uint32_t where, bool planning,
                        ArgumentPlace place, Anchor* anchor) {
  const opdock_tensor* x = value.as.tensor;
  if (check_tensor(x, value.flags) != TensorProblem::kNone) return false;
  if ((value.flags & OPDOCK_VALUE_NO_DATA) != 0 && !planning) return false;
  if (where != OPDOCK_ON_OP_DEVICE) return where == OPDOCK_ON_ANY || same(x->device, kCpuDevice);
  if (anchor->tensor == nullptr) {
    anchor->tensor = x;
    anchor->place = place;
    return true;
  }
  return same(x->device, anchor->tensor->device);
}

// Checks an argument that is not a plain tensor. Returns false and writes an error if it does not
// fit.
[[gnu::noinline]] bool check_other(const opdock_value& value, size_t at, bool planning,
                                   Anchor* anchor, const Refusal& refuse) {
  const opdock_param& param = refuse.function.params()[at];
  if (!fits(value, param)) {
    refuse(OPDOCK_INVALID_ARGUMENT, place_of(at),
           misfit(value, param, refuse.function.schema().params[at].type));
    return false;
  }
  if (value.tag != OPDOCK_TAG_LIST || param.tag != OPDOCK_TAG_TENSOR) return true;
  for (uint64_t k = 0; k < value.as.list->count; ++k) {
    const opdock_value& element = value.as.list->data[k];
    const ArgumentPlace place = place_of(at, k);
    if (element.tag == OPDOCK_TAG_TENSOR &&
        !good_tensor(element, param.device, planning, place, anchor)) {
      refuse_tensor(refuse, place, element, *anchor);
      return false;
    }
  }
  return true;
}

// Returns where an op without a tensor argument runs: on the device it was given, else on the CPU.
opdock_device device_without_tensor(const opdock_value* args, uint32_t num_args) {
  for (uint32_t i = 0; i < num_args; ++i) {
    if (args[i].tag == OPDOCK_TAG_DEVICE) return args[i].as.device;
  }
  return {OPDOCK_CPU, 0};
}

[[gnu::cold, gnu::noinline]] Target* refuse_count(const Refusal& refuse, uint32_t num_args) {
  *refuse.status = OPDOCK_INVALID_ARGUMENT;
  refuse.error.write(refuse.function.schema().name,
                     ": found " + quantity(num_args, "argument") + ", wanted all " +
                         std::to_string(refuse.function.num_params()) +
                         " of the schema; opdock_bind fills in defaults");
  return nullptr;
}

[[gnu::cold, gnu::noinline]] Target* refuse_dtype(const Refusal& refuse, const Target& target,
                                                  const Anchor& deciding) {
  std::string wanted;
  for (opdock_dtype known : target.dtypes) {
    if (!wanted.empty()) wanted += ", ";
    wanted += to_text(known);
  }
  return refuse(
      OPDOCK_UNSUPPORTED, deciding.place,
      "found dtype " + to_text(deciding.tensor->dtype) + ", wanted " + wanted + "; convert it");
}

}  // namespace

Target* check_arguments(const opdock_function& function, const opdock_value* args,
                        uint32_t num_args, bool planning, opdock_status* status,
                        const ErrorBuffer& error) {
  const Refusal refuse{function, status, error};
  const size_t count = function.num_params();
  if (num_args != count || (args == nullptr && num_args != 0)) {
    return refuse_count(refuse, num_args);
  }
  const opdock_param* params = function.params();
  Anchor anchor;
  for (size_t i = 0; i < count; ++i) {
    if (args[i].tag == OPDOCK_TAG_TENSOR && params[i].tag == OPDOCK_TAG_TENSOR &&
        (params[i].flags & kList) == 0) {
      if (good_tensor(args[i], params[i].device, planning, place_of(i), &anchor)) continue;
      refuse_tensor(refuse, place_of(i), args[i], anchor);
      return nullptr;
    }
    if (!check_other(args[i], i, planning, &anchor, refuse)) return nullptr;
  }
  const opdock_device device =
      anchor.tensor != nullptr ? anchor.tensor->device : device_without_tensor(args, num_args);
  Target* target = function.target(device, status, error);
  if (target == nullptr) return nullptr;
  // The note lists the dtypes of the deciding tensor.
  const size_t deciding = target->op->device_arg;
  if (deciding < count && args[deciding].tag == OPDOCK_TAG_TENSOR) {
    anchor = {args[deciding].as.tensor, place_of(deciding)};
  }
  if (anchor.tensor != nullptr && !target->takes(anchor.tensor->dtype)) {
    return refuse_dtype(refuse, *target, anchor);
  }
  if (function.writes() && !check_written(function, args, refuse)) return nullptr;
  return target;
}

Target* recheck_arguments(const opdock_function& function, const opdock_value* args,
                          uint32_t num_args, opdock_status* status, const ErrorBuffer& error) {
  const size_t count = function.num_params();
  const opdock_param* params = function.params();
  const opdock_tensor* first = nullptr;
  bool doubtful = num_args != count || args == nullptr || function.writes();
  for (size_t i = 0; !doubtful && i < count; ++i) {
    if (args[i].tag != OPDOCK_TAG_TENSOR) {
      const bool left_out =
          args[i].tag == OPDOCK_TAG_NONE && (params[i].flags & OPDOCK_PARAM_OPTIONAL) != 0;
      doubtful = args[i].tag != params[i].tag && !left_out;
      continue;
    }
    const opdock_tensor* x = args[i].as.tensor;
    doubtful = (args[i].flags & OPDOCK_VALUE_NO_DATA) != 0 || x == nullptr || x->data == nullptr ||
               params[i].device != OPDOCK_ON_OP_DEVICE;
    if (first == nullptr) first = x;
  }
  if (doubtful || first == nullptr) {
    return check_arguments(function, args, num_args, false, status, error);
  }
  return function.target(first->device, status, error);
}

}  // namespace opdock
