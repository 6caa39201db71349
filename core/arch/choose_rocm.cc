// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "arch/choose.h"
#include "arch/choose_inputs.h"
#include "compat/image_fit.h"

namespace opdock {

std::optional<RocmArchChoice> choose_rocm_archs(const RocmArchInputs& inputs, Reason* reason) {
  const std::vector<Gpu> gpus = gpus_of(inputs.gpus, Backend::kRocm);
  RocmArchChoice choice;
  choice.origin = gpus.empty() ? "no AMD GPU" : "the visible GPUs";
  bool native = !gpus.empty();
  for (const ArchSource& source : inputs.sources) {
    if (!is_given(source)) continue;
    choice.origin = source.name;
    const std::optional<RocmList> list = parse_rocm_list(source.text, source.name, reason);
    if (!list) return std::nullopt;
    choice.targets = list->targets;
    native = list->native || list->automatic;
    if (list->native && gpus.empty()) {
      *reason =
          make_reason(Code::kBuildArch,
                      fmt::format("{} = \"{}\", and no visible AMD GPU", source.name, source.text),
                      "a GPU whose architecture `native` means");
      reason->advice = "name the processors; `opdock doctor` says why no GPU is seen";
      return std::nullopt;
    }
    break;
  }
  choice.by_gpus = native;
  const auto processor = [](const std::string& target) {
    return target.substr(0, target.find(':'));
  };
  std::set<std::string> named;
  for (const std::string& target : choice.targets) named.insert(processor(target));
  for (const Gpu& gpu : gpus) {
    const std::string wanted = processor(gpu.arch);
    if (native && named.insert(wanted).second) choice.targets.push_back(wanted);
  }
  std::sort(choice.targets.begin(), choice.targets.end());
  for (const Gpu& gpu : gpus) {
    DeviceImage image;
    image.backend = Backend::kRocm;
    image.kind = ImageKind::kCodeObject;
    const bool covered =
        std::any_of(choice.targets.begin(), choice.targets.end(), [&](const std::string& target) {
          image.arch = target;
          return !fit_rocm(image, gpu).problem;
        });
    if (covered) continue;
    choice.notices.push_back(
        make_reason(Code::kArchUncovered, fmt::format("{} from {}", choice.text(), choice.origin),
                    fmt::format("{} for GPU {} ({})", gpu.arch, gpu.index, gpu.name)));
  }
  return choice;
}

}  // namespace opdock
