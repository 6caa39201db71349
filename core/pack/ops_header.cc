// SPDX-License-Identifier: Apache-2.0
#include "pack/ops_header.h"

#include <fmt/format.h>

#include "opdock/plugin.h"
#include "pack/emit.h"
#include "schema/schema.h"

namespace opdock::pack {
namespace {

// Returns the C++ type, as in plugin.hpp's table. complex: "std::complex<double>", or its
// substitute if <complex> may not have been included. any_object: likewise for an Object<T>.
std::string cpp_type(const SchemaType& type, const char* complex, const char* any_object) {
  std::string text;
  switch (type.tag) {
    case OPDOCK_TAG_TENSOR:
      text = "Tensor";
      break;
    case OPDOCK_TAG_INT:
      text = "int64_t";
      break;
    case OPDOCK_TAG_FLOAT:
      text = "double";
      break;
    case OPDOCK_TAG_BOOL:
      text = "bool";
      break;
    case OPDOCK_TAG_STRING:
      text = "std::string_view";
      break;
    case OPDOCK_TAG_COMPLEX:
      text = complex;
      break;
    case OPDOCK_TAG_DTYPE:
      text = "Dtype";
      break;
    case OPDOCK_TAG_DEVICE:
      text = "Device";
      break;
    case OPDOCK_TAG_STREAM:
      text = "Stream";
      break;
    case OPDOCK_TAG_GENERATOR:
      text = "const opdock_generator*";
      break;
    default:
      text = any_object;
  }
  if (type.optional_element) text = "std::optional<" + text + ">";
  if (type.list) text = "List<" + text + ">";
  if (type.optional) text = "std::optional<" + text + ">";
  return text;
}

// Returns a static_assert on the type of plan or run, which is the template parameter `found`.
std::string check(const std::string& phase, const std::string& found, const std::string& first,
                  const Schema& schema, const std::string& place) {
  std::string types = first, parameters = first;
  for (const SchemaParam& param : schema.params) {
    types += ", " + cpp_type(param.type, "detail::Complex", "detail::AnyObject");
    parameters +=
        ", " + cpp_type(param.type, "std::complex<double>", "Object<…>") + " " + param.name;
  }
  const std::string message = fmt::format(
      "op \"{}\": the parameters of {} are not those that {} declares, {}: wanted void "
      "{}({})",
      schema.name, phase, place, schema.text(), phase, parameters);
  return fmt::format("  static_assert(detail::takes<{}, void({})>,\n                {});\n", found,
                     types, literal(message));
}

std::string kernel_list(const std::vector<std::string>& kernels) {
  std::string names;
  for (const std::string& name : kernels) names += fmt::format("    {},\n", literal(name));
  return fmt::format(
      "namespace opdock::kernels_in_plugin_toml {{\n"
      "inline constexpr std::array<std::string_view, {}> names = {{{}}};\n"
      "}}  // namespace opdock::kernels_in_plugin_toml\n",
      kernels.size(), names.empty() ? names : "{\n" + names + "}");
}

}  // namespace

std::string ops_header(const Manifest& manifest) {
  std::string out =
      "// Written by opdock-pack from plugin.toml: what OPDOCK_OP checks functions by, and the\n"
      "// kernels for opdock/kernel_names.hpp.\n"
      "#include <array>\n#include <string_view>\n\n"
      "namespace opdock::ops_in_plugin_toml {\n";
  for (const OpDecl& op : manifest.ops) {
    const Schema schema = *parse_schema(op.schema, nullptr);  // read_manifest() has checked it
    const std::string place = fmt::format("{}:{}", manifest.path.string(), op.schema_line);
    const bool has_run = op.formula.empty();
    out += fmt::format("template <class PlanFound{}>\n", has_run ? ", class RunFound" : "");
    out += fmt::format("constexpr bool op_{}(PlanFound*{}) {{\n", op.name,
                       has_run ? ", RunFound*" : "");
    out += check("plan", "PlanFound", "Plan&", schema, place);
    if (has_run) out += check("run", "RunFound", "Call&, Results", schema, place);
    out += "  return true;\n}\n";
  }
  out += "}  // namespace opdock::ops_in_plugin_toml\n\n";
  return out + kernel_list(manifest.device ? manifest.device->kernels : std::vector<std::string>());
}

}  // namespace opdock::pack
