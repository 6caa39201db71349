// Finds an op's schema and what its plugins declare; only the documentation and the formula load a
// plugin.
// SPDX-License-Identifier: Apache-2.0
#include "call/host.h"
#include "chain/declared.h"
#include "chain/function_table.h"
#include "formula/formula.h"
#include "load/loader.h"
#include "manifest/formula_parameters.h"
#include "manifest/manifest.h"
#include "schema/op_flags.h"

namespace opdock {
namespace {

using CandidatePtr = std::shared_ptr<const Candidate>;
using SourcePtr = std::shared_ptr<const SourcePlugin>;

std::string op_name(const std::string& name) {
  const size_t slash = name.find('/');
  return slash == std::string::npos ? name : name.substr(slash + 1);
}

const OpDecl* declaration_of(const SourcePlugin& source, const std::string& op) {
  for (const OpDecl& declared : source.manifest->ops) {
    if (declared.name == op) return &declared;
  }
  return nullptr;
}

// Returns whether the candidate serves the op on some device of this machine, as it is or once its
// device code is compiled.
bool may_serve(const Candidate& candidate, ChainRequest wanted) {
  if (candidate.verdict.state != State::kRejected) return true;
  for (const DeviceVerdict& device : candidate.verdict.devices) {
    if (device.index < 0) continue;
    wanted.device = {static_cast<int32_t>(device.backend), device.index};
    if (can_compile(candidate, wanted)) return true;
  }
  return false;
}

}  // namespace

Status FunctionTable::wanted(const std::string& name, ChainRequest* out) {
  const std::shared_ptr<const Catalog> catalog = runtime_->catalog();
  ChainRequest& wanted = *out = {name, op_name(name), "", "", {}, {}};
  Status none{OPDOCK_INCOMPATIBLE, ""};
  const auto take = [&](const OpClaim& claim) {
    Reason error{};
    const std::optional<Schema> schema = parse_schema(claim.schema, &error);
    if (!schema) {
      none.text = to_text(error);
      return false;
    }
    wanted.schema = schema->text();
    wanted.digest = schema->digest();
    wanted.arg_devices = arg_devices_of(claim, *schema);
    return true;
  };
  const std::vector<CandidatePtr> candidates = catalog->providers(name);
  const std::vector<SourcePtr> sources = catalog->source_providers(name);
  const auto from_source = [&](bool may_be_rejected) {
    for (const SourcePtr& source : sources) {
      if (source->state == State::kRejected && !may_be_rejected) continue;
      if (take(to_claim(*declaration_of(*source, wanted.op)))) return true;
    }
    return false;
  };
  const auto from_binary = [&](bool may_be_rejected) {
    for (const CandidatePtr& candidate : candidates) {
      if (!take(*claim_of(*candidate, wanted.op))) continue;
      if (may_be_rejected || may_serve(*candidate, wanted)) return true;
    }
    return false;
  };
  const bool source_first = runtime_->settings().build.value == "always";
  if (source_first && from_source(false)) return {};
  if (from_binary(false) || from_source(false)) return {};
  // No plugin here can serve, but the op is known, so the reference may serve.
  if ((from_binary(true) || from_source(true)) && has_reference(runtime_, wanted)) return {};
  return none;
}

Declared FunctionTable::declared(const ChainRequest& wanted) {
  // Flags that a caller has to be ready for, whichever provider serves.
  constexpr uint32_t kAny =
      OPDOCK_OP_MAY_BLOCK | OPDOCK_OP_HOST_SYNC | OPDOCK_OP_RANDOM | OPDOCK_OP_RETAINS;
  const std::shared_ptr<const Catalog> catalog = runtime_->catalog();
  std::optional<Declared> first;
  uint32_t flags = 0;
  const auto look_at = [&](const OpClaim& claim, std::span<const OpClaim> ops) {
    const std::optional<Schema> schema = parse_schema(claim.schema, nullptr);
    if (!schema || schema->digest() != wanted.digest) return;
    flags |= op_flag_bits(claim.flags) & kAny;
    Reason ignored{};  // reported when the plugin is loaded
    if (!first) first = declared_of(claim, ops, &ignored);
  };
  for (const CandidatePtr& one : catalog->providers(wanted.name)) {
    look_at(*claim_of(*one, wanted.op), one->file.note->ops);
  }
  for (const SourcePtr& one : catalog->source_providers(wanted.name)) {
    std::vector<OpClaim> ops;
    for (const OpDecl& op : one->manifest->ops) ops.push_back(to_claim(op));
    look_at(to_claim(*declaration_of(*one, wanted.op)), ops);
  }
  Declared found = first ? *std::move(first) : Declared();
  found.flags |= flags;
  return found;
}

const opdock_op* FunctionTable::described(const opdock_function& function,
                                          std::shared_ptr<const SourcePlugin>* source) {
  const std::string& op = function.schema().name;
  const std::shared_ptr<const Catalog> catalog = runtime_->catalog();
  for (const CandidatePtr& candidate : catalog->providers(function.name())) {
    const OpClaim& claim = *claim_of(*candidate, op);
    if (candidate->verdict.state == State::kRejected || claim.digest != function.digest()) continue;
    std::vector<Reason> reasons;
    const LoadedPlugin* plugin = load(candidate, host_table(), &reasons);
    if (plugin == nullptr) continue;
    for (uint32_t i = 0; i < plugin->descriptor->num_ops; ++i) {
      const opdock_op* one = plugin->descriptor->ops[i];
      if (one != nullptr && one->schema != nullptr && claim.schema == one->schema) return one;
    }
  }
  for (const SourcePtr& one : catalog->source_providers(function.name())) {
    if (declaration_of(*one, op)->schema != function.info().schema) continue;
    *source = one;
    break;
  }
  return nullptr;
}

std::string FunctionTable::doc(const opdock_function& function) {
  SourcePtr source;
  if (const opdock_op* op = described(function, &source)) return op->doc == nullptr ? "" : op->doc;
  return source == nullptr ? "" : declaration_of(*source, function.schema().name)->doc;
}

std::string FunctionTable::formula(const opdock_function& function) {
  SourcePtr source;
  std::string text;
  if (const opdock_op* op = described(function, &source)) {
    // A gradient's formula is that of another op.
    const bool is_gradient = OPDOCK_HAS(op, opdock_op, num_grads) && op->gradients_of != nullptr;
    if (OPDOCK_HAS(op, opdock_op, formula) && op->formula != nullptr && !is_gradient)
      text = op->formula;
  } else if (source != nullptr) {
    const OpDecl& declared = *declaration_of(*source, function.schema().name);
    if (declared.gradient_of.empty()) text = declared.formula;
  }
  if (text.empty()) return text;
  try {
    return formula::Formula(text, formula_parameters(function.schema())).text();
  } catch (const std::exception&) {
    return text;  // A call says what is wrong with it.
  }
}

}  // namespace opdock
