// The part of plugin.toml that the call path defines: schemas and shape rules.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <set>

#include "call/schema.h"
#include "call/shape_rule.h"
#include "manifest/manifest.h"

namespace opdock {

namespace {

class OpChecker {
 public:
  OpChecker(const Manifest& manifest, OpDecl* op, std::vector<std::string>* errors)
      : manifest_(manifest), op_(op), errors_(errors) {}

  void check() {
    Reason reason{};
    std::optional<Schema> schema = parse_schema(op_->schema, &reason);
    if (!schema) return error(op_->schema_line, reason_text("schema", reason));
    op_->name = schema->name;
    op_->schema = schema->text();
    check_shape_rules(*schema);
    check_device_arg(*schema);
  }

 private:
  static std::string reason_text(std::string_view key, const Reason& reason) {
    return fmt::format("\"{}\": found {}, wanted {}{}{}", key, reason.found, reason.wanted,
                       reason.advice.empty() ? "" : "; ", reason.advice);
  }

  void check_shape_rules(const Schema& schema) {
    if (op_->shape.size() != schema.fresh_outputs())
      error(op_->shape_line,
            fmt::format("\"shape\": found {} rules, wanted {}: one for each output that the schema "
                        "does not alias to a parameter",
                        op_->shape.size(), schema.fresh_outputs()));
    for (const std::string& rule : op_->shape) {
      Reason reason{};
      if (!parse_shape_rule(rule, schema, &reason))
        error(op_->shape_line, reason_text("shape", reason));
    }
  }

  void check_device_arg(const Schema& schema) {
    int index = schema.first_tensor();
    if (!op_->device_arg.empty()) {
      index = schema.find(op_->device_arg);
      if (index < 0)
        return error(op_->device_arg_line,
                     fmt::format("\"device-arg\": found \"{}\", wanted a parameter of {}",
                                 op_->device_arg, schema.text()));
    }
    if (index >= 0) {
      op_->device_arg_index = static_cast<uint32_t>(index);
      return;
    }
    // Without a tensor there is nothing to tell the device by, so only the CPU is left.
    for (const std::string& device : op_->devices)
      if (device != "cpu")
        error(op_->line, fmt::format("found the device \"{}\" and no Tensor parameter, wanted "
                                     "\"device-arg\" to name what decides the device",
                                     device));
  }

  void error(uint32_t line, const std::string& text) {
    errors_->push_back(fmt::format("{}:{}: op \"{}\": {}", manifest_.path.string(), line,
                                   op_->name.empty() ? op_->schema : op_->name, text));
  }

  const Manifest& manifest_;
  OpDecl* op_;
  std::vector<std::string>* errors_;
};

}  // namespace

bool check_ops(Manifest* manifest, std::vector<std::string>* errors) {
  const size_t errors_before = errors->size();
  std::set<std::string> names;
  for (OpDecl& op : manifest->ops) {
    OpChecker(*manifest, &op, errors).check();
    if (!op.name.empty() && !names.insert(op.name).second)
      errors->push_back(
          fmt::format("{}:{}: op \"{}\": found a second op of this name, wanted "
                      "each name once in a plugin",
                      manifest->path.string(), op.line, op.name));
  }
  return errors->size() == errors_before;
}

}  // namespace opdock
