// Adds the kernels of a plugin's formulas to what is compiled for its images, and their code for
// CPUs to its host part.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "manifest/manifest.h"
#include "pack/images.h"

namespace opdock::pack {

// The name of the source in the plugin.
inline constexpr char kFormulasSource[] = "formulas.cuh";

// Adds the source of the kernels that the formulas of `manifest` have built ahead (fused/ahead.h)
// to `sources`, and the source and the kernels to its [device], which need not be there. What is
// beyond a limit gives a notice on standard error. Returns false and errors if the plugin has a
// device source of that name.
bool add_formulas(Manifest* manifest, std::vector<SourceText>* sources,
                  std::vector<std::string>* errors);

// The sources in C++ of a plugin's compiled code for CPUs.
struct FormulaSources {
  std::string code;   // compiled once for each SIMD level, with cpu_source_arguments()
  std::string table;  // defines the function opdock_cpu_code (opdock_op.cpu_code)
};

// Writes the code of the plugin's formulas that is built ahead (fused/ahead.h). Both sources are
// empty if the plugin has no formula for CPUs. Where the compiler finds no Highway, the code is
// left out with a message, and the formulas are interpreted. What is beyond a limit gives a notice
// on standard error.
FormulaSources formula_sources(const Manifest& manifest);

}  // namespace opdock::pack
