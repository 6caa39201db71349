// Compiling what plugins carry as source ahead of time, many images at once.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <stdexcept>
#include <thread>

#include "api/compile_context.h"
#include "api/report.h"
#include "arch/cuda_list.h"
#include "call/kernels.h"
#include "facts/arch.h"
#include "jit/packed.h"
#include "opdock/compile.h"

namespace opdock {
namespace {

struct Target {
  Backend backend;
  std::string arch;
};

// The exact architectures that the chain would ask for on such GPUs.
std::vector<Target> visible_targets(const MachineFacts& machine) {
  std::vector<Target> targets;
  std::set<std::string> seen;
  for (const Gpu& gpu : machine.gpus) {
    const std::string arch = exact_arch(gpu);
    if (seen.insert(arch).second) targets.push_back({gpu.backend, arch});
  }
  return targets;
}

// "8.0;9.0a gfx90a". Throws std::invalid_argument.
std::vector<Target> listed_targets(const std::string& list, const MachineFacts& machine) {
  std::vector<Target> targets;
  std::string cuda;
  for (size_t at = 0; at < list.size();) {
    const size_t end = std::min(list.find_first_of("; ", at), list.size());
    const std::string word = list.substr(at, end - at);
    at = end + 1;
    if (!word.starts_with("gfx")) {
      cuda += word + ";";
    } else if (parse_gfx_arch(word)) {
      targets.push_back({Backend::kRocm, word});
    } else {
      throw std::invalid_argument("archs: found \"" + word + "\", wanted a name such as gfx90a");
    }
  }
  if (cuda.find_first_not_of(';') == cuda.npos) return targets;
  Reason reason;
  const std::optional<CudaList> parsed = parse_cuda_list(cuda, "archs", &reason);
  if (!parsed) throw std::invalid_argument(to_text(reason));
  if (parsed->all || parsed->all_major) {
    throw std::invalid_argument("archs: found a word for all architectures, wanted those of GPUs");
  }
  if (parsed->native) targets = visible_targets(machine);
  for (const CudaTarget& one : parsed->targets) {
    Gpu gpu{};
    gpu.backend = Backend::kCuda;
    gpu.major = one.number / 10;
    gpu.minor = one.number % 10;
    targets.push_back({Backend::kCuda, exact_arch(gpu)});
  }
  return targets;
}

// What a file that may be looked into carries. The table is where the file's facts say that its
// images are.
bool read_rows(const FileFacts& facts, std::string* bytes, std::vector<ImageRow>* rows) {
  std::ifstream stream(facts.path, std::ios::binary);
  bytes->assign(std::istreambuf_iterator<char>(stream), {});
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

// Whether the file is trusted and whole, whatever this machine lacks to run it.
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
  std::vector<CompileRequest> requests;
  std::vector<std::string> plugins;  // of each request
  for (const auto& candidate : runtime->catalog()->candidates()) {
    std::string bytes;
    std::vector<ImageRow> rows;
    if (!may_read(*candidate) || !read_rows(candidate->file, &bytes, &rows)) continue;
    const Note& note = *candidate->file.note;
    for (const Target& target : targets) {
      CompileRequest request;
      std::vector<Reason> ignored;  // nothing to compile
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
  std::atomic<bool> told{true};  // the report says it all
  HookedProgress progress(runtime->hooks(), &told);
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
  if (runtime == nullptr || out == nullptr) {
    return opdock::fail(OPDOCK_INVALID_ARGUMENT,
                        "runtime, out: found NULL, wanted a runtime and a place for the text",
                        error, error_size);
  }
  std::string wrong;
  const opdock_status status = opdock::report(
      [&]() -> opdock::Report {
        try {
          return opdock::warm(runtime, archs, jobs);
        } catch (const std::invalid_argument& problem) {
          wrong = problem.what();
          return {};
        }
      },
      out, error, error_size);
  if (wrong.empty()) return status;
  opdock_free(*out);
  *out = nullptr;
  return opdock::fail(OPDOCK_INVALID_ARGUMENT, wrong, error, error_size);
}
