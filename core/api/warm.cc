// Compiles the source that plugins carry ahead of time, many images at once.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <set>
#include <thread>

#include "arch/choose.h"
#include "arch/list_scanner.h"
#include "arch/rocm_list.h"
#include "base/files.h"
#include "base/installed.h"
#include "build/tool_versions.h"
#include "call/kernels.h"
#include "chain/compile_context.h"
#include "facts/arch.h"
#include "jit/plugin_source.h"
#include "opdock/compile.h"
#include "opdock/types.hpp"
#include "report/report.h"

namespace opdock {
namespace {

constexpr char kNoGpu[] =
    "archs: found no visible GPU to compile for, wanted one; give a list such as \"9.0\"";

struct Target {
  Backend backend;
  std::string arch;
};

// Returns the run-time compilers of this machine. A separate process asks them, just as all
// compilation runs in other processes.
std::vector<NvrtcKnowledge> nvrtcs_found() {
  BuildTools tools;
  tools.pack = installed().program("opdock-pack");
  tools.guard = installed().program("opdock-guard");
  tools.nvrtc_folders = nvrtc_folders();
  return ask_nvrtcs(tools);
}

std::vector<CompilerArchs> archs_found() {
  std::vector<CompilerArchs> known;
  for (const NvrtcKnowledge& one : nvrtcs_found())
    known.push_back(archs_of_nvrtc(one.version, one.numbers));
  return known;
}

// Returns the architecture that the chain would ask for on this GPU (ptx_for_newer_gpu): the GPU's
// own or, if the GPU is newer than every compiler, PTX of the newest that one of them knows.
std::string arch_for(const Gpu& gpu, const std::vector<NvrtcKnowledge>& compilers,
                     const std::optional<Version>& driver) {
  if (gpu.backend != Backend::kCuda) return exact_arch(gpu);
  const int number = 10 * gpu.major + gpu.minor;
  int newest = 0;
  for (const NvrtcKnowledge& one : compilers) {
    if (driver && one.version.major() > driver->major()) continue;
    for (const int known : one.numbers) {
      if (known == number) return exact_arch(gpu);
      if (known < number && (!driver || one.version <= *driver)) newest = std::max(newest, known);
    }
  }
  return newest == 0 ? exact_arch(gpu) : "compute_" + std::to_string(newest);
}

std::vector<Target> visible_targets(const MachineFacts& machine) {
  std::vector<Target> targets;
  std::set<std::string> seen;
  const std::vector<NvrtcKnowledge> compilers = nvrtcs_found();
  for (const Gpu& gpu : machine.gpus) {
    const std::string arch = arch_for(gpu, compilers, machine.cuda_driver);
    if (seen.insert(arch).second) targets.push_back({gpu.backend, arch});
  }
  return targets;
}

// Parses a list in the grammar of docs/reference/architectures.md, with both kinds of GPU in one
// list: "8.0;9.0a gfx90a". Throws Error, also for an architecture that no compiler here knows.
std::vector<Target> listed_targets(const std::string& list, const MachineFacts& machine) {
  std::vector<Target> targets;
  const auto add = [&](Backend backend, const std::string& arch) {
    const bool is_known = std::any_of(targets.begin(), targets.end(),
                                      [&](const Target& other) { return other.arch == arch; });
    if (!is_known) targets.push_back({backend, arch});
  };
  std::string cuda, rocm;
  ListScanner scanner(list, "--archs");
  for (std::string_view word; scanner.next(&word);) {
    if (word == "native") {
      targets = visible_targets(machine);
      if (targets.empty()) throw Error(OPDOCK_INVALID_ARGUMENT, kNoGpu);
    } else {
      (word.starts_with("gfx") ? rocm : cuda).append(word) += ';';
    }
  }
  Reason reason{};
  if (!cuda.empty()) {
    CudaArchInputs inputs;
    inputs.sources = {{"--archs", cuda.substr(0, cuda.size() - 1)}};
    inputs.compilers = archs_found();
    const std::optional<CudaArchChoice> choice = choose_cuda_archs(inputs, &reason);
    if (!choice) throw Error(OPDOCK_INVALID_ARGUMENT, to_text(reason));
    for (const CudaTarget& one : choice->targets) {
      Gpu gpu{};
      gpu.backend = Backend::kCuda;
      gpu.major = one.number / 10;
      gpu.minor = one.number % 10;
      add(Backend::kCuda, exact_arch(gpu));
      // GPUs newer than the compilers ask for this PTX, if this is the newest architecture that the
      // compilers know.
      if (one.ptx) add(Backend::kCuda, "compute_" + std::to_string(one.number));
    }
  }
  if (!rocm.empty()) {
    const std::optional<RocmList> parsed = parse_rocm_list(rocm, "--archs", &reason);
    if (!parsed) throw Error(OPDOCK_INVALID_ARGUMENT, to_text(reason));
    for (const std::string& one : parsed->targets) add(Backend::kRocm, one);
  }
  if (targets.empty())
    throw Error(OPDOCK_INVALID_ARGUMENT, to_text(scanner.empty("architectures")));
  return targets;
}

// Reads the image table of a file that may_read() accepts. The right table is the one whose images
// lie where the file's facts say.
bool read_rows(const FileFacts& facts, std::string* bytes, std::vector<ImageRow>* rows) {
  *bytes = read_file(facts.path).value_or("");
  const std::string magic(kImageMagic, sizeof kImageMagic);
  for (size_t at = bytes->find(magic); at != bytes->npos; at = bytes->find(magic, at + 1)) {
    const auto* table = reinterpret_cast<const uint8_t*>(bytes->data());
    std::string problem;
    if (!read_mapped_table({table + at, bytes->size() - at}, rows, &problem)) continue;
    const bool same = std::all_of(rows->begin(), rows->end(), [&](const ImageRow& row) {
      const uint64_t offset = static_cast<uint64_t>(row.bytes.data() - table);
      return std::any_of(facts.images.begin(), facts.images.end(),
                         [&](const DeviceImage& image) { return image.offset == offset; });
    });
    if (same && !rows->empty()) return true;
  }
  return false;
}

// Returns whether the file is trusted and intact, regardless of what this machine lacks to run it.
bool may_read(const Candidate& candidate) {
  if (!candidate.file.note) return false;
  return std::none_of(candidate.verdict.reasons.begin(), candidate.verdict.reasons.end(),
                      [](const Reason& reason) {
                        const CodeInfo& code = info(reason.code);
                        const bool about_file = code.stage == "trust" || code.stage == "file" ||
                                                code.stage == "note" || code.stage == "discover";
                        return about_file && code.severity == Severity::kReject;
                      });
}

Report warm(opdock_runtime* runtime, const char* archs, uint32_t jobs) {
  const std::shared_ptr<const MachineFacts> machine = runtime->machine();
  const std::vector<Target> targets =
      archs == nullptr ? visible_targets(*machine) : listed_targets(archs, *machine);
  if (targets.empty()) throw Error(OPDOCK_INVALID_ARGUMENT, kNoGpu);
  std::vector<CompileRequest> requests;
  std::vector<std::string> plugins;  // the plugin of each request
  // Keep the catalogue alive: a rescan replaces the runtime's.
  const std::shared_ptr<const Catalog> catalog = runtime->catalog();
  for (const auto& candidate : catalog->candidates()) {
    std::string bytes;
    std::vector<ImageRow> rows;
    if (!may_read(*candidate) || !read_rows(candidate->file, &bytes, &rows)) continue;
    const Note& note = *candidate->file.note;
    for (const Target& target : targets) {
      // A plugin's source serves only the kinds of GPU that its ops name.
      if (std::find(note.devices.begin(), note.devices.end(), target.backend) == note.devices.end())
        continue;
      const std::optional<CudaArch> arch = parse_cuda_arch(target.arch);
      if (arch && 10 * arch->major + arch->minor < note.least_cuda) continue;
      CompileRequest request;
      std::vector<Reason> ignored;  // the file has nothing to compile
      if (!packed_request(note.name + " " + note.version.text(), rows, target.backend, target.arch,
                          &request, &ignored)) {
        continue;
      }
      for (CompileRequest& one : kernel_requests(request)) {
        requests.push_back(std::move(one));
        plugins.push_back(request.name);
      }
    }
  }
  std::vector<Reason> notices;
  const Waiting waiting(runtime->hooks());
  std::atomic<bool> announced{true};  // no log line: the report says everything
  HookedProgress progress(runtime->hooks(), &announced);
  const JitContext context = jit_context(runtime, &progress, &notices);
  std::vector<Report> done(requests.size());
  if (jobs == 0) jobs = std::max(1u, std::thread::hardware_concurrency());
  compile_all(requests, static_cast<int>(jobs), context,
              [&](size_t i, const CompiledImagePtr& image, const std::vector<Reason>& reasons) {
                const char* outcome = image == nullptr    ? "failed"
                                      : image->from_cache ? "cached"
                                                          : "compiled";
                done[i] = {{"plugin", plugins[i]},
                           {"kernel", requests[i].kernels.front()},
                           {"arch", requests[i].arch},
                           {"outcome", outcome},
                           {"compiler", image == nullptr ? "" : image->maker},
                           {"reasons", to_json(reasons)}};
              });
  Report json;
  json["images"] = Report::array();
  for (Report& one : done) json["images"].push_back(std::move(one));
  json["notices"] = to_json(notices);
  return json;
}

}  // namespace
}  // namespace opdock

opdock_status opdock_warm_json(opdock_runtime* runtime, const char* archs, uint32_t jobs,
                               char** out, char* error, uint32_t error_size) {
  return opdock::report(
      [&] {
        opdock::need(runtime, "runtime");
        return opdock::warm(runtime, archs, jobs);
      },
      out, {error, error_size});
}
