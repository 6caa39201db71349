// SPDX-License-Identifier: Apache-2.0
#include "pack/hip_images.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "arch/choose.h"
#include "base/sentence.h"
#include "jit/compiler.h"

namespace opdock::pack {
namespace {

CompileRequest base_request(const ImageRequest& request) {
  const DeviceDecl& device = *request.manifest->device;
  CompileRequest all;
  all.name = request.manifest->name;
  all.headers = request.sources;
  for (const std::string& source : device.sources)
    all.sources.push_back(std::filesystem::path(source).filename().string());
  all.kernels = device.kernels;
  all.backend = Backend::kRocm;
  if (!request.is_optimized) all.options.push_back("-O0");
  return all;
}

Image image_of(const CompiledImage& compiled) {
  Image image;
  image.backend = Backend::kRocm;
  image.kind = compiled.kind;
  image.arch = compiled.arch;
  image.toolkit = compiled.toolkit;
  image.bytes.assign(compiled.bytes.begin(), compiled.bytes.end());
  read_names(compiled.names, &image.names);
  return image;
}

// Returns the error for an architecture. A compiler's messages replace the reasons of compilers
// that were not used.
std::string error_of(const ImageRequest& request, const std::string& arch,
                     const std::vector<Reason>& reasons) {
  std::string text;
  for (const Reason& reason : reasons) {
    if (info(reason.code).severity == Severity::kNotice) continue;
    if (reason.code == Code::kJitSource || reason.code == Code::kJitKernel) {
      return fmt::format("{}:{}: device code does not compile for {}: {}",
                         request.manifest->path.string(), request.manifest->device->line, arch,
                         to_text(reason));
    }
    text += (text.empty() ? "" : "\n  ") + to_text(reason);
  }
  return fmt::format("opdock-pack: error: {}: found no image for {}: {}", request.manifest->name,
                     arch, text);
}

constexpr char kPackages[] = "the Debian package libamdhip64-5, or AMD's ROCm with ROCM_PATH set";

// Chooses the architectures. Returns true even if there are none.
bool choose_archs(const std::string& list, std::vector<std::string>* archs,
                  std::vector<std::string>* errors) {
  RocmArchInputs inputs;
  inputs.sources = {{"--hip-archs", list}};
  Reason reason{};
  // The machine that packs decides only if the list says "native" or "auto".
  if (list.find_first_not_of(" \t\r\n") == list.npos) return true;
  const std::optional<RocmList> parsed = parse_rocm_list(list, "--hip-archs", &reason);
  if (parsed && (parsed->native || parsed->automatic)) inputs.gpus = probe_machine().gpus;
  const std::optional<RocmArchChoice> choice = choose_rocm_archs(inputs, &reason);
  if (choice) {
    *archs = choice->targets;
  } else {
    errors->push_back("opdock-pack: error: " + to_line(reason));
  }
  return choice.has_value();
}

}  // namespace

bool find_hip_compilers(const HipOptions& options, ImageRequest* request,
                        std::vector<std::filesystem::path>* depends,
                        std::vector<std::string>* errors) {
  if (!choose_archs(options.archs, &request->hip_archs, errors)) return false;
  if (options.none || request->hip_archs.empty() || !request->manifest->is_for(Backend::kRocm)) {
    return true;
  }
  std::vector<std::string> searched;
  request->worker = options.worker;
  request->hiprtcs = find_hiprtc_files(current_environment(), &searched);
  for (const HiprtcFile& file : request->hiprtcs) depends->push_back(file.path);
  if (!request->hiprtcs.empty()) return true;
  const std::string text =
      fmt::format("{}: found no hipRTC, so no code objects for {} are packed; wanted {}.",
                  request->manifest->name, to_text(request->hip_archs), kPackages);
  // If ROCm is installed later, one of these folders changes, and so this step is repeated.
  for (const std::string& folder : searched)
    if (std::filesystem::is_directory(folder)) depends->push_back(folder);
  if (options.require) {
    errors->push_back(fmt::format("opdock-pack: error: {}", text));
    return false;
  }
  std::fprintf(stderr, "opdock-pack: notice: %s\n", text.c_str());
  return true;
}

std::vector<Image> make_hip_images(const ImageRequest& request, std::vector<std::string>* errors) {
  if (request.hiprtcs.empty()) return {};
  std::vector<CompileRequest> requests(request.hip_archs.size(), base_request(request));
  for (size_t i = 0; i < requests.size(); ++i) requests[i].arch = request.hip_archs[i];
  JitContext context;
  context.hiprtcs = &request.hiprtcs;
  context.worker = request.worker;
  context.cache = request.cache != nullptr ? request.cache->cache() : nullptr;
  std::vector<Image> images(requests.size());
  std::vector<std::string> problems(requests.size()), logs(requests.size());
  const int jobs = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  compile_all(requests, jobs, context,
              [&](size_t i, const CompiledImagePtr& compiled, const std::vector<Reason>& reasons) {
                if (compiled == nullptr) {
                  problems[i] = error_of(request, requests[i].arch, reasons);
                } else {
                  images[i] = image_of(*compiled);
                  logs[i] = compiled->log;
                }
              });
  for (const std::string& problem : problems)
    if (!problem.empty()) errors->push_back(problem);
  if (!errors->empty()) return {};
  // Warnings are the same for every architecture, so only the first are printed.
  if (!logs.empty() && !logs.front().empty()) std::fprintf(stderr, "%s\n", logs.front().c_str());
  return images;
}

}  // namespace opdock::pack
