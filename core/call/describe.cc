// SPDX-License-Identifier: Apache-2.0
#include "call/describe.h"

namespace opdock {
namespace {

uint32_t flags_of(const SchemaType& type) {
  uint32_t flags = 0;
  if (type.optional) flags |= OPDOCK_PARAM_OPTIONAL;
  if (type.list) flags |= OPDOCK_PARAM_LIST;
  if (type.optional_element) flags |= OPDOCK_PARAM_OPTIONAL_ELEMENTS;
  return flags;
}

const char* object_of(const SchemaType& type) {
  return type.object.empty() ? nullptr : type.object.c_str();
}

}  // namespace

Description::Description(const Schema& schema, Declared declared)
    : declared_(std::move(declared)), schema_text_(schema.text()) {
  add_params(schema);
  add_results(schema);
  add_gradients();
  for (const Declared::Device& device : declared_.devices) {
    devices_.push_back(
        {device.type, static_cast<uint32_t>(device.dtypes.size()), device.dtypes.data()});
  }
  info_.struct_size = sizeof info_;
  info_.flags = declared_.flags;
  info_.name = schema.name.c_str();
  info_.schema = schema_text_.c_str();
  info_.num_params = static_cast<uint32_t>(params_.size());
  info_.num_results = static_cast<uint32_t>(results_.size());
  info_.params = params_.data();
  info_.results = results_.data();
  info_.device_arg = declared_.device_arg;
  info_.num_devices = static_cast<uint32_t>(devices_.size());
  info_.devices = devices_.data();
  info_.gradients = gradients_.data();
  info_.num_gradients = static_cast<uint32_t>(gradients_.size());
}

void Description::add_params(const Schema& schema) {
  for (const SchemaParam& from : schema.params) {
    opdock_param param{};
    param.name = from.name.c_str();
    param.tag = from.type.tag;
    param.flags = flags_of(from.type);
    if (from.type.alias != 0) param.flags |= OPDOCK_PARAM_WRITTEN;
    if (from.keyword_only) param.flags |= OPDOCK_PARAM_KEYWORD_ONLY;
    if (from.fallback) {
      param.flags |= OPDOCK_PARAM_HAS_DEFAULT;
      param.fallback = constant(*from.fallback);
    }
    param.object_type = object_of(from.type);
    if (params_.size() < declared_.arg_devices.size()) {
      param.device = declared_.arg_devices[params_.size()];
    }
    params_.push_back(param);
  }
}

void Description::add_results(const Schema& schema) {
  size_t rule = 0;
  for (const SchemaReturn& from : schema.returns) {
    opdock_result result{};
    result.tag = from.type.tag;
    result.flags = flags_of(from.type);
    result.param = from.param;
    result.object_type = object_of(from.type);
    if (from.is_fresh_tensor() && rule < declared_.rules.size()) {
      result.shape_rule = &declared_.rules[rule++].view();
    }
    results_.push_back(result);
  }
}

void Description::add_gradients() {
  for (const Gradient& from : declared_.gradients) {
    std::vector<opdock_gradient_arg> args;
    for (const GradientArg& arg : from.args) {
      args.push_back({arg.kind, arg.index, constant(arg.constant)});
    }
    gradient_args_.push_back(std::move(args));
    opdock_gradient gradient{};
    gradient.num_params = static_cast<uint32_t>(from.params.size());
    gradient.params = from.params.data();
    gradient.results = from.results.data();
    gradient.num_args = static_cast<uint32_t>(gradient_args_.back().size());
    gradient.args = gradient_args_.back().data();
    gradient.op = from.op.empty() ? nullptr : from.op.c_str();
    gradient.why = from.op.empty() ? from.why.c_str() : nullptr;
    gradients_.push_back(gradient);
  }
}

opdock_value Description::constant(const SchemaDefault& from) {
  opdock_value value{};
  value.tag = from.tag;
  switch (from.tag) {
    case OPDOCK_TAG_BOOL:
    case OPDOCK_TAG_INT:
      value.as.i64 = from.integer;
      break;
    case OPDOCK_TAG_FLOAT:
      value.as.f64 = from.real;
      break;
    case OPDOCK_TAG_COMPLEX:
      complexes_.push_back({from.real, 0.0});
      value.as.c128 = complexes_.back().data();
      break;
    case OPDOCK_TAG_STRING:
      strings_.push_back({from.text.data(), from.text.size()});
      value.as.str = &strings_.back();
      break;
    case OPDOCK_TAG_LIST: {
      std::vector<opdock_value> elements;
      for (const SchemaDefault& item : from.items) elements.push_back(constant(item));
      items_.push_back(std::move(elements));
      lists_.push_back({items_.back().data(), items_.back().size()});
      value.as.list = &lists_.back();
      break;
    }
    default:
      break;
  }
  return value;
}

}  // namespace opdock
