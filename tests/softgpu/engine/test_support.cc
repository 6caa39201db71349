// SPDX-License-Identifier: Apache-2.0
#include "test_support.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace softgpu {

namespace fs = std::filesystem;

std::string read_source(const std::string& path) {
  std::ifstream file(fs::path(SOURCE_ROOT) / path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::vector<std::pair<std::string, std::string>> headers_with(
    const std::vector<std::string>& paths) {
  std::vector<std::pair<std::string, std::string>> headers;
  const fs::path device = fs::path(SOURCE_ROOT) / "core/device/opdock";
  for (const fs::directory_entry& entry : fs::directory_iterator(device)) {
    const std::string name = entry.path().filename();
    headers.emplace_back("opdock/" + name, read_source("core/device/opdock/" + name));
  }
  for (const std::string& path : paths)
    headers.emplace_back(fs::path(path).filename(), read_source(path));
  return headers;
}

std::vector<Kernel> make_kernels(const std::string& program,
                                 const std::vector<std::string>& expressions, uint32_t warp_size,
                                 const std::vector<std::string>& paths) {
  KernelSource source;
  source.program = program;
  source.program_name = "test.cu";
  source.headers = headers_with(paths);
  source.kernels = expressions;
  source.warp_size = warp_size;
  source.arch = warp_size == 32 ? 900 : 0;
  std::string problem;
  const std::string library = compile_kernels(source, KERNEL_FOLDER, &problem);
  EXPECT_FALSE(library.empty()) << problem;
  if (library.empty()) return {};
  std::vector<Kernel> kernels = open_kernels(library, &problem);
  EXPECT_EQ(kernels.size(), expressions.size()) << problem;
  return kernels;
}

Kernel make_kernel(const std::string& program, const std::string& expression, uint32_t warp_size) {
  const std::vector<Kernel> kernels =
      make_kernels("#include \"opdock/device.cuh\"\nusing namespace opdock;\n" + program,
                   {expression}, warp_size);
  return kernels.empty() ? Kernel() : kernels.front();
}

std::string finding_of(const Operation& operation, const Launch& launch) {
  clear_findings();
  const bool good = execute(operation, launch);
  const std::vector<std::string> found = findings();
  EXPECT_EQ(good, found.empty());
  clear_findings();
  return found.empty() ? "" : found.front();
}

void expect_finding(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << "no \"" << part << "\" in:\n" << text;
}

}  // namespace softgpu
