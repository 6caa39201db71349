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

namespace opdock::pack {
namespace {

std::vector<formula::Type> types_of(const OpDecl& op) {
  std::vector<formula::Type> types;
  for (const std::string& dtype : op.dtypes)
    if (const auto type = formula::find_type(dtype)) types.push_back(*type);
  return types;
}

void notice(const Manifest& manifest, const OpDecl& op, const std::string& found,
            const std::string& wanted) {
  std::fprintf(stderr,
               "opdock-pack: notice: %s: op \"%s\": found %s, wanted at most %s; kernels of the "
               "others are compiled when a call first needs them\n",
               manifest.name.c_str(), op.name.c_str(), found.c_str(), wanted.c_str());
}

}  // namespace

bool add_formulas(Manifest* manifest, std::vector<SourceText>* sources,
                  std::vector<std::string>* errors) {
  AheadKernels kernels;
  for (const OpDecl& op : manifest->ops) {
    if (!op.is_gpu_formula()) continue;
    // Kernels of gradients depend on how each tensor is broadcast, and are made by the first call.
    if (!op.of_params.empty()) continue;
    Reason reason{};
    const std::optional<Schema> schema = parse_schema(op.schema, &reason);
    if (!schema) continue;  // read_manifest() has refused such a schema
    const formula::Formula formula(op.formula, formula_parameters(*schema));
    const AheadGraphs graphs = ahead_graphs(*schema, formula, types_of(op));
    if (!graphs.is_whole)
      notice(*manifest, op, "more combinations of choices and optional arguments",
             std::to_string(kMaxChoices) + " for each dtype");
    if (!add_ahead_kernels(op.name, graphs.graphs, &kernels)) {
      notice(*manifest, op, "more kernels",
             fmt::format("{} of a plugin, with {} MiB of source", kMaxAheadKernels,
                         kMaxAheadSource >> 20));
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

}  // namespace opdock::pack
