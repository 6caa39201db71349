// Finds the best image for a GPU, and the reasons why the other images do not run there.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include "base/texts.h"
#include "compat/image_fit.h"
#include "compat/verdict.h"
#include "facts/arch.h"

namespace opdock {
namespace {

std::string name_of(const DeviceImage& image) {
  if (image.arch.empty()) return image.compressed ? "a compressed image" : "an image";
  return image.kind == ImageKind::kPtx ? image.arch + " PTX" : image.arch;
}

std::string made_by(const DeviceImage& image) {
  if (image.toolkit.empty()) return name_of(image);
  return name_of(image) + " (toolkit " + image.toolkit.text() + ")";
}

// Returns "sm_80 to sm_86, or PTX of at most compute_86", in the GPU's own terms.
std::string what_runs_on(const Gpu& gpu) {
  if (gpu.backend == Backend::kRocm) return gpu.arch;
  const std::string number = std::to_string(gpu.major) + std::to_string(gpu.minor);
  std::string text = "sm_" + number;
  if (!gpu.tegra && gpu.minor > 0) text = "sm_" + std::to_string(gpu.major) + "0 to " + text;
  return text + ", or PTX of at most compute_" + number;
}

std::string driver_text(const MachineFacts& machine) {
  if (!machine.cuda_driver) return "a driver whose CUDA version is not known";
  return "a driver for CUDA " + machine.cuda_driver->text();
}

// Returns one reason for all images that fail with `code`.
Reason reason_for(Code code, const std::vector<const DeviceImage*>& images, const Gpu& gpu,
                  const MachineFacts& machine) {
  std::vector<std::string> names, toolkits;
  for (const DeviceImage* image : images) {
    const std::string name = name_of(*image);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    const std::string made = made_by(*image);  // a library may have hundreds of one kind
    if (std::find(toolkits.begin(), toolkits.end(), made) == toolkits.end()) {
      toolkits.push_back(made);
    }
  }
  switch (code) {
    case Code::kDriverTooOld: {
      Version oldest;
      for (const DeviceImage* image : images) {
        const Version needed = image->kind == ImageKind::kCubin
                                   ? Version{image->toolkit.major(), 0}
                                   : Version{image->toolkit.major(), image->toolkit.minor()};
        if (oldest.empty() || needed < oldest) oldest = needed;
      }
      return make_reason(code, driver_text(machine),
                         "CUDA " + oldest.text() + " or newer for " + join(toolkits));
    }
    case Code::kToolkitUnknown:
      if (!machine.cuda_driver) return make_reason(code, driver_text(machine), join(toolkits));
      return make_reason(code, join(names) + " without its toolkit's version",
                         "a toolkit of at most CUDA " + machine.cuda_driver->text());
    case Code::kArchUnknown:
      return make_reason(code, join(names) + " without its architecture", what_runs_on(gpu));
    default: {
      Reason reason = make_reason(code, join(names), what_runs_on(gpu));
      if (code != Code::kFeatureFlags) reason.advice = "build it for " + gpu.arch;
      return reason;
    }
  }
}

}  // namespace

std::optional<Reason> judge_least(int least, const Gpu& gpu) {
  if (gpu.backend != Backend::kCuda || 10 * gpu.major + gpu.minor >= least) return std::nullopt;
  return make_reason(Code::kArchBelowLeast, gpu.arch,
                     "sm_" + std::to_string(least) + " or later, which the plugin is made for");
}

int best_image(const std::vector<DeviceImage>& images, const Gpu& gpu, const MachineFacts& machine,
               std::vector<Reason>* reasons) {
  int best = -1, best_undecided = -1;
  std::array<int, 4> best_rank{}, best_undecided_rank{};
  std::map<Code, std::vector<const DeviceImage*>> problems;
  bool any = false;
  std::string source;
  for (size_t i = 0; i < images.size(); ++i) {
    const DeviceImage& image = images[i];
    if (image.kind == ImageKind::kSource) {  // source serves GPUs of all backends
      source = image.arch;
      continue;
    }
    if (image.backend != gpu.backend) continue;
    any = true;
    const ImageFit fit =
        gpu.backend == Backend::kRocm ? fit_rocm(image, gpu) : fit_cuda(image, gpu, machine);
    if (!fit.problem && (best < 0 || fit.rank > best_rank)) {
      best = static_cast<int>(i);
      best_rank = fit.rank;
    }
    if (!fit.problem) continue;
    problems[*fit.problem].push_back(&image);
    if (info(*fit.problem).severity == Severity::kUndecided &&
        (best_undecided < 0 || fit.rank > best_undecided_rank)) {
      best_undecided = static_cast<int>(i);
      best_undecided_rank = fit.rank;
    }
  }
  if (best >= 0) {
    if (images[best].kind == ImageKind::kPtx) {
      Reason reason = make_reason(Code::kPtxOnly, name_of(images[best]), "a cubin for " + gpu.arch);
      reasons->push_back(std::move(reason));
    }
    return best;
  }
  for (const auto& [code, failed] : problems) {
    // Problems of other images do not count against one that may run.
    if (best_undecided >= 0 && info(code).severity != Severity::kUndecided) continue;
    reasons->push_back(reason_for(code, failed, gpu, machine));
  }
  if (best_undecided >= 0) return best_undecided;
  if (!source.empty()) {
    Reason reason = make_reason(Code::kSourceOnly, "device source (" + source + ")",
                                "a compiled image for " + gpu.arch);
    reason.advice = "build it for " + gpu.arch;
    reasons->push_back(std::move(reason));
  } else if (!any) {
    reasons->push_back(make_reason(Code::kNoImages,
                                   "no " + std::string(to_text(gpu.backend)) + " image",
                                   "one for " + gpu.arch));
  }
  return -1;
}

}  // namespace opdock
