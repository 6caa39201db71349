// SPDX-License-Identifier: Apache-2.0
#include "load/descriptor.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>

#include "base/sha256.h"
#include "fmt/format.h"
#include "schema/op_flags.h"
#include "schema/schema.h"

namespace opdock {
namespace {

// The sizes up to the last required member: the first draft's members are required, later ones are
// optional.
constexpr uint32_t kOpSize = offsetof(opdock_op, run) + sizeof(opdock_op::run);
constexpr uint32_t kPluginSize = offsetof(opdock_plugin, ops) + sizeof(opdock_plugin::ops);

const char* formula_of(const opdock_op& op) {
  return OPDOCK_HAS(&op, opdock_op, formula) ? op.formula : nullptr;
}

uint32_t num_tensor_rules(const opdock_op& op) {
  return OPDOCK_HAS(&op, opdock_op, tensor_rules) ? op.num_tensor_rules : 0;
}

std::string text_or_null(const char* text) {
  return text == nullptr ? "NULL" : text;
}

class Checker {
 public:
  Checker(const opdock_plugin& descriptor, const Note& note, std::vector<Reason>* reasons)
      : descriptor_(descriptor), note_(note), reasons_(reasons) {}

  void check() {
    if (descriptor_.struct_size < kPluginSize) {
      invalid(fmt::format("opdock_plugin.struct_size {}", descriptor_.struct_size),
              fmt::format("at least {}", kPluginSize));
      return;
    }
    if (!is_callable_abi(descriptor_.abi_major, descriptor_.abi_minor)) {
      reasons_->push_back(
          make_reason(Code::kAbiMajor,
                      abi_text(descriptor_.abi_major, descriptor_.abi_minor) + " in the descriptor",
                      callable_abi_text()));
      return;
    }
    require(descriptor_.name, "opdock_plugin.name");
    require(descriptor_.version, "opdock_plugin.version");
    if (descriptor_.num_ops != 0) require(descriptor_.ops, "opdock_plugin.ops");
    if (num_kernels() != 0) require(descriptor_.kernels, "opdock_plugin.kernels");
    for (uint32_t i = 0; is_valid_ && i < num_kernels(); ++i) {
      require(descriptor_.kernels[i], fmt::format("opdock_plugin.kernels[{}]", i));
    }
    if (!is_valid_) return;
    compare("name", descriptor_.name, note_.name);
    const std::optional<Version> version = Version::parse(descriptor_.version);
    if (!version || *version != note_.version) {
      mismatch("version " + std::string(descriptor_.version), "version " + note_.version.text());
    }
    if (descriptor_.num_ops != note_.ops.size()) {
      mismatch(fmt::format("{} ops", descriptor_.num_ops), fmt::format("{}", note_.ops.size()));
      return;
    }
    for (uint32_t i = 0; i < descriptor_.num_ops; ++i) check_op(i);
  }

 private:
  uint32_t num_kernels() const {
    return OPDOCK_HAS(&descriptor_, opdock_plugin, num_kernels) ? descriptor_.num_kernels : 0;
  }

  void invalid(std::string found, std::string wanted) {
    is_valid_ = false;
    reasons_->push_back(make_reason(Code::kDescriptorInvalid, std::move(found), std::move(wanted)));
  }

  void mismatch(std::string found, std::string wanted) {
    reasons_->push_back(
        make_reason(Code::kDescriptorMismatch, std::move(found), wanted + ", as the note says"));
  }

  template <typename Pointer>
  void require(Pointer pointer, const std::string& what) {
    if (pointer == nullptr) invalid(what + " is NULL", "a pointer");
  }

  void compare(const std::string& what, const std::string& found, const std::string& wanted) {
    if (found != wanted) mismatch(what + " " + found, what + " " + wanted);
  }

  void check_op(uint32_t index) {
    const opdock_op* op = descriptor_.ops[index];
    const OpClaim& claim = note_.ops[index];
    const std::string where = fmt::format("op {}: ", claim.name);
    require(op, where + "its descriptor");
    if (op == nullptr) return;
    if (op->struct_size < kOpSize) {
      invalid(fmt::format("{}opdock_op.struct_size {}", where, op->struct_size),
              fmt::format("at least {}", kOpSize));
      return;
    }
    const bool was_valid = is_valid_;
    is_valid_ = true;
    require(op->schema, where + "schema");
    require(op->doc, where + "doc");
    if (formula_of(*op) == nullptr) {
      require(op->plan, where + "plan");
      require(op->run, where + "run");
    }
    if (op->num_shape_rules != 0) require(op->shape_rules, where + "shape_rules");
    if (op->num_gradients != 0) require(op->gradients, where + "gradients");
    for (uint32_t i = 0; i < num_tensor_rules(*op); ++i) {
      require(op->tensor_rules == nullptr ? nullptr : op->tensor_rules[i],
              fmt::format("{}tensor_rules[{}]", where, i));
      if (op->tensor_rules == nullptr) break;
    }
    if (is_valid_) compare_op(*op, claim, where);
    is_valid_ = was_valid && is_valid_;
  }

  void compare_op(const opdock_op& op, const OpClaim& claim, const std::string& where) {
    if (to_hex(sha256(std::string_view(op.schema))) != claim.digest) {
      mismatch(where + "schema " + op.schema,
               where + claim.schema + " with digest " + claim.digest);
    }
    const uint32_t flags = op_flag_bits(claim.flags);
    if (op.flags != flags) {
      mismatch(fmt::format("{}flags {:#x}", where, op.flags), fmt::format("{:#x}", flags));
    }
    compare_texts(where, "shape rule", op.shape_rules, op.num_shape_rules, claim.shape_rules);
    compare_texts(where, "gradient", op.gradients, op.num_gradients, claim.gradients);
    compare_arguments(op, claim, where);
  }

  void compare_texts(const std::string& where, const std::string& what, const char* const* texts,
                     uint32_t count, const std::vector<std::string>& claimed) {
    if (count != claimed.size()) {
      return mismatch(fmt::format("{}{} {}s", where, count, what),
                      fmt::format("{}", claimed.size()));
    }
    for (uint32_t i = 0; i < count; ++i) compare(where + what, text_or_null(texts[i]), claimed[i]);
  }

  void compare_arguments(const opdock_op& op, const OpClaim& claim, const std::string& where) {
    const std::optional<Schema> schema = parse_schema(op.schema, nullptr);
    if (!schema) return;  // reported when the op is requested
    // If the note names no device_arg, it is the first tensor.
    const bool is_named = !claim.device_arg.empty();
    const int deciding = is_named ? schema->find(claim.device_arg) : schema->first_tensor();
    if ((is_named && deciding < 0) ||
        std::max(deciding, 0) != static_cast<int64_t>(op.device_arg)) {
      std::string wanted = "0, as there is no tensor";
      if (deciding >= 0) {
        const std::string& name = schema->params[static_cast<size_t>(deciding)].name;
        wanted = fmt::format("{}, the parameter {}", deciding, name);
      } else if (is_named) {
        wanted = "of a parameter " + claim.device_arg;
      }
      mismatch(fmt::format("{}device_arg {}", where, op.device_arg),
               where + "device_arg " + wanted);
    }
    for (size_t i = 0; i < schema->params.size(); ++i) {
      const std::string& param = schema->params[i].name;
      const uint32_t found = op.arg_devices == nullptr ? OPDOCK_ON_OP_DEVICE : op.arg_devices[i];
      uint32_t claimed = OPDOCK_ON_OP_DEVICE;
      for (const auto& [name, device] : claim.elsewhere) {
        for (const OpFlag& known : kArgDevices) {
          if (name == param && known.name == device) claimed = known.bit;
        }
      }
      if (found != claimed) {
        mismatch(fmt::format("{}arg_devices {} for {}", where, found, param),
                 fmt::format("{}{}", where, claimed));
      }
    }
  }

  const opdock_plugin& descriptor_;
  const Note& note_;
  std::vector<Reason>* reasons_;
  bool is_valid_ = true;
};

}  // namespace

bool check_descriptor(const opdock_plugin& descriptor, const Note& note,
                      std::vector<Reason>* reasons) {
  const size_t before = reasons->size();
  Checker(descriptor, note, reasons).check();
  return reasons->size() == before;
}

}  // namespace opdock
