// SPDX-License-Identifier: Apache-2.0
#include "call/function.h"

#include <cstdio>

#include "base/fork_aware_lock.h"
#include "base/mutex.h"
#include "schema/dtype.h"

using opdock::ErrorBuffer;
using opdock::Schema;
using opdock::Target;

namespace {

uint32_t quick_tags_of(const opdock_param& param) {
  uint32_t tags = (param.flags & OPDOCK_PARAM_OPTIONAL) != 0 ? 1u << OPDOCK_TAG_NONE : 0;
  if ((param.flags & OPDOCK_PARAM_LIST) != 0) return tags;
  switch (param.tag) {  // values of other tags contain a pointer, which has to be checked
    case OPDOCK_TAG_BOOL:
    case OPDOCK_TAG_INT:
    case OPDOCK_TAG_FLOAT:
    case OPDOCK_TAG_DTYPE:
    case OPDOCK_TAG_DEVICE:
    case OPDOCK_TAG_TENSOR:
    case OPDOCK_TAG_STREAM:
      return tags | 1u << param.tag;
    default:
      return tags;
  }
}

}  // namespace

opdock_function::opdock_function(std::string name, Schema schema, opdock::Resolver* resolver,
                                 opdock::Declared declared)
    : name_(std::move(name)),
      schema_(std::move(schema)),
      digest_(schema_.digest()),
      resolver_(resolver),
      description_(schema_, std::move(declared)),
      num_params_(static_cast<uint32_t>(schema_.params.size())),
      num_results_(static_cast<uint32_t>(schema_.returns.size())),
      fresh_(static_cast<uint32_t>(schema_.fresh_results())),
      is_variable_(schema_.is_variable()),
      returns_tensors_(fresh_ == num_results_ && !is_variable_) {
  bool is_plain = true;
  for (uint32_t i = 0; i < num_params_; ++i) {
    writes_ = writes_ || (params()[i].flags & OPDOCK_PARAM_WRITTEN) != 0;
    is_plain = is_plain && params()[i].device == OPDOCK_ON_OP_DEVICE;
  }
  for (uint32_t i = 0; i < num_params_; ++i) {
    quick_tags_.push_back(writes_ || !is_plain ? 0 : quick_tags_of(params()[i]));
  }
}

const char* opdock_function::loaded(
    LoadedText* text, std::string (opdock::Resolver::*find)(const opdock_function&)) const {
  const opdock::ForkAwareGuard guard(&texts_lock_);
  if (!guard) return "";
  if (!text->is_known) {
    std::string found = (resolver_->*find)(*this);
    const opdock::NoFork no_fork;
    text->text = std::move(found);
    text->is_known = true;
  }
  return text->text.c_str();
}

const char* opdock_function::doc() const {
  return loaded(&doc_, &opdock::Resolver::doc);
}

const char* opdock_function::formula() const {
  return loaded(&formula_, &opdock::Resolver::formula);
}

void opdock::Resolver::log(int32_t level, const char* message) {
  if (level >= 2) std::fprintf(stderr, "opdock: %s\n", message);
}

Target* opdock_function::resolve(opdock_device device, opdock_status* status,
                                 const ErrorBuffer& error) const {
  std::atomic<Target*>* slot = this->slot(device);
  if (slot == nullptr) {
    *status = OPDOCK_INVALID_ARGUMENT;
    error.write(name_, ": found ",
                opdock::to_text(device) +
                    ", wanted cpu, cuda:0 to 63 or rocm:0 to 63; move the "
                    "arguments to one of these");
    return nullptr;
  }
  Target* found = nullptr;
  const opdock::Status resolved = resolver_->resolve(*this, device, &found);
  if (!resolved.ok()) {
    *status = resolved.status;
    error.write(name_, ": ", resolved.text);
    return nullptr;
  }
  slot->store(found, std::memory_order_release);
  return found;
}
