// The functions of opdock.h that inspect native code, whether or not it belongs to a plugin.
// SPDX-License-Identifier: Apache-2.0
#include <atomic>

#include "api/stoppable_reading.h"
#include "chain/hooks.h"
#include "chain/runtime.h"
#include "inspect/diff.h"
#include "inspect/survey_json.h"
#include "opdock/types.hpp"
#include "report/report.h"

namespace opdock {
namespace {

// Returns the file's facts. Throws Error if there is no such file.
FileFacts facts_at(const char* named) {
  const std::string path = plain_path(named);
  std::vector<Reason> reasons;
  const std::optional<OpenFile> file = files_at(path)->open(path, &reasons);
  if (file) return read_file_facts(file->fd.get(), file->size, path, Depth::kInspect);
  const bool is_missing = has_code(reasons, Code::kPathMissing);
  throw Error(is_missing ? OPDOCK_NOT_FOUND : OPDOCK_INVALID_ARGUMENT,
              path + ": found " + reasons[0].found + ", wanted " + reasons[0].wanted + "; " +
                  reasons[0].advice);
}

}  // namespace
}  // namespace opdock

opdock_status opdock_survey_json(opdock_runtime* runtime, const char* request, char** out,
                                 char* error, uint32_t error_size) {
  return opdock::report(
      [&] {
        opdock::need(runtime, "runtime");
        opdock::need(request, "request", "a JSON object");
        const opdock::SurveyRequest wanted = opdock::read_request(request);
        // Show progress only on a terminal: elsewhere the survey is over before anybody reads the
        // line.
        std::atomic<bool> is_announced{true};
        opdock::HookedProgress progress(runtime->hooks(), &is_announced);
        const opdock::Waiting waiting(runtime->hooks());
        return opdock::to_json(opdock::survey(wanted, *runtime->machine(), &progress));
      },
      out, {error, error_size});
}

opdock_status opdock_runtime_describe(opdock_runtime* runtime, const char* machine, char* error,
                                      uint32_t error_size) {
  return opdock::guarded({error, error_size}, [&] {
    opdock::need(runtime, "runtime");
    opdock::need(machine, "machine", "a JSON object");
    const opdock::MachineSpec spec = opdock::read_gpu_machine(machine);
    runtime->describe(opdock::described_machine(spec, opdock::probe_machine()));
    return OPDOCK_OK;
  });
}

opdock_status opdock_inspect_diff_json(opdock_runtime* runtime, const char* a, const char* b,
                                       char** out, char* error, uint32_t error_size) {
  return opdock::report(
      [&] {
        opdock::need(runtime, "runtime");
        opdock::need(a, "a", "a path");
        opdock::need(b, "b", "a path");
        const opdock::StoppableReading reading(runtime->hooks());
        return opdock::to_json(opdock::compare(opdock::facts_at(a), opdock::facts_at(b)));
      },
      out, {error, error_size});
}
