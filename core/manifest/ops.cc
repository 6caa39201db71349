// The part of plugin.toml that the call path defines too: schemas and shape rules.
// SPDX-License-Identifier: Apache-2.0
#include "manifest/ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "call/dtype.h"
#include "call/schema.h"
#include "call/shape_rule.h"
#include "opdock/plugin.h"

namespace opdock {
namespace {

const std::vector<std::string> kDevices = {"cpu", "cuda", "rocm"};

const std::vector<std::pair<std::string, uint32_t>> kFlags = {
    {"thread-safe", OPDOCK_OP_THREAD_SAFE}, {"capture-safe", OPDOCK_OP_CAPTURE_SAFE},
    {"in-place", OPDOCK_OP_IN_PLACE},       {"deterministic", OPDOCK_OP_DETERMINISTIC},
    {"may-block", OPDOCK_OP_MAY_BLOCK},     {"may-allocate", OPDOCK_OP_MAY_ALLOCATE},
    {"host-sync", OPDOCK_OP_HOST_SYNC}};

class OpChecker {
 public:
  OpChecker(const toml::table& toml, Manifest* manifest, std::vector<Mistake>* mistakes)
      : manifest_(*manifest),
        op_(&manifest->ops.back()),
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
    check_shape_rules(*schema);
    check_device_arg(*schema);
  }

 private:
  void check_name() {
    const auto count = std::count_if(manifest_.ops.begin(), manifest_.ops.end(),
                                     [&](const OpDecl& other) { return other.name == op_->name; });
    if (count > 1)
      mistake(table_.place("schema"), "a second op of this name", "each name once in a plugin");
  }

  void check_shape_rules(const Schema& schema) {
    if (op_->shape.size() != schema.fresh_outputs())
      mistake(table_.place("shape"), fmt::format("\"shape\": {} rules", op_->shape.size()),
              fmt::format("{}: one for each output that the schema does not alias to a parameter",
                          schema.fresh_outputs()));
    for (const std::string& rule : op_->shape) {
      Reason reason{};
      if (!parse_shape_rule(rule, schema, &reason))
        mistake(table_.place("shape", rule), "\"shape\": " + reason.found, reason.wanted);
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
    // Without a tensor there is nothing to tell the device by, so only the CPU is left.
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
  TomlTable table_;
  std::vector<Mistake>* mistakes_;
};

}  // namespace

OpDecl read_op(const toml::table& toml, size_t number, std::vector<Mistake>* mistakes) {
  TomlTable table(toml, fmt::format("[[op]] {}", number), mistakes);
  table.only({"schema", "doc", "shape", "devices", "dtypes", "flags", "device-arg", "backward"});
  OpDecl op;
  op.schema = table.text("schema", true);
  op.schema_line = table.place("schema").line;
  op.doc = table.text("doc", true);
  op.shape = table.texts("shape", false);
  op.devices = table.texts("devices", true);
  table.check_words("devices", op.devices, kDevices);
  op.dtypes = table.texts("dtypes", true);
  for (const std::string& dtype : op.dtypes)
    if (!parse_dtype(dtype))
      table.mistake("dtypes", table.place("dtypes", dtype), fmt::format("\"{}\"", dtype),
                    "names such as float32, float16, bfloat16, int64, bool, float8_e4m3fn");
  table.check_once("dtypes", op.dtypes);
  op.flags = table.texts("flags", false);
  std::vector<std::string> flag_names;
  for (const auto& [name, bit] : kFlags) {
    flag_names.push_back(name);
    if (std::find(op.flags.begin(), op.flags.end(), name) != op.flags.end()) op.flag_bits |= bit;
  }
  table.check_words("flags", op.flags, flag_names);
  op.device_arg = table.text("device-arg", false);
  op.backward = table.text("backward", false);
  return op;
}

void check_op(const toml::table& toml, Manifest* manifest, std::vector<Mistake>* mistakes) {
  OpChecker(toml, manifest, mistakes).check();
}

}  // namespace opdock
