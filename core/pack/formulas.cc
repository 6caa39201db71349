// SPDX-License-Identifier: Apache-2.0
#include "pack/formulas.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "formula/formula.h"
#include "fused/ahead.h"
#include "manifest/formula_parameters.h"
#include "schema/schema.h"
#include "schema/tensor_rule.h"

namespace opdock::pack {
namespace {

// is_on_gpu: without float64 for gradients, which are rarely computed in it there.
std::vector<formula::Type> types_of(const OpDecl& op, bool is_on_gpu) {
  std::vector<formula::Type> types;
  for (const std::string& dtype : op.dtypes)
    if (const auto type = formula::find_type(dtype)) types.push_back(*type);
  if (is_on_gpu && !op.of_params.empty()) std::erase(types, formula::Type::kFloat64);
  return types;
}

void notice(const Manifest& manifest, const OpDecl& op, const std::string& found,
            const std::string& wanted, const char* rest) {
  std::fprintf(stderr, "opdock-pack: notice: %s: op \"%s\": found %s, wanted at most %s; %s\n",
               manifest.name.c_str(), op.name.c_str(), found.c_str(), wanted.c_str(), rest);
}

// Returns the graphs of an op's usual calls. rest: says what happens to others.
std::vector<formula::Graph> graphs_of(const Manifest& manifest, const OpDecl& op,
                                      const std::vector<formula::Type>& types, const char* rest) {
  Reason reason{};
  std::optional<Schema> schema = parse_schema(op.schema, &reason);
  if (!schema) return {};  // read_manifest() has refused such a schema
  AheadGraphs graphs;
  if (op.of_params.empty()) {
    const formula::Formula formula(op.formula, formula_parameters(*schema));
    graphs = ahead_graphs(*schema, formula, types);
  } else {
    // The formula's parameters follow the gradients of its results.
    std::vector<TensorRule> rules;
    for (TensorRule rule : parse_tensor_rules(op.tensor_rules, *schema, &reason).value_or(rules)) {
      if (rule.param < op.num_grads) continue;
      rule.param = static_cast<uint8_t>(rule.param - op.num_grads);
      rules.push_back(rule);
    }
    const auto first = schema->params.begin();
    schema->params.erase(first, first + static_cast<std::ptrdiff_t>(op.num_grads));
    const formula::Formula formula(op.formula, formula_parameters(*schema));
    graphs = ahead_gradient_graphs(*schema, formula, op.of_params, rules, types);
  }
  if (!graphs.is_whole)
    notice(manifest, op, "more combinations of choices and optional arguments",
           std::to_string(kMaxChoices) + " for each dtype", rest);
  return std::move(graphs.graphs);
}

// Returns the ops that are formulas, the gradients of others last, so that these are what a limit
// leaves out.
std::vector<const OpDecl*> formulas_of(const Manifest& manifest) {
  std::vector<const OpDecl*> ops;
  for (const OpDecl& op : manifest.ops)
    if (!op.formula.empty()) ops.push_back(&op);
  std::stable_partition(ops.begin(), ops.end(),
                        [](const OpDecl* op) { return op->of_params.empty(); });
  return ops;
}

constexpr char kOtherKernels[] = "kernels of the others are compiled when a call first needs them";
constexpr char kOtherCode[] = "the others are interpreted on CPUs, until their code is compiled";

// The header of a table: its declarations are in namespace opdock::formula.
constexpr char kTableHead[] = R"(// Made of formulas by Opdock.
#include "opdock/formula_cpu.h"

#include <string.h>

#include "opdock/simd_level.hpp"

#if !__has_include(<hwy/highway.h>)
#pragma message( \
    "found no <hwy/highway.h>, wanted Highway 1.0.3 or newer for the formulas' CPU code; " \
    "they are interpreted; install Highway (Debian: libhwy-dev) and build again")
#endif

)";

}  // namespace

bool add_formulas(Manifest* manifest, std::vector<SourceText>* sources,
                  std::vector<std::string>* errors) {
  AheadKernels kernels;
  for (const OpDecl* op : formulas_of(*manifest)) {
    if (!op->is_gpu_formula()) continue;
    if (!add_ahead_kernels(op->name, graphs_of(*manifest, *op, types_of(*op, true), kOtherKernels),
                           &kernels)) {
      notice(*manifest, *op, "more kernels",
             fmt::format("{} of a plugin, with {} MiB of source", kMaxAheadKernels,
                         kMaxAheadSource >> 20),
             kOtherKernels);
      break;
    }
  }
  if (kernels.names.empty()) return true;
  const auto is_taken = [](const SourceText& source) { return source.name == kFormulasSource; };
  if (std::any_of(sources->begin(), sources->end(), is_taken)) {
    errors->push_back(
        fmt::format("{}: found a device source called \"{}\", wanted another name, because the "
                    "kernels of the plugin's formulas have this one; rename it",
                    manifest->path.string(), kFormulasSource));
    return false;
  }
  if (!manifest->device) manifest->device.emplace();
  DeviceDecl& device = *manifest->device;
  sources->insert(sources->begin() + static_cast<std::ptrdiff_t>(device.sources.size()),
                  {kFormulasSource, kernels.source});
  device.sources.push_back(kFormulasSource);
  device.kernels.insert(device.kernels.end(), kernels.names.begin(), kernels.names.end());
  return true;
}

FormulaSources formula_sources(const Manifest& manifest) {
  AheadCpuCode code;
  bool has_formulas = false;
  for (const OpDecl* op : formulas_of(manifest)) {
    if (!op->has_cpu_code()) continue;
    has_formulas = true;
    if (!add_ahead_cpu_code(graphs_of(manifest, *op, types_of(*op, false), kOtherCode), &code)) {
      notice(manifest, *op, "more functions", fmt::format("{} of a plugin", kMaxAheadFunctions),
             kOtherCode);
      break;
    }
  }
  if (!has_formulas) return {};
  const std::string parameters = "(const opdock_formula_call* call, int64_t begin, int64_t end)";
  std::string table = std::string(kTableHead) + "namespace opdock {\nnamespace formula {\n";
  for (const std::string& name : code.names)
    table += fmt::format("OPDOCK_SIMD_DECLARE(void {}{})\n", name, parameters);
  table +=
      "}  // namespace formula\n}  // namespace opdock\n\n"
      "extern \"C\" __attribute__((visibility(\"hidden\")))\n"
      "opdock_formula_function opdock_cpu_code(const char* name);\n\n"
      "opdock_formula_function opdock_cpu_code(const char* name) {\n"
      "#if __has_include(<hwy/highway.h>)\n"
      "  using namespace opdock::formula;\n"
      "  struct Code {\n    const char* name;\n    opdock_formula_function function;\n  };\n"
      "  static const Code all[] = {\n      {\"\", nullptr},\n";
  for (const std::string& name : code.names)
    table += fmt::format("      {{\"{0}\", OPDOCK_SIMD_CHOOSE({0})}},\n", name);
  table +=
      "  };\n"
      "  for (const Code& code : all)\n"
      "    if (strcmp(code.name, name) == 0) return code.function;\n"
      "#endif\n"
      "  (void)name;\n"
      "  return nullptr;\n"
      "}\n";
  return {"#if __has_include(<hwy/highway.h>)\n" + code.source + "#endif\n", table};
}

}  // namespace opdock::pack
