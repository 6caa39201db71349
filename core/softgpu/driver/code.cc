// SPDX-License-Identifier: Apache-2.0
#include "code.h"

#include <cstdio>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>

#include "../engine/compile.h"
#include "../engine/engine.h"
#include "reason.h"

namespace softgpu {
namespace {

using nlohmann::json;

// The kernels of one image, or why there are none.
struct Code {
  std::mutex mutex;
  bool tried = false;
  std::string problem;
  std::map<std::string, Kernel> kernels;  // by name in the image
};

json read_json(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot open " + path);
  return json::parse(file);
}

// Returns 900 for "sm_90a" and "compute_90"; 0 for an AMD architecture.
uint32_t number_of(const std::string& arch) {
  const size_t digits = arch.find('_');
  return digits == arch.npos ? 0 : 10 * static_cast<uint32_t>(std::stoul(arch.substr(digits + 1)));
}

KernelSource source_of(const std::string& sha256, const Gpu& gpu) {
  const std::string folder = config().code + "/";
  const json entry = read_json(folder + sha256 + ".json");
  const std::string path = folder + "source-" + entry.at("source").get<std::string>() + ".json";
  const json from = read_json(path);
  KernelSource source;
  source.program = from.at("program");
  source.program_name = from.value("program_name", source.program_name);
  const json headers = from.value("headers", json::object());  // must outlive items()
  for (const auto& [name, text] : headers.items()) {
    source.headers.emplace_back(name, text.get<std::string>());
  }
  source.options = from.value("options", source.options);
  source.kernels = from.value("kernels", source.kernels);
  source.warp_size = gpu.warp_size;
  source.arch = number_of(entry.at("arch"));
  return source;
}

void open_code(const std::string& sha256, const Gpu& gpu, Code* code) {
  code->tried = true;
  try {
    const KernelSource source = source_of(sha256, gpu);
    const std::string path = compile_kernels(source, config().code + "/lib", &code->problem);
    if (path.empty()) return;
    for (Kernel& kernel : open_kernels(path, &code->problem)) {
      const std::string name = kernel.name;
      code->kernels[name] = std::move(kernel);
    }
  } catch (const std::exception& error) {
    code->problem = error.what();
  }
}

Code& code_of(const std::string& key) {
  static std::mutex mutex;
  static auto& codes = *new std::map<std::string, Code>;
  const std::lock_guard lock(mutex);
  return codes[key];
}

}  // namespace

const Kernel* find_kernel(const Image& image, const std::string& name, const Gpu& gpu) {
  Code& code = code_of(image.sha256 + ":" + std::to_string(gpu.warp_size));
  const std::lock_guard lock(code.mutex);
  if (!code.tried) open_code(image.sha256, gpu, &code);
  const auto found = code.kernels.find(name);
  if (found != code.kernels.end()) return &found->second;
  const std::string why = !code.problem.empty()
                              ? code.problem
                              : "the source that it was compiled from has none so named";
  const std::string what = "the kernel " + name + " of the image " + image.sha256 + " for " +
                           image.arch() + " is not executed: ";
  const std::string where = "; the folder \"code\" names the source of each image";
  std::fprintf(stderr, "softgpu: %s%s%s\n", what.c_str(), why.c_str(), where.c_str());
  // The compiler's messages go only to stderr.
  explain(kNotFound, what + why.substr(0, why.find('\n')) + where);
  return nullptr;
}

}  // namespace softgpu
