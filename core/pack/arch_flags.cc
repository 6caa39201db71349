// SPDX-License-Identifier: Apache-2.0
#include "pack/arch_flags.h"

#include <fmt/format.h>

#include <cstdio>
#include <optional>
#include <vector>

#include "arch/choose.h"
#include "arch/flags.h"
#include "base/sentence.h"
#include "facts/nvrtc_search.h"
#include "jit/nvrtc.h"
#include "pack/ask.h"

namespace opdock::pack {
namespace {

int refuse(const std::string& text) {
  std::fprintf(stderr, "opdock-pack: error: %s\n", text.c_str());
  return 1;
}

// Returns this machine's GPUs if the list says "native" or "auto". Otherwise the machine that
// builds must not decide.
std::vector<Gpu> gpus_for(const std::string& list) {
  Reason reason{};
  const std::optional<CudaList> cuda = parse_cuda_list(list, "", &reason);
  const std::optional<RocmList> rocm = parse_rocm_list(list, "", &reason);
  const bool by_machine =
      (cuda && (cuda->native || cuda->automatic)) || (rocm && (rocm->native || rocm->automatic));
  return by_machine ? probe_machine().gpus : std::vector<Gpu>();
}

}  // namespace

std::optional<Reason> nvcc_archs(const ArchLists& lists, const std::string& nvcc,
                                 std::vector<std::string>* out) {
  CudaArchInputs inputs;
  inputs.sources = {{"--cuda-archs", lists.cuda}};
  inputs.gpus = gpus_for(lists.cuda);
  inputs.gpu_numbers = gpu_numbers_of(lists.gpu);
  inputs.least = lists.least_cuda;
  CompilerArchs known = archs_of_nvcc(Version(), output_of({nvcc, "--help"}).text);
  if (known.targets.empty()) {
    return make_reason(Code::kBuildNoNvcc,
                       fmt::format("no architectures in what `{} --help` prints", nvcc),
                       "nvcc's list of them");
  }
  known.name = nvcc;
  inputs.compilers.push_back(std::move(known));
  Reason reason{};
  std::optional<CudaArchChoice> choice = choose_cuda_archs(inputs, &reason);
  if (choice && choice->targets.empty()) {
    // "auto" without a GPU: nvcc's code is not compiled at first use, so it has to be made now.
    inputs.sources.clear();
    choice = choose_cuda_archs(inputs, &reason);
  }
  if (!choice) return reason;
  *out = gencode_arguments(choice->targets);
  return std::nullopt;
}

std::optional<Reason> hipcc_archs(const ArchLists& lists, std::vector<std::string>* out) {
  RocmArchInputs inputs;
  inputs.sources = {{"--hip-archs", lists.hip}};
  inputs.gpus = gpus_for(lists.hip);
  Reason reason{};
  const std::optional<RocmArchChoice> choice = choose_rocm_archs(inputs, &reason);
  if (!choice) return reason;
  *out = offload_arguments(choice->targets);
  return std::nullopt;
}

int write_known_archs(const std::vector<std::string>& nvrtc_search) {
  std::vector<std::string> problems;
  for (const Nvrtc* compiler : open_nvrtcs(nvrtc_candidates(nvrtc_search, nullptr), &problems)) {
    std::string line =
        fmt::format("NVRTC {}.{}", compiler->version().major(), compiler->version().minor());
    for (const int number : compiler->archs()) line += fmt::format(" {}", number);
    std::printf("%s\n", line.c_str());
  }
  for (const std::string& problem : problems) std::fprintf(stderr, "%s\n", problem.c_str());
  return std::fflush(stdout) == 0 ? 0 : refuse("standard output cannot be written");
}

bool check_hip_archs(const std::string& list) {
  Reason reason{};
  if (list.find_first_not_of(" \t\r\n") == std::string::npos) return true;
  if (parse_rocm_list(list, "--hip-archs", &reason)) return true;
  refuse(to_line(reason));
  return false;
}

}  // namespace opdock::pack
