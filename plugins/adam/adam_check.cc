// Checks the arguments of adam_ and adamw_.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "adam_job.h"

namespace adam {
namespace {

using opdock::Check;
using opdock::check;
using opdock::check_number;
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

void check_one_number(const OptionalTensor& x, const char* name) {
  if (!x) return;
  check(*x, name).dtype(kFloat).aligned(sizeof(float));
  if (x->numel() != 1)
    throw Error(OPDOCK_INVALID_ARGUMENT, concat("argument '", name, "': found shape ",
                                                x->shape_text(), ", wanted one element"));
}

}  // namespace

void check_arguments(const Arguments& a, bool is_cpu) {
  check_params(a.params, is_cpu);
  const Dtype dtype = a.params.empty() ? kFloat : a.params[0].dtype();

  std::vector<Dtype> dtypes = {dtype};
  if (dtype.bytes() == 2) dtypes.push_back(kFloat);
  check_beside(a.grads, "grads", a.params, dtypes);
  check_beside(a.exp_avgs, "exp_avgs", a.params, dtypes);
  check_beside(a.exp_avg_sqs, "exp_avg_sqs", a.params, dtypes);
  if (!a.params.empty())
    check(a.exp_avg_sqs[0], "exp_avg_sqs[0]").same_dtype_as(a.exp_avgs[0], "exp_avgs[0]");
  if (a.masters) {
    if (dtype.bytes() != 2 && !a.params.empty())
      throw Error(OPDOCK_INVALID_ARGUMENT,
                  concat("argument 'masters': found a list beside params of ", dtype.name(),
                         ", wanted None, as only float16 and bfloat16 have masters; pass the "
                         "float32 weights as 'params' alone"));
    check_beside(*a.masters, "masters", a.params, {kFloat});
  }
  check_one_number(a.step, "step");
  check_one_number(a.lr_tensor, "lr_tensor");
  check_one_number(a.grad_scale, "grad_scale");
  check_one_number(a.found_inf, "found_inf");
  check_number(a.lr, "lr", a.lr >= 0, "a number that is not negative; 1e-3 is usual");
  check_number(a.beta1, "beta1", a.beta1 >= 0 && a.beta1 < 1,
               "a number from 0 to below 1; 0.9 is usual");
  check_number(a.beta2, "beta2", a.beta2 >= 0 && a.beta2 < 1,
               "a number from 0 to below 1; 0.999 is usual");
  check_number(a.eps, "eps", a.eps >= 0, "a number that is not negative; 1e-8 is usual");
  check_number(a.weight_decay, "weight_decay", a.weight_decay >= 0,
               "a number that is not negative; 1e-2 is usual");
}

}  // namespace adam
