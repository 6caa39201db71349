// Adds the kernels of a plugin's formulas to what is compiled for its images.
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

}  // namespace opdock::pack
