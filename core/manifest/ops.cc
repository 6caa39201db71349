// Reads the [[op]] tables; their schemas and shape rules follow core/schema, as the call path does.
// SPDX-License-Identifier: Apache-2.0
#include "manifest/ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/sha256.h"
#include "formula/formula.h"
#include "manifest/formula_gradients.h"
#include "manifest/formula_parameters.h"
#include "manifest/formula_shapes.h"
#include "manifest/tensor_rule_keys.h"
#include "opdock/plugin.h"
#include "opdock/types.hpp"
#include "schema/dtype.h"
#include "schema/gradient.h"
#include "schema/op_flags.h"
#include "schema/schema.h"
#include "schema/shape_rule.h"

namespace opdock {
namespace {

const std::vector<std::string> kDevices = {"cpu", "cuda", "rocm"};

class OpChecker {
 public:
  OpChecker(const toml::table& toml, Manifest* manifest, size_t number,
            std::vector<Mistake>* mistakes)
      : manifest_(*manifest),
        op_(&manifest->ops[number]),
        is_formula_(toml.contains("formula") && op_->gradient_of.empty()),
        table_(toml, "", mistakes),
        mistakes_(mistakes) {}

  void check() {
    if (op_->schema.empty()) return;
    Reason reason{};
    size_t offset = 0;
    std::optional<Schema> schema = parse_schema(op_->schema, &reason, &offset);
    if (!schema) {
      const TextPlace at = place_in(manifest_.text, table_.place("schema"), op_->schema, offset);
      return mistake(at, "\"schema\": " + reason.found, reason.wanted);
    }
    op_->name = schema->name;
    op_->schema = schema->text();
    check_name();
    if (is_formula_ && (op_->formula.empty() || !check_formula(*schema))) return;
    check_shape_rules(*schema);
    check_device_arg(*schema);
    check_elsewhere(*schema);
    read_tensor_rules(&table_, *schema, op_,
                      [this](TextPlace place, const std::string& found, std::string wanted) {
                        mistake(place, found, std::move(wanted));
                      });
  }

 private:
  void check_name() {
    const auto count = std::count_if(manifest_.ops.begin(), manifest_.ops.end(),
                                     [&](const OpDecl& other) { return other.name == op_->name; });
    if (count > 1)
      mistake(table_.place("schema"), "a second op of this name", "each name once in a plugin");
  }

  // Returns whether the formula fits the schema, so that the rest can be checked.
  bool check_formula(const Schema& schema) {
    try {
      const formula::Formula parsed(op_->formula, formula_parameters(schema));
      check_fit(schema, parsed);
      if (op_->shape.empty()) op_->shape = common_shape_rules(schema, parsed);
      if (op_->doc.empty()) op_->doc = parsed.text();
      return true;
    } catch (const formula::SyntaxError& problem) {
      mistake_in_formula(problem);
    } catch (const formula::Error& problem) {
      told(table_.place("formula"), problem.what());
    } catch (const Error& problem) {
      told(table_.place("schema"), problem.what());
    }
    return false;
  }

  // Reports a fault of the formula at its place in the file, without the formula's own lines.
  void mistake_in_formula(const formula::SyntaxError& problem) {
    const std::string& text = op_->formula;
    size_t offset = 0;
    for (int line = 1; line < problem.line; ++line) offset = text.find('\n', offset) + 1;
    offset = std::min(offset + static_cast<size_t>(problem.column - 1), text.size());
    const TextPlace begin = table_.place("formula");
    const TextPlace at = place_in(manifest_.text, begin, text, offset);
    std::string what = problem.what();
    what.resize(std::min(what.find('\n'), what.size()));
    const std::string place = fmt::format("line {}, column {}: ", problem.line, problem.column);
    const bool is_found = at.line != begin.line || at.column != begin.column;
    if (is_found && what.starts_with(place)) what.erase(0, place.size());
    told(at, what);
  }

  // Reports "found …, wanted …" about the formula.
  void told(TextPlace place, std::string_view text) {
    if (text.starts_with("found ")) text.remove_prefix(6);
    const size_t comma = std::min(text.find(", wanted "), text.size());
    std::string wanted(text.substr(std::min(comma + 9, text.size())));
    if (wanted.empty()) wanted = "a formula of the op's parameters (docs/reference/formulas.md)";
    mistake(place, "\"formula\": " + std::string(text.substr(0, comma)), std::move(wanted));
  }

  void check_shape_rules(const Schema& schema) {
    if (op_->shape.size() != schema.fresh_results()) {
      return mistake(
          table_.place("shape"), fmt::format("\"shape\": {} rules", op_->shape.size()),
          fmt::format("{}: one for each result that is a Tensor, Tensor? or Tensor[] and no "
                      "parameter",
                      schema.fresh_results()));
    }
    size_t number = 0;
    for (const SchemaReturn& result : schema.returns) {
      if (!result.is_fresh_tensor()) continue;
      const std::string& rule = op_->shape[number++];
      Reason reason{};
      if (!parse_shape_rule(rule, schema, result, &reason))
        mistake(table_.place("shape", rule), "\"shape\": " + reason.found, reason.wanted);
    }
  }

  void check_elsewhere(const Schema& schema) {
    for (const auto& [name, device] : op_->elsewhere) {
      const TextPlace place = table_.place_in("elsewhere", name);
      const int param = schema.find(name);
      if (param < 0 || schema.params[static_cast<size_t>(param)].type.tag != OPDOCK_TAG_TENSOR) {
        mistake(place, fmt::format("\"elsewhere\": \"{}\"", name),
                "a tensor parameter of " + schema.text());
        continue;
      }
      const OpFlag* known =
          std::find_if(std::begin(kArgDevices), std::end(kArgDevices),
                       [&device = device](const OpFlag& one) { return one.name == device; });
      if (known == std::end(kArgDevices)) {
        mistake(place, fmt::format("\"elsewhere\": \"{}\" for {}", device, name),
                "\"cpu\": in host memory, or \"any\": anywhere");
        continue;
      }
      if (static_cast<uint32_t>(param) == op_->device_arg_index) {
        mistake(place, fmt::format("\"elsewhere\": \"{}\", which decides the device", name),
                "\"device-arg\" to name another parameter");
        continue;
      }
      op_->arg_devices.resize(schema.params.size(), OPDOCK_ON_OP_DEVICE);
      op_->arg_devices[static_cast<size_t>(param)] = static_cast<uint8_t>(known->bit);
    }
  }

  void check_device_arg(const Schema& schema) {
    int index = schema.first_tensor();
    if (!op_->device_arg.empty()) {
      index = schema.find(op_->device_arg);
      if (index < 0)
        return mistake(table_.place("device-arg"),
                       fmt::format("\"device-arg\": \"{}\"", op_->device_arg),
                       "a parameter of " + schema.text());
    }
    if (index >= 0) {
      op_->device_arg_index = static_cast<uint32_t>(index);
      return;
    }
    // Without a tensor nothing decides the device, so only the CPU is left.
    for (const std::string& device : op_->devices)
      if (device != "cpu")
        mistake(table_.place("devices", device),
                fmt::format("the device \"{}\" and no Tensor parameter", device),
                "\"device-arg\" to name what decides the device");
  }

  void mistake(TextPlace place, const std::string& found, std::string wanted) {
    const std::string name = op_->schema.substr(0, op_->schema.find('('));
    mistakes_->push_back({place, fmt::format("op \"{}\": {}", name, found), std::move(wanted)});
  }

  const Manifest& manifest_;
  OpDecl* op_;
  bool is_formula_;
  TomlTable table_;
  std::vector<Mistake>* mistakes_;
};

}  // namespace

// Returns " (did you mean "float16"?)", or an empty text.
static std::string meant(const std::string& name) {
  return name.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", name);
}

// Fills in keys that an op by a formula may omit; check_formula() adds its doc and its shape.
static void add_defaults(OpDecl* op) {
  if (op->devices.empty()) op->devices = kDevices;
  if (op->dtypes.empty()) op->dtypes = {"float32", "float16", "bfloat16", "float64"};
  if (op->flags.empty()) op->flags = {"thread-safe", "capture-safe", "in-place", "deterministic"};
}

OpDecl read_op(const toml::table& toml, size_t number, std::vector<Mistake>* mistakes) {
  TomlTable table(toml, fmt::format("[[op]] {}", number), mistakes);
  table.only({"schema", "doc", "shape", "devices", "dtypes", "flags", "device-arg", "elsewhere",
              "gradients", "formula", "gradient-of", "rows", "contiguous", "like", "broadcast",
              "in-place"});
  OpDecl op;
  op.schema = table.text("schema", true);
  op.schema_line = table.place("schema").line;
  op.formula = table.text("formula", false);
  op.gradient_of = table.text("gradient-of", false);
  if (!op.formula.empty() && !op.gradient_of.empty())
    table.mistake("gradient-of", table.place("gradient-of"), "a formula as well",
                  "one of them: a gradient follows from the other op's formula");
  const bool is_own = !toml.contains("formula") && !toml.contains("gradient-of");
  op.doc = table.text("doc", is_own);
  op.shape = table.texts("shape", false);
  op.devices = table.texts("devices", is_own);
  table.check_words("devices", op.devices, kDevices);
  op.dtypes = table.texts("dtypes", is_own);
  for (const std::string& dtype : op.dtypes)
    if (!parse_dtype(dtype))
      table.mistake("dtypes", table.place("dtypes", dtype), fmt::format("\"{}\"", dtype),
                    "names such as float32, float16, bfloat16, int64, bool, float8_e4m3fn" +
                        meant(meant_dtype(dtype)));
  table.check_once("dtypes", op.dtypes);
  op.flags = table.texts("flags", false);
  if (!is_own) add_defaults(&op);
  if (!op.gradient_of.empty()) std::erase(op.flags, "in-place");
  op.flag_bits = op_flag_bits(op.flags);
  std::vector<std::string> flag_names;
  for (const OpFlag& flag : kOpFlags) flag_names.emplace_back(flag.name);
  table.check_words("flags", op.flags, flag_names);
  op.device_arg = table.text("device-arg", false);
  op.elsewhere = table.text_pairs("elsewhere");
  for (const auto& [params, formula] : table.text_pairs("gradients"))
    op.gradients.push_back(params + " = " + formula);
  return op;
}

OpClaim to_claim(const OpDecl& op) {
  return {op.name,     op.schema,     to_hex(sha256(std::string_view(op.schema))),
          op.devices,  op.dtypes,     op.shape,
          op.flags,    op.device_arg, op.elsewhere,
          op.gradients};
}

void check_gradients(const toml::table& toml, const Manifest& manifest, size_t number,
                     std::vector<Mistake>* mistakes) {
  const OpDecl& op = manifest.ops[number];
  if (op.gradients.empty()) return;
  std::vector<Schema> schemas;
  for (const OpDecl& one : manifest.ops) {
    std::optional<Schema> schema = parse_schema(one.schema, nullptr);
    if (!schema) return;  // already reported
    schemas.push_back(*std::move(schema));
  }
  TomlTable table(toml, fmt::format("op \"{}\"", op.name), mistakes);
  Reason reason{};
  size_t at = 0;
  if (parse_gradients(op.gradients, schemas[number], schemas, &reason, &at)) return;
  const std::string params = op.gradients[at].substr(0, op.gradients[at].find(" = "));
  table.mistake("gradients", table.place_in("gradients", params), reason.found, reason.wanted);
}

void check_op(const toml::table& toml, Manifest* manifest, size_t number,
              std::vector<Mistake>* mistakes) {
  OpChecker(toml, manifest, number, mistakes).check();
}

void check_gradient_op(const toml::table& toml, Manifest* manifest, size_t number,
                       std::vector<Mistake>* mistakes) {
  const GradientFault fault = fill_in_gradient(manifest, number);
  const OpDecl& op = manifest->ops[number];
  if (fault.found.empty()) return check_op(toml, manifest, number, mistakes);
  TomlTable table(toml, fmt::format("op \"{}\"", op.schema.substr(0, op.schema.find('('))),
                  mistakes);
  table.mistake(fault.key, table.place(fault.key), fault.found, fault.wanted);
}

}  // namespace opdock
