// opdock build: a source plugin, ahead of time.
// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <cstdio>

#include "commands.h"
#include "fmt/format.h"
#include "terminal.h"

namespace opdock::cli {
namespace {

volatile std::sig_atomic_t interrupted = 0;

int32_t is_interrupted(void*) {
  return interrupted;
}

// Ctrl-C stops the build in an orderly way; the second one ends the command itself.
void interrupt(int) {
  interrupted = 1;
  std::signal(SIGINT, SIG_DFL);
}

std::string text_of(const Report& value) {
  return value.is_string() ? printable(value.get<std::string>()) : std::string();
}

void print_reason(const Report& reason) {
  std::printf("%s: found\n", styled(text_of(reason.at("code")), Style::kBad).c_str());
  std::fputs(lines(reason.at("found").get<std::string>(), 2).c_str(), stdout);
  if (const std::string wanted = text_of(reason.at("wanted")); !wanted.empty()) {
    std::fputs(paragraph("wanted " + wanted, 2).c_str(), stdout);
  }
  if (const std::string advice = text_of(reason.at("advice")); !advice.empty()) {
    std::fputs(paragraph("-> " + advice, 2).c_str(), stdout);
  }
}

}  // namespace

int build_command(const BuildCommand& command) {
  opdock_options options{};
  options.struct_size = sizeof options;
  options.cancelled = is_interrupted;
  const Runtime runtime(options);
  Report wanted = Report::object();
  if (!command.cuda_archs.empty()) wanted["cuda_archs"] = command.cuda_archs;
  if (!command.hip_archs.empty()) wanted["hip_archs"] = command.hip_archs;
  if (command.debug) wanted["debug"] = true;
  if (command.retry) wanted["retry"] = true;
  if (command.jobs != 0) wanted["jobs"] = command.jobs;
  if (command.timeout > 0) wanted["timeout"] = command.timeout;
  std::signal(SIGINT, interrupt);
  const Report report = read_report([&](char** out, char* error, uint32_t size) {
    return opdock_build_json(runtime.get(), command.path.c_str(), wanted.dump().c_str(), out, error,
                             size);
  });
  std::signal(SIGINT, SIG_DFL);
  const bool good = report.at("path").is_string();
  const int status = good ? kGood : interrupted ? kInterrupted : kUnfit;
  if (command.json) {
    std::printf("%s\n", report.dump(2, ' ', false, Report::error_handler_t::replace).c_str());
    return status;
  }
  const std::string name = styled(text_of(report.at("plugin")), Style::kBold);
  if (good) {
    const std::string by = text_of(report.at("by"));
    if (report.at("built").get<bool>()) {
      std::printf("%s was built in %.1f s by %s\n", name.c_str(),
                  report.at("seconds").get<double>(), by.c_str());
    } else {
      std::printf("%s is there already, built by %s\n", name.c_str(), by.c_str());
    }
    std::fputs(paragraph(text_of(report.at("path")), 2).c_str(), stdout);
  } else {
    std::printf("%s could not be built\n", name.c_str());
  }
  for (const Report& change : report.at("changed")) {
    std::fputs(paragraph("since the last build: " + text_of(change), 2).c_str(), stdout);
  }
  for (const Report& reason : report.at("reasons")) {
    if (!good || reason.at("severity") != "notice") print_reason(reason);
  }
  if (!good && report.at("log").is_string()) {
    std::fputs(paragraph("the whole log is " + text_of(report.at("log")), 2).c_str(), stdout);
  }
  return status;
}

}  // namespace opdock::cli
