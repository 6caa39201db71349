// SPDX-License-Identifier: Apache-2.0
#include "chain/declared.h"

#include "schema/dtype.h"
#include "schema/op_flags.h"

namespace opdock {

std::vector<uint8_t> arg_devices_of(const OpClaim& op, const Schema& schema) {
  std::vector<uint8_t> devices;
  for (const auto& [name, device] : op.elsewhere) {
    const int param = schema.find(name);
    for (const OpFlag& known : kArgDevices) {
      if (param < 0 || known.name != device) continue;
      devices.resize(schema.params.size(), OPDOCK_ON_OP_DEVICE);
      devices[static_cast<size_t>(param)] = static_cast<uint8_t>(known.bit);
    }
  }
  return devices;
}

std::optional<Declared> declared_of(const OpClaim& op, std::span<const OpClaim> ops,
                                    Reason* error) {
  const std::optional<Schema> schema = parse_schema(op.schema, error);
  if (!schema) return std::nullopt;
  Declared declared;
  declared.flags = op_flag_bits(op.flags);
  const int deciding = op.device_arg.empty() ? schema->first_tensor() : schema->find(op.device_arg);
  declared.device_arg = static_cast<uint32_t>(std::max(deciding, 0));
  declared.arg_devices = arg_devices_of(op, *schema);
  std::optional<std::vector<ShapeRule>> rules = parse_shape_rules(op.shape_rules, *schema, error);
  if (!rules) return std::nullopt;
  declared.rules = *std::move(rules);
  if (!op.gradients.empty()) {
    std::vector<Schema> schemas;
    for (const OpClaim& one : ops) {
      if (std::optional<Schema> parsed = parse_schema(one.schema, nullptr)) {
        schemas.push_back(*std::move(parsed));
      }
    }
    std::optional<std::vector<Gradient>> gradients =
        parse_gradients(op.gradients, *schema, schemas, error);
    if (!gradients) return std::nullopt;
    declared.gradients = *std::move(gradients);
  }
  for (const std::string& device : op.devices) {
    const std::optional<Backend> backend = parse_backend(device);
    if (!backend) continue;
    Declared::Device one{static_cast<int32_t>(*backend), {}};
    for (const std::string& name : op.dtypes) {
      if (const std::optional<opdock_dtype> dtype = parse_dtype(name)) one.dtypes.push_back(*dtype);
    }
    declared.devices.push_back(std::move(one));
  }
  return declared;
}

}  // namespace opdock
