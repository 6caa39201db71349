// Finds where lists of architectures come from, and makes the list in a build's request, for which
// no compiler is asked.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "arch/choose_inputs.h"

namespace opdock {

static std::vector<ArchSource> sources_of(const std::string& option_name, const std::string& option,
                                          const char* variable, const Environment& environment,
                                          const char* key, const std::string& config_path,
                                          const std::string& config) {
  return {{option_name, option},
          {variable, environment.variable(variable).value_or("")},
          {fmt::format("{} in {}", key, config_path), config}};
}

std::vector<ArchSource> cuda_arch_sources(const std::string& option_name, const std::string& option,
                                          const Environment& environment,
                                          const std::string& config_path,
                                          const std::string& config) {
  return sources_of(option_name, option, "TORCH_CUDA_ARCH_LIST", environment, "cuda-archs",
                    config_path, config);
}

std::vector<ArchSource> rocm_arch_sources(const std::string& option_name, const std::string& option,
                                          const Environment& environment,
                                          const std::string& config_path,
                                          const std::string& config) {
  return sources_of(option_name, option, "PYTORCH_ROCM_ARCH", environment, "hip-archs", config_path,
                    config);
}

std::optional<ArchRequest> request_cuda_archs(const std::vector<ArchSource>& sources,
                                              const std::vector<Gpu>& gpus, int least,
                                              Reason* reason) {
  CudaArchInputs inputs;
  inputs.gpus = gpus;
  inputs.least = least;
  std::string words;
  bool by_gpus = true;  // false if a list decides
  std::vector<CudaTarget> written;
  for (const ArchSource& source : sources) {
    if (!is_given(source)) continue;
    const std::optional<CudaList> list = parse_cuda_list(source.text, source.name, reason);
    if (!list) return std::nullopt;
    by_gpus = list->native || list->automatic;
    written = list->targets;
    if (list->all) words += "all;";
    if (list->all_major) words += "all-major;";
    if (list->by_default) words += "default;";
    // The rest can be chosen without a compiler.
    std::string rest = to_text(list->targets);
    if (list->native) rest += rest.empty() ? "native" : ";native";
    if (list->automatic) rest += rest.empty() ? "auto" : ";auto";
    if (rest.empty()) return ArchRequest{words.substr(0, words.size() - 1), source.name, {}, {}};
    inputs.sources = {{source.name, rest}};
    break;
  }
  std::optional<CudaArchChoice> choice = choose_cuda_archs(inputs, reason);
  if (!choice && !words.empty() && reason->code == Code::kArchBelowLeast)
    return ArchRequest{words.substr(0, words.size() - 1), inputs.sources.front().name, {}, {}};
  if (!choice) return std::nullopt;
  if (!words.empty()) choice->notices.clear();  // the words cover what the list does not
  std::vector<CudaTarget> of_gpus;
  for (const Gpu& gpu : by_gpus ? gpus_of(gpus, Backend::kCuda) : std::vector<Gpu>()) {
    const int number = number_of(gpu);
    if (number < least) continue;
    const bool is_written = std::any_of(
        written.begin(), written.end(),
        [&](const CudaTarget& target) { return target.number == number && target.suffix == '\0'; });
    if (!is_written) merge(plain(number), &of_gpus);
  }
  return ArchRequest{words + choice->text(), choice->origin, std::move(choice->notices),
                     to_text(of_gpus)};
}

std::vector<int> gpu_numbers_of(const std::string& gpu_archs) {
  Reason ignored{};
  std::vector<int> numbers;
  if (const std::optional<CudaList> list = parse_cuda_list(gpu_archs, "", &ignored)) {
    for (const CudaTarget& target : list->targets) numbers.push_back(target.number);
  }
  return numbers;
}

}  // namespace opdock
