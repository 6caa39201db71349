// Checks the lists of tensors that an optimizer's step updates, and its numbers.
// SPDX-License-Identifier: Apache-2.0
#include "lists.h"

#include <algorithm>

namespace optimizer {
namespace {

using opdock::Check;
using opdock::check;
using opdock::Dtype;
using opdock::Error;
using opdock::Tensor;
using opdock::detail::concat;

constexpr Dtype kFloat = opdock::dtype_of<float>();

// Returns whether the tensor has as many elements as there are places from its first to its last
// one. The host has checked that no two elements share a place, so each place then has one.
bool has_no_gaps(Tensor x) {
  if (x.is_contiguous()) return true;
  int64_t places = 1;
  for (int32_t i = 0; i < x.ndim(); ++i) {
    int64_t more = 0;
    if (x.stride(i) < 0 || __builtin_mul_overflow(x.size(i) - 1, x.stride(i), &more) ||
        __builtin_add_overflow(places, more, &places))
      return false;
  }
  return places == x.numel();
}

bool has_strides_of(Tensor x, Tensor other) {
  if (x.is_empty()) return true;
  for (int32_t i = 0; i < x.ndim(); ++i)
    if (x.size(i) != 1 && x.stride(i) != other.stride(i)) return false;
  return true;
}

// Calls body(check, tensor, i) for each tensor. If the body throws, it is called again with the
// tensor's number in its name: names are made only in that case, because lists are long.
template <class Body>
void check_each(const Tensors& list, const char* name, const Body& body) {
  for (size_t i = 0; i < list.size(); ++i) {
    try {
      body(name, list[i], i);
    } catch (const Error&) {
      body(concat(name, "[", i, "]").c_str(), list[i], i);
      throw;
    }
  }
}

void check_params(const Tensors& params, bool is_cpu) {
  check_each(params, "params", [&](const char* name, Tensor x, size_t i) {
    const Check checked = check(x, name);
    if (i > 0) {
      checked.same_dtype_as(params[0], "params[0]");
    } else if (is_cpu) {
      checked.dtype(kFloat, opdock::dtype_of<opdock::half>(), opdock::dtype_of<opdock::bfloat16>(),
                    opdock::dtype_of<double>());
    } else {
      checked.dtype(kFloat, opdock::dtype_of<opdock::half>(), opdock::dtype_of<opdock::bfloat16>());
    }
    if (!has_no_gaps(x)) checked.contiguous();
    checked.aligned();
  });
}

// Checks a list with a tensor for each parameter; all have the same dtype, which is one of these.
void check_beside(const Tensors& list, const char* name, const Tensors& params,
                  const std::vector<Dtype>& dtypes) {
  if (list.size() != params.size())
    throw Error(OPDOCK_INVALID_ARGUMENT,
                concat("argument '", name, "': found ", list.size(), " tensors, wanted ",
                       params.size(), ", one for each of 'params'"));
  const std::string first = concat(name, "[0]");
  check_each(list, name, [&](const char* one, Tensor x, size_t i) {
    const Check checked = check(x, one);
    if (i > 0) {
      checked.same_dtype_as(list[0], first.c_str());
    } else if (std::find(dtypes.begin(), dtypes.end(), x.dtype()) == dtypes.end()) {
      dtypes.size() == 1 ? checked.dtype(dtypes[0]) : checked.dtype(dtypes[0], dtypes[1]);
    }
    const Tensor param = params[i];
    checked.same_shape_as(param).same_device_as(param);
    if (!has_strides_of(x, param))
      throw Error(OPDOCK_UNSUPPORTED,
                  concat("argument '", one, "': found strides ",
                         opdock::detail::list_text(x.strides(), x.ndim()), ", wanted ",
                         opdock::detail::list_text(param.strides(), param.ndim()), ", as 'params[",
                         i, "]' has; copy it into a tensor like that one"));
    checked.aligned();
  });
}

}  // namespace

void check_lists(const Lists& lists, bool is_cpu) {
  check_params(lists.params, is_cpu);
  const Dtype dtype = lists.params.empty() ? kFloat : lists.params[0].dtype();
  std::vector<Dtype> dtypes = {dtype};
  if (dtype.bytes() == 2) dtypes.push_back(kFloat);
  check_beside(lists.grads, "grads", lists.params, dtypes);
  for (int s = 0; s < 2 && lists.states[s] != nullptr; ++s)
    check_beside(*lists.states[s], lists.state_names[s], lists.params, dtypes);
  if (!lists.params.empty() && lists.states[1] != nullptr)
    check((*lists.states[1])[0], concat(lists.state_names[1], "[0]").c_str())
        .same_dtype_as((*lists.states[0])[0], concat(lists.state_names[0], "[0]").c_str());
  if (lists.masters) {
    if (dtype.bytes() != 2 && !lists.params.empty())
      throw Error(OPDOCK_INVALID_ARGUMENT,
                  concat("argument 'masters': found a list beside params of ", dtype.name(),
                         ", wanted None, as only float16 and bfloat16 have masters; pass the "
                         "float32 weights as 'params' alone"));
    check_beside(*lists.masters, "masters", lists.params, {kFloat});
  }
}

void check_one_number(const OptionalTensor& tensor, const char* name) {
  if (!tensor) return;
  check(*tensor, name).dtype(kFloat).aligned(sizeof(float));
  if (tensor->numel() != 1)
    throw Error(OPDOCK_INVALID_ARGUMENT, concat("argument '", name, "': found shape ",
                                                tensor->shape_text(), ", wanted one element"));
}

void check_scalars(const OptionalTensor& lr_tensor, const OptionalTensor& grad_scale,
                   const OptionalTensor& found_inf) {
  check_one_number(lr_tensor, "lr_tensor");
  check_one_number(grad_scale, "grad_scale");
  check_one_number(found_inf, "found_inf");
}

void check_not_negative(double number, const char* name, const char* usual) {
  if (number >= 0) return;
  opdock::check_number(number, name, false,
                       concat("a number that is not negative; ", usual, " is usual").c_str());
}

void check_beta(double number, const char* name, const char* usual) {
  if (number >= 0 && number < 1) return;
  opdock::check_number(number, name, false,
                       concat("a number from 0 to below 1; ", usual, " is usual").c_str());
}

}  // namespace optimizer
