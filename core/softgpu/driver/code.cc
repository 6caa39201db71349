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

// The part of one image that has been compiled.
struct Code {
  std::mutex mutex;
  std::map<std::string, Kernel> kernels;         // by name in the image
  std::map<std::string, std::string> not_found;  // by name: why there is no such kernel
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

// Returns what the kernels that are compiled together have in common: the namespace and the first
// template argument, which is a dtype in most kernels. "softmax::block_rows<float, 2>" ->
// "softmax float". A kernel that is no template, as a formula's, is compiled alone.
std::string group_of(const std::string& expression) {
  const size_t begin = expression.find('<');
  if (begin == expression.npos) return expression;
  const size_t space = expression.rfind("::", begin);
  const size_t end = expression.find_first_of(",>", begin);
  return (space == expression.npos ? "" : expression.substr(0, space)) + " " +
         expression.substr(begin + 1, end - begin - 1);
}

// Returns what to compile for a kernel. A plugin has up to a hundred kernels, of which a program
// often launches those of one dtype: they are one library. Less would take more time in all,
// because each library begins with the same headers. If the folder does not tell which of the
// source's kernels this one is, all are compiled together.
KernelSource source_of(const std::string& sha256, const std::string& kernel, const Gpu& gpu) {
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
  const json expressions = entry.value("kernels", json::object());
  if (const auto known = expressions.find(kernel); known != expressions.end()) {
    const std::string group = group_of(known->get<std::string>());
    std::erase_if(source.kernels, [&](const std::string& one) { return group_of(one) != group; });
  }
  source.warp_size = gpu.warp_size;
  source.arch = number_of(entry.at("arch"));
  return source;
}

// Adds the kernel to *kernels. Returns "", or why it cannot be compiled or opened.
std::string add_kernel(const std::string& sha256, const std::string& name, const Gpu& gpu,
                       std::map<std::string, Kernel>* kernels) {
  std::string problem;
  try {
    const KernelSource source = source_of(sha256, name, gpu);
    const std::string path = compile_kernels(source, config().code + "/lib", &problem);
    if (path.empty()) return problem;
    for (Kernel& kernel : open_kernels(path, &problem)) {
      const std::string in_image = kernel.name;
      kernels->try_emplace(in_image, std::move(kernel));  // functions point to what is there
    }
  } catch (const std::exception& error) {
    problem = error.what();
  }
  return problem;
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
  auto found = code.kernels.find(name);
  if (found == code.kernels.end() && !code.not_found.count(name)) {
    const std::string problem = add_kernel(image.sha256, name, gpu, &code.kernels);
    found = code.kernels.find(name);
    if (found == code.kernels.end())
      code.not_found[name] =
          !problem.empty() ? problem : "the source that it was compiled from has none so named";
  }
  if (found != code.kernels.end()) return &found->second;
  const std::string& why = code.not_found[name];
  const std::string what = "the kernel " + name + " of the image " + image.sha256 + " for " +
                           image.arch() + " is not executed: ";
  const std::string where = "; the folder \"code\" names the source of each image";
  std::fprintf(stderr, "softgpu: %s%s%s\n", what.c_str(), why.c_str(), where.c_str());
  // The compiler's messages go only to stderr.
  explain(kNotFound, what + why.substr(0, why.find('\n')) + where);
  return nullptr;
}

}  // namespace softgpu
