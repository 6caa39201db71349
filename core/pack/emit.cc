// SPDX-License-Identifier: Apache-2.0
#include "pack/emit.h"

#include <fmt/format.h>

#include <algorithm>

#include "opdock/plugin.h"

namespace opdock::pack {

// C, C++ and GNU as all take three-digit octal escapes. C's trigraphs need two question marks, so
// these are escaped too.
std::string literal(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    unsigned char byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f || c == '"' || c == '\\' || c == '?')
      out += fmt::format("\\{:03o}", byte);
    else
      out += c;
  }
  return out + "\"";
}

// Writes "static const TYPE NAME[] = {…};", or nothing for no items. Returns what refers to the
// array: its name, or "NULL".
static std::string array_source(const std::string& type, const std::string& name,
                                const std::vector<std::string>& items, std::string* out) {
  if (items.empty()) return "NULL";
  *out += fmt::format("static const {} {}[] = {{{}}};\n", type, name, fmt::join(items, ", "));
  return name;
}

static std::vector<std::string> literals(const std::vector<std::string>& texts) {
  std::vector<std::string> out;
  for (const std::string& text : texts) out.push_back(literal(text));
  return out;
}

static std::string op_source(const OpDecl& op, size_t index) {
  std::string out;
  const auto name = [&](const char* what) { return fmt::format("{}_{}", what, index); };
  std::vector<std::string> devices;
  for (const uint8_t device : op.arg_devices) devices.push_back(fmt::format("{}", device));
  const std::string rules = array_source("char* const", name("rules"), literals(op.shape), &out);
  const std::string gradients =
      array_source("char* const", name("gradients"), literals(op.gradients), &out);
  const std::string tensor_rules =
      array_source("char* const", name("tensor_rules"), literals(op.tensor_rules), &out);
  const std::string arg_devices = array_source("uint8_t", name("arg_devices"), devices, &out);
  if (!op.formula.empty()) {
    out += fmt::format(
        "OPDOCK_LOCAL __attribute__((weak)) opdock_status opdock_{0}_plan(const opdock_call*,\n"
        "    const opdock_value*, uint32_t, opdock_plan*);\n",
        op.name);
  } else {
    out += fmt::format(
        "OPDOCK_LOCAL opdock_status opdock_{0}_plan(const opdock_call*, const opdock_value*, "
        "uint32_t,\n                                            opdock_plan*);\n"
        "OPDOCK_LOCAL __attribute__((weak)) opdock_status opdock_{0}_prepare(const opdock_call*);\n"
        "OPDOCK_LOCAL opdock_status opdock_{0}_run(const opdock_call*, const opdock_value*, "
        "uint32_t,\n                                           opdock_value*, uint32_t);\n",
        op.name);
  }
  const std::string gradients_of =
      op.of_params.empty()
          ? ""
          : fmt::format("    .gradients_of = {},\n    .num_grads = {}u,\n",
                        literal(fmt::format("{}", fmt::join(op.of_params, ", "))), op.num_grads);
  const std::string functions =
      op.formula.empty()
          ? fmt::format(
                "    .plan = opdock_{0}_plan,\n"
                "    .prepare = opdock_{0}_prepare,\n"
                "    .run = opdock_{0}_run,\n",
                op.name)
          : fmt::format("    .plan = opdock_{}_plan,\n    .formula = {},\n{}", op.name,
                        literal(op.formula),
                        op.has_cpu_code() ? "    .cpu_code = opdock_cpu_code,\n" : "");
  out += fmt::format(
      "static const opdock_op op_{0} = {{\n"
      "    .struct_size = sizeof(opdock_op),\n"
      "    .flags = {1}u,\n"
      "    .schema = {2},\n"
      "    .doc = {3},\n"
      "    .device_arg = {4}u,\n"
      "    .num_shape_rules = {5}u,\n"
      "    .shape_rules = {6},\n"
      "    .arg_devices = {7},\n"
      "    .gradients = {8},\n"
      "    .num_gradients = {9}u,\n"
      "    .num_tensor_rules = {10}u,\n"
      "{11}"
      "    .tensor_rules = {12},\n"
      "{13}"
      "}};\n\n",
      index, op.flag_bits, literal(op.schema), literal(op.doc), op.device_arg_index,
      op.shape.size(), rules, arg_devices, gradients, op.gradients.size(), op.tensor_rules.size(),
      functions, tensor_rules, gradients_of);
  return out;
}

std::string entry_source(const Manifest& manifest) {
  std::string out =
      "/* Written by opdock-pack from plugin.toml. */\n"
      "#include \"opdock/plugin.h\"\n\n"
      "/* Hidden, so that a weak one that is absent cannot be bound to another library's. */\n"
      "#define OPDOCK_LOCAL __attribute__((visibility(\"hidden\")))\n\n";
  if (std::any_of(manifest.ops.begin(), manifest.ops.end(),
                  [](const OpDecl& op) { return op.has_cpu_code(); }))
    out += "OPDOCK_LOCAL opdock_formula_function opdock_cpu_code(const char* name);\n\n";
  for (size_t i = 0; i < manifest.ops.size(); ++i) out += op_source(manifest.ops[i], i);
  std::vector<std::string> ops;
  for (size_t i = 0; i < manifest.ops.size(); ++i) ops.push_back(fmt::format("&op_{}", i));
  array_source("opdock_op* const", "ops", ops, &out);
  const std::vector<std::string> names =
      manifest.device ? manifest.device->kernels : std::vector<std::string>();
  const std::string kernels = array_source("char* const", "kernels", literals(names), &out);
  out += fmt::format(
      "\n"
      "OPDOCK_LOCAL __attribute__((weak)) opdock_status opdock_init(const opdock_host*, char*,\n"
      "                                                             uint32_t);\n\n"
      "static const opdock_plugin plugin = {{\n"
      "    .struct_size = sizeof(opdock_plugin),\n"
      "    .abi_major = OPDOCK_ABI_MAJOR,\n"
      "    .abi_minor = OPDOCK_ABI_MINOR,\n"
      "    .num_ops = {}u,\n"
      "    .name = {},\n"
      "    .version = {},\n"
      "    .ops = ops,\n"
      "    .kernels = {},\n"
      "    .num_kernels = {}u,\n"
      "    .init = opdock_init,\n"
      "}};\n\n"
      "OPDOCK_EXPORT const opdock_plugin* OPDOCK_ENTRY(void) {{ return &plugin; }}\n",
      manifest.ops.size(), literal(manifest.name), literal(manifest.version), kernels,
      names.size());
  return out;
}

std::string note_source(const Note& note, const std::string& images_file) {
  const std::string json = note_json(note);
  std::string hash;
  for (size_t i = 0; i < note.head.build_hash.size(); ++i)
    hash += fmt::format("{}0x{:02x}", i ? ", " : "", note.head.build_hash[i]);
  std::string text;
  for (size_t begin = 0; begin < json.size(); begin += 64)
    text += fmt::format("  .ascii {}\n", literal(std::string_view(json).substr(begin, 64)));
  std::string out = fmt::format(
      "# Written by opdock-pack from plugin.toml.\n"
      "  .section .note.opdock, \"a\", %note\n"
      "  .balign 4\n"
      "  .long {}, .Lopdock_end - .Lopdock_head, {}\n"
      "  .asciz \"{}\"\n"
      "  .balign 4\n"
      ".Lopdock_head:\n"
      "  .short {}, {}, {}, {}\n"
      "  .long 0, {}\n"
      "  .byte {}\n"
      "{}"
      ".Lopdock_end:\n"
      "  .balign 4\n",
      sizeof(kNoteOwner), kNoteType, kNoteOwner, kNoteVersion, sizeof(NoteHead), OPDOCK_ABI_MAJOR,
      OPDOCK_ABI_MINOR, json.size(), hash, text);
  if (!images_file.empty())
    out += fmt::format(
        "  .section .rodata.opdock_images, \"a\", %progbits\n"
        "  .balign 64\n"
        "  .globl {0}\n"
        "  .type {0}, %object\n"
        "{0}:\n"
        "  .incbin {1}\n"
        "  .size {0}, . - {0}\n",
        OPDOCK_IMAGES_NAME, literal(images_file));
  return out + "  .section .note.GNU-stack, \"\", %progbits\n";
}

}  // namespace opdock::pack
