// SPDX-License-Identifier: Apache-2.0
#include "build/missing_files.h"

#include <unistd.h>

#include <algorithm>

namespace opdock {
namespace {

// Returns the text between the first `open` after `at` and the next `close`; empty if there is
// none.
std::string between(std::string_view text, size_t at, std::string_view open,
                    std::string_view close) {
  const size_t begin = text.find(open, at);
  if (begin == text.npos) return {};
  const size_t end = text.find(close, begin + open.size());
  if (end == text.npos) return {};
  return std::string(text.substr(begin + open.size(), end - begin - open.size()));
}

}  // namespace

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string missing_header(std::string_view log) {
  constexpr std::string_view kGcc = ": No such file or directory";
  for (const std::string_view line : lines_of(log)) {
    const size_t fatal = line.find("fatal error: ");
    if (fatal != line.npos && line.ends_with(kGcc)) {
      const size_t begin = fatal + std::string_view("fatal error: ").size();
      return std::string(line.substr(begin, line.size() - kGcc.size() - begin));
    }
    if (fatal != line.npos && line.find("' file not found", fatal) != line.npos) {
      return between(line, fatal, "'", "'");
    }
    const size_t edg = line.find("cannot open source file");
    if (edg != line.npos) return between(line, edg, "\"", "\"");
  }
  return {};
}

std::string package_of_header(std::string_view header) {
  struct Row {
    std::string_view begin, advice;
  };
  static constexpr Row kRows[] = {
      {"Python.h", "install Python's headers (Debian: apt install python3-dev)"},
      {"cuda_runtime", "install NVIDIA's CUDA Toolkit (Debian: apt install nvidia-cuda-toolkit)"},
      {"cuda", "install NVIDIA's CUDA Toolkit (Debian: apt install nvidia-cuda-toolkit)"},
      {"cublas", "install NVIDIA's CUDA Toolkit (Debian: apt install nvidia-cuda-toolkit)"},
      {"cudnn", "install NVIDIA's cuDNN (Debian: apt install nvidia-cudnn)"},
      {"nvtx", "install NVIDIA's CUDA Toolkit (Debian: apt install nvidia-cuda-toolkit)"},
      {"hip/", "install HIP's headers (Debian: apt install libamdhip64-dev)"},
      {"rocblas", "install rocBLAS's headers (Debian: apt install librocblas-dev)"},
      {"hwy/", "install Highway's headers (Debian: apt install libhwy-dev)"},
      {"torch/", "build with the headers of PyTorch: add its include folder in meson.build"},
      {"ATen/", "build with the headers of PyTorch: add its include folder in meson.build"},
      {"c10/", "build with the headers of PyTorch: add its include folder in meson.build"},
      {"pybind11/", "install pybind11 (Debian: apt install pybind11-dev)"},
      {"numpy/", "build with NumPy's headers: add the folder that numpy.get_include() names"},
      {"omp.h", "install OpenMP's headers (Debian: apt install libomp-dev, or use g++)"},
      {"mpi.h", "install MPI's headers (Debian: apt install libopenmpi-dev)"},
      {"cblas.h", "install BLAS's headers (Debian: apt install libopenblas-dev)"},
      {"Eigen/", "install Eigen (Debian: apt install libeigen3-dev)"},
      {"opdock/", "install the Opdock that has this header: the plugin wants another version"},
  };
  for (const Row& row : kRows) {
    if (header.starts_with(row.begin)) return std::string(row.advice);
  }
  // Headers of the C and C++ standard libraries, such as <cstdint> and <stdio.h>.
  if (header.find('/') == header.npos && (header.find('.') == header.npos || header == "stdio.h" ||
                                          header == "stdlib.h" || header == "stdint.h")) {
    return "install the compiler's standard library (Debian: apt install g++ libc6-dev)";
  }
  return {};
}

bool is_installed_header(std::string_view header) {
  for (const char* folder : {"/usr/include/", "/usr/local/include/", "/usr/local/cuda/include/",
                             "/usr/include/x86_64-linux-gnu/", "/usr/include/aarch64-linux-gnu/"}) {
    if (access((folder + std::string(header)).c_str(), R_OK) == 0) return true;
  }
  return false;
}

std::string left_out(const std::string& plugin_folder, const std::string& copied_folder,
                     const std::string& error) {
  constexpr std::string_view kEnds = " \t\n'\"`()<>:;,=";
  for (size_t at = 0; (at = error.find_first_not_of(kEnds, at)) != error.npos;) {
    const size_t end = std::min(error.find_first_of(kEnds, at), error.size());
    std::string name = error.substr(at, end - at);
    at = end;
    while (name.ends_with('.')) name.pop_back();  // the period that ends a sentence
    if (name.starts_with(plugin_folder + "/")) name.erase(0, plugin_folder.size() + 1);
    const bool is_name =
        name.find_first_of("./") != name.npos && !name.starts_with('/') && !name.starts_with("../");
    if (is_name && access((plugin_folder + "/" + name).c_str(), F_OK) == 0 &&
        access((copied_folder + "/" + name).c_str(), F_OK) != 0) {
      return name;
    }
  }
  return {};
}

}  // namespace opdock
