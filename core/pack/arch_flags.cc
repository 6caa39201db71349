// SPDX-License-Identifier: Apache-2.0
#include "pack/arch_flags.h"

#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <optional>
#include <vector>

#include "arch/choose.h"
#include "arch/flags.h"
#include "base/sentence.h"
#include "facts/nvrtc_search.h"
#include "jit/nvrtc.h"

namespace opdock::pack {
namespace {

int refuse(const std::string& text) {
  std::fprintf(stderr, "opdock-pack: error: %s\n", text.c_str());
  return 1;
}

// In single quotes for a POSIX shell.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

std::string help_of(const std::string& program) {
  std::string text;
  FILE* pipe = popen((quoted(program) + " --help 2>/dev/null").c_str(), "re");
  if (pipe == nullptr) return text;
  char buffer[4096];
  constexpr size_t kLongest = 1 << 20;
  for (size_t count; (count = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;)
    if (text.size() < kLongest) text.append(buffer, count);
  pclose(pipe);
  return text;
}

// The machine that builds decides only if asked to.
std::vector<Gpu> gpus_for(const std::string& list) {
  Reason reason{};
  const std::optional<CudaList> cuda = parse_cuda_list(list, "", &reason);
  const std::optional<RocmList> rocm = parse_rocm_list(list, "", &reason);
  return (cuda && cuda->native) || (rocm && rocm->native) ? probe_machine().gpus
                                                          : std::vector<Gpu>();
}

std::optional<std::vector<std::string>> nvcc_arguments(const ArchFlags& flags, std::string* error) {
  CudaArchInputs inputs;
  inputs.sources = {{"--cuda-archs", flags.cuda_archs}};
  inputs.gpus = gpus_for(flags.cuda_archs);
  inputs.gpu_numbers = gpu_numbers_of(flags.gpu_archs);
  if (!flags.program.empty()) {
    CompilerArchs known = archs_of_nvcc(Version(), help_of(flags.program));
    if (known.targets.empty()) {
      *error = fmt::format("found no architectures in what `{} --help` prints, wanted nvcc's list",
                           flags.program);
      return std::nullopt;
    }
    known.name = flags.program;
    inputs.compilers.push_back(std::move(known));
  }
  Reason reason{};
  const std::optional<CudaArchChoice> choice = choose_cuda_archs(inputs, &reason);
  if (!choice) {
    *error = to_line(reason);
    return std::nullopt;
  }
  return gencode_arguments(choice->targets);
}

std::optional<std::vector<std::string>> hipcc_arguments(const ArchFlags& flags,
                                                        std::string* error) {
  RocmArchInputs inputs;
  inputs.sources = {{"--hip-archs", flags.hip_archs}};
  inputs.gpus = gpus_for(flags.hip_archs);
  Reason reason{};
  const std::optional<RocmArchChoice> choice = choose_rocm_archs(inputs, &reason);
  if (!choice) {
    *error = to_line(reason);
    return std::nullopt;
  }
  return offload_arguments(choice->targets);
}

}  // namespace

int write_arch_flags(const ArchFlags& flags) {
  std::string error;
  const std::optional<std::vector<std::string>> arguments =
      flags.compiler == "nvcc" ? nvcc_arguments(flags, &error) : hipcc_arguments(flags, &error);
  if (!arguments) return refuse(error);
  std::string text;
  for (const std::string& argument : *arguments) text += argument + "\n";
  if (flags.out.empty()) {
    std::fputs(text.c_str(), stdout);
    return std::fflush(stdout) == 0 ? 0 : refuse("standard output cannot be written");
  }
  std::ofstream file(flags.out, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  return file ? 0 : refuse(flags.out + " cannot be written");
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
