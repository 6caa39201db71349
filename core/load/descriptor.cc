// SPDX-License-Identifier: Apache-2.0
#include "load/descriptor.h"

#include <cstddef>
#include <map>
#include <string>

#include "base/mutex.h"
#include "base/sha256.h"
#include "fmt/format.h"

namespace opdock {
namespace {

// Everything an op must have: the first draft's members. Later ones are optional.
constexpr uint32_t kOpSize = offsetof(opdock_op, run) + sizeof(opdock_op::run);
constexpr uint32_t kPluginSize = offsetof(opdock_plugin, ops) + sizeof(opdock_plugin::ops);

const std::map<std::string, uint32_t>& flag_bits() {
  const NoFork whole;
  static const std::map<std::string, uint32_t> bits = {
      {"thread-safe", OPDOCK_OP_THREAD_SAFE}, {"capture-safe", OPDOCK_OP_CAPTURE_SAFE},
      {"in-place", OPDOCK_OP_IN_PLACE},       {"deterministic", OPDOCK_OP_DETERMINISTIC},
      {"may-block", OPDOCK_OP_MAY_BLOCK},     {"may-allocate", OPDOCK_OP_MAY_ALLOCATE},
      {"host-sync", OPDOCK_OP_HOST_SYNC},
  };
  return bits;
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
    if (descriptor_.abi_major != OPDOCK_ABI_MAJOR) {
      reasons_->push_back(make_reason(
          Code::kAbiMajor,
          fmt::format("ABI {}.{} in the descriptor", descriptor_.abi_major, descriptor_.abi_minor),
          fmt::format("ABI {}.x", OPDOCK_ABI_MAJOR)));
      return;
    }
    require(descriptor_.name, "opdock_plugin.name");
    require(descriptor_.version, "opdock_plugin.version");
    if (descriptor_.num_ops != 0) require(descriptor_.ops, "opdock_plugin.ops");
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
    require(op->plan, where + "plan");
    require(op->run, where + "run");
    if (op->num_shape_rules != 0) require(op->shape_rules, where + "shape_rules");
    if (is_valid_) compare_op(*op, claim, where);
    is_valid_ = was_valid && is_valid_;
  }

  void compare_op(const opdock_op& op, const OpClaim& claim, const std::string& where) {
    if (to_hex(sha256(std::string_view(op.schema))) != claim.digest) {
      mismatch(where + "schema " + op.schema,
               where + claim.schema + " with digest " + claim.digest);
    }
    uint32_t flags = 0;
    for (const std::string& flag : claim.flags) {
      const auto known = flag_bits().find(flag);
      if (known != flag_bits().end()) flags |= known->second;
    }
    if (op.flags != flags) {
      mismatch(fmt::format("{}flags {:#x}", where, op.flags), fmt::format("{:#x}", flags));
    }
    if (op.num_shape_rules != claim.shape_rules.size()) {
      mismatch(fmt::format("{}{} shape rules", where, op.num_shape_rules),
               fmt::format("{}", claim.shape_rules.size()));
    } else {
      for (uint32_t i = 0; i < op.num_shape_rules; ++i) {
        compare(where + "shape rule", text_or_null(op.shape_rules[i]), claim.shape_rules[i]);
      }
    }
    const std::string backward = op.backward == nullptr ? "" : op.backward;
    if (backward != claim.backward) {
      mismatch(fmt::format("{}backward \"{}\"", where, backward),
               fmt::format("\"{}\"", claim.backward));
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
