// SPDX-License-Identifier: Apache-2.0
#include "call/function.h"

#include "base/mutex.h"
#include "base/turn.h"
#include "call/dtype.h"

using opdock::ErrorBuffer;
using opdock::Schema;
using opdock::SchemaDefault;
using opdock::SchemaParam;
using opdock::Target;

namespace {

uint32_t quick_tags_of(const opdock_param& param) {
  uint32_t tags = (param.flags & OPDOCK_PARAM_OPTIONAL) != 0 ? 1u << OPDOCK_NONE : 0;
  if ((param.flags & OPDOCK_PARAM_LIST) != 0) return tags;
  switch (param.tag) {  // those of other tags have a pointer to look at
    case OPDOCK_BOOL:
    case OPDOCK_INT:
    case OPDOCK_FLOAT:
    case OPDOCK_DTYPE:
    case OPDOCK_DEVICE:
    case OPDOCK_TENSOR:
    case OPDOCK_STREAM:
      return tags | 1u << param.tag;
    default:
      return tags;
  }
}

}  // namespace

opdock_function::opdock_function(std::string name, Schema schema, opdock::Resolver* resolver)
    : name_(std::move(name)),
      schema_(std::move(schema)),
      schema_text_(schema_.text()),
      digest_(schema_.digest()),
      resolver_(resolver),
      num_params_(static_cast<uint32_t>(schema_.params.size())),
      fresh_(static_cast<uint32_t>(schema_.fresh_outputs())) {
  for (const SchemaParam& from : schema_.params) {
    opdock_param param{};
    param.name = from.name.c_str();
    param.tag = from.type.tag;
    if (from.type.optional) param.flags |= OPDOCK_PARAM_OPTIONAL;
    if (from.type.list) param.flags |= OPDOCK_PARAM_LIST;
    if (from.type.optional_element) param.flags |= OPDOCK_PARAM_OPTIONAL_ELEMENTS;
    if (from.type.alias != 0) {
      param.flags |= OPDOCK_PARAM_WRITTEN;
      writes_ = true;
    }
    if (from.keyword_only) param.flags |= OPDOCK_PARAM_KEYWORD_ONLY;
    if (from.fallback) {
      param.flags |= OPDOCK_PARAM_HAS_DEFAULT;
      param.fallback = fallback(*from.fallback);
    }
    params_.push_back(param);
  }
  for (const opdock_param& param : params_)
    quick_tags_.push_back(writes_ ? 0 : quick_tags_of(param));
}

opdock_value opdock_function::fallback(const SchemaDefault& from) {
  opdock_value value{};
  value.tag = from.tag;
  switch (from.tag) {
    case OPDOCK_BOOL:
    case OPDOCK_INT:
      value.as.i64 = from.integer;
      break;
    case OPDOCK_FLOAT:
      value.as.f64 = from.real;
      break;
    case OPDOCK_COMPLEX:
      complexes_.push_back({from.real, 0.0});
      value.as.c128 = complexes_.back().data();
      break;
    case OPDOCK_STRING:
      strings_.push_back({from.text.data(), from.text.size()});
      value.as.str = &strings_.back();
      break;
    case OPDOCK_LIST: {
      std::vector<opdock_value> elements;
      for (const SchemaDefault& item : from.items) elements.push_back(fallback(item));
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

const char* opdock_function::doc() const {
  const opdock::Taken turn(&doc_turn_);
  if (!turn) return "";
  if (!doc_known_) {
    std::string text = resolver_->doc(*this);
    const opdock::NoFork whole;
    doc_ = std::move(text);
    doc_known_ = true;
  }
  return doc_.c_str();
}

Target* opdock_function::resolve(opdock_device device, opdock_status* status,
                                 const ErrorBuffer& error) const {
  std::string problem;
  std::atomic<Target*>* slot = this->slot(device);
  if (slot == nullptr) {
    *status = OPDOCK_INVALID_ARGUMENT;
    error.write(name_, ": found ",
                opdock::to_text(device) + ", wanted cpu, cuda:0 to 63 or rocm:0 to 63");
    return nullptr;
  }
  *status = OPDOCK_INCOMPATIBLE;
  Target* found = resolver_->resolve(*this, device, status, &problem);
  if (found == nullptr) {
    error.write(name_, ": ", problem);
    return nullptr;
  }
  slot->store(found, std::memory_order_release);
  return found;
}
