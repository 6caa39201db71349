// opdock inspect: inspects one file, whatever it is, or many: wheels, folders, packages.
// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <csignal>

#include "commands.h"
#include "inspect_text.h"
#include "report_text.h"

namespace opdock::cli {
namespace {

volatile std::sig_atomic_t is_stopped = 0;

int32_t is_to_stop(void*) {
  return is_stopped;
}

void stop(int) {
  is_stopped = 1;
  std::signal(SIGINT, SIG_DFL);
}

bool exists(const std::string& path) {
  struct stat status{};
  return stat(path.c_str(), &status) == 0;
}

bool is_one_file(const InspectCommand& command) {
  if (command.paths.size() != 1 || !command.packages.empty() || command.environment ||
      !command.html.empty() || command.paths.front().ends_with(".whl")) {
    return false;
  }
  struct stat status{};
  // A path that does not exist is a member of a wheel.
  return stat(command.paths.front().c_str(), &status) != 0 || !S_ISDIR(status.st_mode);
}

// Returns the request's JSON: the described machine, if there is one, and what is loaded before.
Report request_of(const InspectCommand& command) {
  Report request = Report::object();
  if (!command.gpus.empty()) request["gpus"] = command.gpus;
  if (!command.with.empty()) request["with"] = command.with;
  const std::pair<const char*, const std::string*> kTexts[] = {
      {"driver", &command.driver}, {"cuda", &command.cuda},           {"rocm", &command.rocm},
      {"glibc", &command.glibc},   {"libstdcxx", &command.libstdcxx}, {"arch", &command.arch},
      {"cpu", &command.cpu}};
  for (const auto& [name, text] : kTexts) {
    if (!text->empty()) request[name] = *text;
  }
  return request;
}

Report ask(const Runtime& runtime, const Report& request) {
  std::signal(SIGINT, stop);
  Report report = read_report([&](char** out, char* error, uint32_t size) {
    return opdock_survey_json(runtime.get(), request.dump().c_str(), out, error, size);
  });
  std::signal(SIGINT, SIG_DFL);
  return report;
}

int inspect_one(const InspectCommand& command, const Runtime& runtime) {
  Report report, request = request_of(command);
  if (request.empty() && exists(command.paths.front())) {
    report = read_report([&](char** out, char* error, uint32_t size) {
      return opdock_inspect_json(runtime.get(), command.paths.front().c_str(), out, error, size);
    });
  } else {
    request["paths"] = command.paths;
    request["whole"] = true;
    report = ask(runtime, request).at("packages").at(0).at("files").at(0);
    name_gpus({command.gpus, "", "", ""}, &report);
  }
  command.json ? print_json(report) : print_file(report);
  return report.at("usable").get<bool>() ? kGood : kExitUnusable;
}

// Compares two files. As with diff, the exit status is 0 only if nothing differs.
int inspect_diff(const InspectCommand& command, const Runtime& runtime) {
  if (command.paths.size() != 2 || !command.packages.empty() || command.environment ||
      !command.html.empty() || !request_of(command).empty()) {
    throw Usage{"--diff with something else than two files", "two files and nothing else", "", "",
                ""};
  }
  const Report report = read_report([&](char** out, char* error, uint32_t size) {
    return opdock_inspect_diff_json(runtime.get(), command.paths[0].c_str(),
                                    command.paths[1].c_str(), out, error, size);
  });
  command.json ? print_json(report) : print_diff(report);
  return report.at("equal").get<bool>() ? kGood : kExitUnusable;
}

}  // namespace

int inspect_command(const InspectCommand& command) {
  if (command.paths.empty() && command.packages.empty() && !command.environment) {
    throw Usage{"nothing to inspect", "PATH, --package or --environment", "", "", ""};
  }
  opdock_options options = default_options("");
  options.cancelled = is_to_stop;
  const Runtime runtime(options);
  if (command.diff) return inspect_diff(command, runtime);
  if (is_one_file(command)) return inspect_one(command, runtime);
  Report request = request_of(command);
  request["paths"] = command.paths;
  request["packages"] = command.packages;
  request["environment"] = command.environment;
  Report report = ask(runtime, request);
  name_gpus({command.gpus, "", "", ""}, &report);
  if (!command.html.empty()) write_page(command.html, survey_page(report));
  command.json ? print_json(report) : print_survey(report);
  return report.at("summary").at("verdict") == "usable" ? kGood : kExitUnusable;
}

}  // namespace opdock::cli
