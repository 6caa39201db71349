// SPDX-License-Identifier: Apache-2.0
#include "chain/build_archs.h"

#include "arch/choose.h"

namespace opdock {

// Returns whether the plugin has code of its own. Formulas need no image: a first use compiles the
// kernel that it needs, which takes less time than all of them, and where neither a list nor a GPU
// decides, they are not compiled for the default's many architectures.
static bool needs_images(const Manifest& manifest) {
  return manifest.device || !manifest.sources.empty() || !manifest.has_gpu_formulas();
}

bool decide_archs(const Manifest& manifest, const ArchSettings& settings,
                  const MachineFacts& machine, bool ahead_of_time, BuildOptions* options,
                  std::vector<Reason>* reasons) {
  const Environment environment = current_environment();
  Reason reason{};
  if (!ahead_of_time && !needs_images(manifest)) {
    options->cuda_archs.clear();
    options->gpu_archs.clear();
    options->hip_archs.clear();
    return true;
  }
  if (!manifest.is_for(Backend::kCuda)) {
    options->cuda_archs.clear();
    options->gpu_archs.clear();
  } else {
    const auto sources = cuda_arch_sources("--archs", options->cuda_archs, environment,
                                           settings.cuda_place, settings.cuda);
    const auto request =
        request_cuda_archs(sources, machine.gpus, manifest.build.least_cuda, &reason);
    if (!request) {
      reasons->push_back(std::move(reason));
      return false;
    }
    options->cuda_archs = request->text;
    options->gpu_archs = request->gpu_archs;
    options->arch_origin = request->origin;
    if (options->cuda_archs.empty() && ahead_of_time && needs_images(manifest))
      options->cuda_archs = "default";
    if (ahead_of_time) options->must_run_here |= !request->gpu_archs.empty();
    reasons->insert(reasons->end(), request->notices.begin(), request->notices.end());
  }
  if (!manifest.is_for(Backend::kRocm)) {
    options->hip_archs.clear();
    return true;
  }
  RocmArchInputs inputs;
  inputs.sources = rocm_arch_sources("--hip-archs", options->hip_archs, environment,
                                     settings.hip_place, settings.hip);
  inputs.gpus = machine.gpus;
  const auto choice = choose_rocm_archs(inputs, &reason);
  if (!choice) {
    reasons->push_back(std::move(reason));
    return false;
  }
  options->hip_archs = choice->text();
  options->hip_origin = choice->origin;
  if (ahead_of_time) options->must_run_here |= choice->by_gpus;
  reasons->insert(reasons->end(), choice->notices.begin(), choice->notices.end());
  return true;
}

}  // namespace opdock
