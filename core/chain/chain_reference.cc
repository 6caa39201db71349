// The chain's last step: the op's reference implementation, run by the program, as a target.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <memory>

#include "call/invocation.h"
#include "chain/chain.h"
#include "chain/chain_report.h"
#include "schema/dtype.h"
#include "schema/op_flags.h"
#include "schema/shape_rule.h"

namespace opdock {
namespace {

// An op whose run function is the program's reference. The descriptor is the first member, so that
// op_of() can cast its address back.
struct ReferenceOp {
  opdock_op op{};
  Schema schema;
  std::string schema_text;
  std::vector<ShapeRule> rules;
  bool draws = false;  // has a parameter of type Generator
  const opdock_references* runner = nullptr;
  void* context = nullptr;
  void* handle = nullptr;
};

const ReferenceOp& op_of(const opdock_call* call) {
  const Invocation* invocation = static_cast<const Invocation*>(call->host_data);
  return *reinterpret_cast<const ReferenceOp*>(invocation->target->op);
}

opdock_status plan(const opdock_call* call, const opdock_value* args, uint32_t num_args,
                   opdock_plan* plan) {
  const ReferenceOp& op = op_of(call);
  uint32_t output = 0;
  for (const ShapeRule& rule : op.rules) {
    std::string problem;
    uint32_t count = 0;
    bool is_good = count_tensors(rule, op.schema, {args, num_args}, &count, &problem);
    for (uint32_t k = 0; is_good && k < count; ++k) {
      is_good = evaluate(rule, op.schema, {args, num_args}, k, &plan->outputs[output++], &problem);
    }
    if (!is_good) return call->host->set_error(call, OPDOCK_INVALID_ARGUMENT, problem.c_str());
  }
  // Reserve one block of random numbers. Its place in the generator's sequence seeds the numbers
  // that the program draws itself.
  if (op.draws) plan->random_numbers = 4;
  return OPDOCK_OK;
}

opdock_status run(const opdock_call* call, const opdock_value* args, uint32_t num_args,
                  opdock_value* results, uint32_t num_results) {
  const ReferenceOp& op = op_of(call);
  return op.runner->run(op.context, op.handle, call, args, num_args, results, num_results);
}

// The declaration with the wanted schema: its shape rules, whether outputs may be arguments, and
// its reference file if that may be run.
struct Declaration {
  std::vector<std::string> shape_rules;
  uint32_t in_place = 0;  // OPDOCK_OP_IN_PLACE, or 0
  std::string file;       // reference.py, absolute; empty: none
  int device_arg = -1;
};

Declaration find_declaration(const Catalog& catalog, const ChainRequest& wanted) {
  Declaration found;
  bool has_rules = false;
  for (const std::shared_ptr<const SourcePlugin>& source : catalog.source_providers(wanted.name)) {
    for (const OpDecl& op : source->manifest->ops) {
      if (op.name != wanted.op || op.schema != wanted.schema) continue;
      if (!has_rules) {
        found.shape_rules = op.shape;
        found.in_place = op.flag_bits & OPDOCK_OP_IN_PLACE;
        found.device_arg = static_cast<int>(op.device_arg_index);
        has_rules = true;
      }
      // If a plugin may not be built, its reference may not be run either.
      if (found.file.empty() && source->state == State::kUsable &&
          !source->manifest->reference.empty()) {
        found.file = source->folder + "/" + source->manifest->reference;
      }
    }
  }
  for (const std::shared_ptr<const Candidate>& candidate : catalog.providers(wanted.name)) {
    for (const OpClaim& claim : candidate->file.note->ops) {
      if (has_rules || claim.name != wanted.op || claim.digest != wanted.digest) continue;
      found.shape_rules = claim.shape_rules;
      found.in_place = op_flag_bits(claim.flags) & OPDOCK_OP_IN_PLACE;
      has_rules = true;
    }
  }
  return found;
}

Reason unusable(std::string found) {
  return make_reason(Code::kReferenceUnusable, std::move(found), "a reference that can be run");
}

// Makes *out, or returns the reason why it cannot.
std::optional<Reason> make_op(const ChainRequest& wanted, const Declaration& declaration,
                              const Hooks& hooks, std::unique_ptr<ReferenceOp>* out) {
  Reason error{};
  std::optional<Schema> schema = parse_schema(wanted.schema, &error);
  if (!schema) return error;
  std::optional<std::vector<ShapeRule>> rules =
      parse_shape_rules(declaration.shape_rules, *schema, &error);
  if (!rules) return error;
  std::unique_ptr<ReferenceOp> made = std::make_unique<ReferenceOp>();
  made->rules = *std::move(rules);
  made->op.struct_size = sizeof made->op;
  made->op.flags = OPDOCK_OP_THREAD_SAFE | OPDOCK_OP_MAY_BLOCK | OPDOCK_OP_MAY_ALLOCATE |
                   OPDOCK_OP_HOST_SYNC | declaration.in_place;
  made->draws =
      std::any_of(schema->params.begin(), schema->params.end(),
                  [](const SchemaParam& param) { return param.type.tag == OPDOCK_TAG_GENERATOR; });
  if (made->draws) made->op.flags |= OPDOCK_OP_RANDOM;
  made->schema_text = wanted.schema;
  made->op.schema = made->schema_text.c_str();
  made->op.doc = "";
  const int deciding =
      declaration.device_arg >= 0 ? declaration.device_arg : schema->first_tensor();
  made->op.device_arg = static_cast<uint32_t>(std::max(deciding, 0));
  made->op.plan = plan;
  made->op.run = run;
  made->schema = *std::move(schema);
  made->runner = hooks.references;
  made->context = hooks.context;
  *out = std::move(made);
  return std::nullopt;
}

// The facts and the driver of the device that the reference would run on.
struct AskedDevice {
  const opdock_device_facts* facts = cpu_facts();
  Driver* driver = nullptr;
};

std::optional<Reason> find_place(opdock_device device, AskedDevice* place) {
  if (device.type == OPDOCK_CPU) return std::nullopt;
  Status done = driver_for(static_cast<Backend>(device.type), &place->driver);
  if (done.ok()) done = place->driver->facts(device.index, &place->facts);
  if (done.ok()) return std::nullopt;
  return make_reason(Code::kDriverFailed, done.text, "a device that answers");
}

// Returns the file of the reference to use; empty: one that the program has without this file;
// nullopt: none.
std::optional<std::string> find_file(const Hooks& hooks, const std::string& op,
                                     const std::string& declared) {
  const opdock_references& runner = *hooks.references;
  if (!declared.empty() && runner.has(hooks.context, op.c_str(), declared.c_str()) != 0) {
    return declared;
  }
  if (runner.has(hooks.context, op.c_str(), nullptr) != 0) return "";
  return std::nullopt;
}

}  // namespace

bool has_reference(opdock_runtime* runtime, const ChainRequest& wanted) {
  const Hooks& hooks = runtime->hooks();
  if (hooks.references == nullptr || runtime->settings().fallback.value == "error") return false;
  const Declaration declaration = find_declaration(*runtime->catalog(), wanted);
  return find_file(hooks, wanted.op, declaration.file).has_value();
}

void take_reference_step(opdock_runtime* runtime, const ChainRequest& wanted,
                         const opdock_function* function, ChainRecord* record) {
  const Hooks& hooks = runtime->hooks();
  const Setting& policy = runtime->settings().fallback;
  ChainStep step{ChainStep::Kind::kReference, ChainStep::Outcome::kSkipped, "", {}, {}};
  const auto end = [&](Reason reason, const char* text) {
    step.text = text;
    step.reasons.push_back({"", "", std::move(reason)});
    record->steps.push_back(std::move(step));
  };
  if (policy.value == "error") {
    return end(make_reason(Code::kReferencePolicy, "fallback = \"error\" (" + policy.place + ")",
                           "fallback = \"warn\""),
               "switched off");
  }
  if (hooks.references == nullptr) {
    return end(make_reason(Code::kReferenceRunner, "a program that runs none", "one that does"),
               "not in this program");
  }
  step.outcome = ChainStep::Outcome::kFailed;
  const Declaration declaration = find_declaration(*runtime->catalog(), wanted);
  const std::optional<std::string> file = find_file(hooks, wanted.op, declaration.file);
  if (!file) {
    return end(make_reason(Code::kReferenceMissing, "no reference of " + wanted.op,
                           "a function of that name in a reference.py"),
               "there is none");
  }
  if (record->dry) {
    step.outcome = ChainStep::Outcome::kUsed;
    step.text = policy.value == "warn" ? "would stand in, with a warning" : "would stand in";
    record->steps.push_back(std::move(step));
    return;
  }
  std::unique_ptr<ReferenceOp> op;
  AskedDevice place;
  std::optional<Reason> why = make_op(wanted, declaration, hooks, &op);
  if (!why) why = find_place(wanted.device, &place);
  if (!why) {
    std::array<char, 4096> error{};
    const opdock_status status =
        hooks.references->open(hooks.context, const_cast<opdock_function*>(function), wanted.device,
                               file->empty() ? nullptr : file->c_str(),
                               reference_report(*record, wanted.op, policy.value == "warn").c_str(),
                               &op->handle, error.data(), static_cast<uint32_t>(error.size()));
    if (status == OPDOCK_OK) {
      step.outcome = ChainStep::Outcome::kUsed;
      step.text = file->empty() ? "stands in" : "stands in (" + *file + ")";
      std::vector<ShapeRule> rules = op->rules;
      // Never freed: targets are interned by the address of their op until the process ends.
      record->target = intern_target(&op.release()->op, "reference", wanted.device, place.facts,
                                     place.driver, nullptr, {}, std::move(rules));
      record->steps.push_back(std::move(step));
      return;
    }
    record->cancelled = status == OPDOCK_CANCELLED;
    why = unusable(error.data());
  }
  end(*std::move(why), "cannot be run");
}

}  // namespace opdock
