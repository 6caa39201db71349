// The functions of opdock.h that list, inspect, explain and diagnose, and opdock_free.
// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "api/doctor.h"
#include "api/explain.h"
#include "api/stoppable_reading.h"
#include "chain/chain_report.h"
#include "chain/function_table.h"
#include "chain/runtime.h"
#include "inspect/inspect_file.h"
#include "opdock/types.hpp"
#include "report/plugins.h"
#include "report/report.h"
#include "trust/trust.h"

using opdock::Report;

opdock_status opdock_list_json(opdock_runtime* runtime, int32_t rescan, char** out, char* error,
                               uint32_t error_size) {
  return opdock::report(
      [&] {
        opdock::need(runtime, "runtime");
        const std::shared_ptr<const opdock::Catalog> catalog = runtime->catalog(rescan != 0);
        Report json;
        json["plugins"] = Report::array();
        for (const std::shared_ptr<const opdock::Candidate>& candidate : catalog->candidates()) {
          json["plugins"].push_back(opdock::summary(opdock::counted(*candidate, *runtime)));
        }
        for (const std::shared_ptr<const opdock::SourcePlugin>& source : catalog->sources()) {
          json["plugins"].push_back(opdock::summary(*source));
        }
        json["notices"] = opdock::to_json(catalog->notices());
        return json;
      },
      out, {error, error_size});
}

opdock_status opdock_inspect_json(opdock_runtime* runtime, const char* path, char** out,
                                  char* error, uint32_t error_size) {
  return opdock::report(
      [&] {
        opdock::need(runtime, "runtime");
        opdock::need(path, "path");
        struct stat status{};
        if (stat(path, &status) != 0) {
          throw opdock::Error(
              errno == EACCES ? OPDOCK_INVALID_ARGUMENT : OPDOCK_NOT_FOUND,
              std::string(path) + ": " + std::strerror(errno) + "; correct the path");
        }
        const opdock::StoppableReading reading(runtime->hooks());
        opdock::Candidate candidate =
            *opdock::examine(path, *runtime->machine(), opdock::Depth::kInspect);
        if (candidate.file.is_elf && !opdock::is_plugin(candidate.file)) {
          const opdock::JudgedMachine around{*runtime->machine(), false, false, {}};
          const opdock::Files files;
          opdock::Linkers linkers(around, files, {}, false);
          candidate.verdict = opdock::judge_native(&candidate.file, around, &linkers);
        }
        return opdock::details(candidate);
      },
      out, {error, error_size});
}

opdock_status opdock_explain_json(opdock_runtime* runtime, const char* name, char** out,
                                  char* error, uint32_t error_size) {
  return opdock::report(
      [&] {
        opdock::need(runtime, "runtime");
        opdock::need(name, "name");
        opdock::check_settings(*runtime);
        return opdock::explanation(runtime, name);
      },
      out, {error, error_size});
}

opdock_status opdock_doctor_json(opdock_runtime* runtime, char** out, char* error,
                                 uint32_t error_size) {
  return opdock::report(
      [&] {
        opdock::need(runtime, "runtime");
        const std::shared_ptr<const opdock::Catalog> catalog = runtime->catalog();
        return opdock::diagnosis(*catalog, *runtime->machine(), runtime->search(),
                                 runtime->settings(), runtime->setting_problems());
      },
      out, {error, error_size});
}

opdock_status opdock_codes_json(char** out, char* error, uint32_t error_size) {
  return opdock::report(
      [] {
        Report json = Report::array();
        for (const opdock::CodeInfo& code : opdock::all_codes()) {
          json.push_back({{"code", code.name},
                          {"stage", code.stage},
                          {"meaning", code.meaning},
                          {"cause", code.cause},
                          {"advice", code.advice}});
        }
        return json;
      },
      out, {error, error_size});
}

opdock_status opdock_take_reasons_json(char** out, char* error, uint32_t error_size) {
  return opdock::report([] { return opdock::take_reasons(); }, out, {error, error_size});
}

void opdock_free(void* memory) {
  std::free(memory);
}
