// SPDX-License-Identifier: Apache-2.0
#include "call/results.h"

#include <algorithm>
#include <new>

#include "base/quantity.h"
#include "call/call.h"
#include "opdock/types.hpp"
#include "schema/dtype.h"

namespace opdock {
namespace {

// A list of tensors that the host owns. The list is the first member, so that its address is the
// address of the whole struct.
struct OwnedList {
  opdock_list list{};
  std::unique_ptr<opdock_value[]> items;
};

opdock_value tensor_value(const opdock_tensor* tensor, uint32_t flags) {
  opdock_value value{};
  value.tag = OPDOCK_TAG_TENSOR;
  value.flags = flags;
  value.as.tensor = tensor;
  return value;
}

bool is_tensor(const opdock_value& value) {
  return value.tag == OPDOCK_TAG_TENSOR && value.as.tensor != nullptr;
}

bool is_writable(const opdock_value& value) {
  return (value.flags & (OPDOCK_VALUE_READ_ONLY | OPDOCK_VALUE_NO_DATA)) == 0;
}

constexpr char kNotWritable[] =
    "found a tensor that is read-only or has no data, wanted one that may be written; pass "
    "another";

}  // namespace

opdock_status count_results(Invocation* in, const opdock_value* args) {
  const Schema& schema = in->function.schema();
  const std::vector<ShapeRule>& rules = in->target->rules;
  if (rules.size() != in->function.fresh()) {
    return in->fail(OPDOCK_INTERNAL, "plugin \"" + in->target->plugin + "\" has " +
                                         quantity(rules.size(), "shape rule") + ", wanted " +
                                         std::to_string(in->function.fresh()) +
                                         "; report it to the plugin's author");
  }
  in->tensors = 0;
  size_t rule = 0;
  for (uint32_t i = 0; i < in->function.num_results(); ++i) {
    in->counts[i] = 0;
    if (!schema.returns[i].is_fresh_tensor()) continue;
    std::string problem;
    if (!count_tensors(rules[rule++], schema, {args, in->function.num_params()}, &in->counts[i],
                       &problem)) {
      return in->fail(OPDOCK_INVALID_ARGUMENT, problem);
    }
    in->tensors += in->counts[i];
  }
  return OPDOCK_OK;
}

opdock_status ResultSet::refuse(uint32_t i, const std::string& text) {
  return in_.fail(OPDOCK_INVALID_ARGUMENT, "result " + std::to_string(i) + ": " + text);
}

// Reads the caller's value of result `i`, which has `n` fresh tensors, into to[0 … n).
opdock_status ResultSet::take_one(uint32_t i, bool may_lack, opdock_tensor** to) {
  const opdock_value& value = callers_[i];
  const uint32_t n = in_.tensors_of(i);
  const bool is_list = (in_.function.results()[i].flags & OPDOCK_PARAM_LIST) != 0;
  if (value.tag == OPDOCK_TAG_NONE && (may_lack || (n == 0 && !is_list))) {
    std::fill_n(to, n, nullptr);
    return OPDOCK_OK;
  }
  if (is_list) {
    const opdock_list* list = value.tag == OPDOCK_TAG_LIST ? value.as.list : nullptr;
    if (list == nullptr || list->count != n || (list->data == nullptr && n != 0)) {
      return refuse(i, "found " +
                           (list == nullptr ? std::string(tag_text(value.tag))
                                            : "a list of " + std::to_string(list->count)) +
                           ", wanted a list of " + std::to_string(n) +
                           " tensors, as planned; pass such a list");
    }
    for (uint32_t k = 0; k < n; ++k) {
      if (!is_tensor(list->data[k])) {
        return refuse(i, "element " + std::to_string(k) + ": found " +
                             std::string(tag_text(list->data[k].tag)) +
                             ", wanted a tensor; pass one");
      }
      if (!is_writable(list->data[k])) return refuse(i, kNotWritable);
      to[k] = const_cast<opdock_tensor*>(list->data[k].as.tensor);
    }
    return OPDOCK_OK;
  }
  if (n == 0 || !is_tensor(value)) {
    return refuse(i, "found " + std::string(tag_text(value.tag)) +
                         (n == 0 ? ", wanted None, as nothing is returned for these arguments; "
                                   "pass None"
                                 : ", wanted a tensor, as planned; pass one"));
  }
  if (!is_writable(value)) return refuse(i, kNotWritable);
  to[0] = const_cast<opdock_tensor*>(value.as.tensor);
  return OPDOCK_OK;
}

opdock_status ResultSet::take(const opdock_plan& plan, bool may_lack, const ErrorBuffer& error) {
  const opdock_function& function = in_.function;
  if (count_ != function.num_results() || (callers_ == nullptr && count_ != 0)) {
    error.write(function.schema().name,
                ": found room for " + quantity(count_, "result") + ", wanted " +
                    std::to_string(function.num_results()) +
                    ", one for each that the schema returns; pass that many");
    return OPDOCK_INVALID_ARGUMENT;
  }
  if (in_.tensors > kMaxReturns) {
    many_ = std::make_unique<opdock_tensor*[]>(in_.tensors);
    tensors_ = many_.get();
  }
  if (plan.num_outputs != in_.tensors) {
    return in_.fail(OPDOCK_INVALID_ARGUMENT, "found a plan of " + std::to_string(plan.num_outputs) +
                                                 " fresh tensors, wanted one of " +
                                                 std::to_string(in_.tensors) +
                                                 ", for these arguments; plan first");
  }
  opdock_tensor** to = tensors_;
  for (uint32_t i = 0; i < count_; ++i) {
    if (!function.schema().returns[i].is_fresh_tensor()) continue;
    const opdock_status status = take_one(i, may_lack, to);
    if (status != OPDOCK_OK) return status;
    to += in_.tensors_of(i);
  }
  const opdock_status status =
      check_outputs(function, *in_.target, plan, tensors_, in_.tensors, may_lack, error);
  const TensorRules* const rules = in_.target->tensor_rules.get();
  if (status != OPDOCK_OK || rules == nullptr || !rules->binds_results()) return status;
  return check_rules(*rules);
}

// Checks the caller's tensors by the op's rules; the host's own are contiguous.
opdock_status ResultSet::check_rules(const TensorRules& rules) {
  uint32_t output = 0;
  try {
    for (uint32_t i = 0; i < count_; ++i) {
      if (!in_.function.schema().returns[i].is_fresh_tensor()) continue;
      for (uint32_t k = 0; k < in_.tensors_of(i); ++k, ++output)
        if (tensors_[output] != nullptr) rules.check_result(i, output, tensors_[output]);
    }
  } catch (const Error& broken) {
    return in_.fail(broken.status(), broken.what());
  }
  return OPDOCK_OK;
}

opdock_status ResultSet::allocate(const opdock_plan& plan, const ErrorBuffer& error) {
  opdock_tensor** at = tensors_;
  const opdock_output* planned = plan.outputs;
  for (uint32_t i = 0; i < count_; ++i) {
    if (!in_.function.schema().returns[i].is_fresh_tensor()) continue;
    const uint32_t n = in_.tensors_of(i);
    const bool is_list = (in_.function.results()[i].flags & OPDOCK_PARAM_LIST) != 0;
    if (callers_[i].tag == OPDOCK_TAG_NONE && (n != 0 || is_list)) {
      OwnedList* list = nullptr;
      if (is_list) {
        list = new OwnedList;
        own_[i] = {OPDOCK_TAG_LIST, OPDOCK_VALUE_OWNED, {.list = &list->list}};
        made_ |= 1u << i;
        has_made_ = true;
        list->items = std::make_unique<opdock_value[]>(n);
        list->list.data = list->items.get();
      }
      for (uint32_t k = 0; k < n; ++k) {
        const Status made = allocate_output(*in_.target, in_.call.stream, planned[k], &at[k]);
        if (!made.ok()) {
          const size_t number = static_cast<size_t>(planned - plan.outputs) + k;
          error.write(in_.function.schema().name,
                      ": output " + std::to_string(number) + ": " + made.text);
          return made.status;
        }
        if (is_list) {
          list->items[k] = tensor_value(at[k], OPDOCK_VALUE_OWNED);
          list->list.count = k + 1;
        } else {
          own_[i] = tensor_value(at[k], OPDOCK_VALUE_OWNED);
          made_ |= 1u << i;
          has_made_ = true;
        }
      }
    }
    at += n;
    planned += n;
  }
  return OPDOCK_OK;
}

opdock_value* ResultSet::for_run(const opdock_value* args) {
  for (uint32_t i = 0; i < count_; ++i) {
    const opdock_result& result = in_.function.results()[i];
    const bool is_made = (made_ >> i & 1) != 0;
    if (result.param >= 0) {
      own_[i] = args[result.param];
      own_[i].flags &= ~OPDOCK_VALUE_OWNED;  // only the argument's holder frees it
    } else if (result.tag != OPDOCK_TAG_TENSOR) {
      own_[i] = {};
    } else if (!is_made) {
      own_[i] = callers_[i];  // keeps its flags, because an earlier call may have allocated it
    }
  }
  return own_;
}

opdock_status ResultSet::hand_over(opdock_status status) {
  for (uint32_t i = 0; i < count_ && !in_.function.returns_tensors(); ++i) {
    const opdock_result& result = in_.function.results()[i];
    if (result.tag == OPDOCK_TAG_TENSOR) continue;
    opdock_value& value = own_[i];
    const bool is_object =
        value.tag == OPDOCK_TAG_OBJECT && value.as.object != nullptr && is_whole(*value.as.object);
    if (is_object) {
      value.flags = OPDOCK_VALUE_OWNED;
      made_ |= 1u << i;
      has_made_ = true;
    }
    if (status != OPDOCK_OK) continue;
    bool is_good = value.tag == result.tag;
    if (result.tag == OPDOCK_TAG_OBJECT) {
      is_good = is_object && value.as.object->type_id != nullptr &&
                std::string_view(value.as.object->type_id) == result.object_type;
    }
    if (!is_good) {
      status = in_.fail(OPDOCK_INTERNAL, "run of plugin \"" + in_.target->plugin + "\" left " +
                                             name_of(value) + " as result " + std::to_string(i) +
                                             ", wanted " +
                                             to_text(in_.function.schema().returns[i].type) +
                                             "; report it to the plugin's author");
    }
  }
  if (status != OPDOCK_OK) return status;
  for (uint32_t i = 0; i < count_; ++i) callers_[i] = own_[i];
  has_made_ = false;
  return OPDOCK_OK;
}

void ResultSet::release() {
  for (uint32_t i = 0; i < count_; ++i) {
    if ((made_ >> i & 1) != 0) free_value(&own_[i]);
  }
}

void free_value(opdock_value* value) {
  if (value == nullptr || (value->flags & OPDOCK_VALUE_OWNED) == 0) return;
  if (value->tag == OPDOCK_TAG_TENSOR) {
    free_output(const_cast<opdock_tensor*>(value->as.tensor));
  } else if (value->tag == OPDOCK_TAG_LIST) {
    const std::unique_ptr<OwnedList> owned(
        reinterpret_cast<OwnedList*>(const_cast<opdock_list*>(value->as.list)));
    for (uint64_t i = 0; i < owned->list.count; ++i) free_value(&owned->items[i]);
  } else if (value->tag == OPDOCK_TAG_OBJECT && value->as.object != nullptr) {
    value->as.object->release(value->as.object);
  }
  *value = {};
}

}  // namespace opdock
