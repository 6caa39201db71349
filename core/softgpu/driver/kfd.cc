// SPDX-License-Identifier: Apache-2.0
#include "kfd.h"

#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace softgpu {
namespace {

namespace fs = std::filesystem;

constexpr int kFirstRender = 128;
constexpr uint64_t kSramEcc = uint64_t{1} << 26;  // in the capability word

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream file(path);
  if (!(file << text)) throw std::runtime_error("cannot write " + path.string());
}

// Returns 90010 for gfx90a: major 9, minor 0, stepping 10.
uint64_t target_version(const Gpu& gpu) {
  const std::string processor = gpu.arch.substr(0, gpu.arch.find(':'));
  const int stepping = std::stoi(processor.substr(processor.size() - 1), nullptr, 16);
  return static_cast<uint64_t>(gpu.major * 10000 + gpu.minor * 100 + stepping);
}

void write_gpu(const fs::path& node, const Gpu& gpu, int render) {
  const bool ecc = gpu.arch.find(":sramecc+") != std::string::npos;
  const auto line = [](const char* name, uint64_t value) {
    return std::string(name) + " " + std::to_string(value) + "\n";
  };
  write(node / "name", gpu.name + "\n");
  write(node / "properties",
        line("cpu_cores_count", 0) + line("simd_count", uint64_t{gpu.multiprocessors} * 4) +
            line("wave_front_size", gpu.warp_size) + line("capability", ecc ? kSramEcc : 0) +
            line("gfx_target_version", target_version(gpu)) +
            line("drm_render_minor", static_cast<uint64_t>(render)) +
            line("unique_id", std::stoull(gpu.uuid.substr(4), nullptr, 16)));
  write(node / "mem_banks/0/properties", line("heap_type", 1) + line("size_in_bytes", gpu.memory));
}

}  // namespace

void write_kfd(const std::vector<Gpu>& gpus, const std::string& folder) {
  const fs::path nodes = fs::path(folder) / "sys/class/kfd/kfd/topology/nodes";
  write(fs::path(folder) / "dev/kfd", "");
  write(nodes / "0/name", "\n");  // the CPU
  write(nodes / "0/properties", "cpu_cores_count 2\nsimd_count 0\ngfx_target_version 0\n");
  int number = 0;
  for (const Gpu& gpu : gpus) {
    const int render = kFirstRender + number++;
    write(fs::path(folder) / "dev/dri" / ("renderD" + std::to_string(render)), "");
    write_gpu(nodes / std::to_string(number), gpu, render);
  }
}

}  // namespace softgpu
