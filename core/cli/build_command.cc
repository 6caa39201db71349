// opdock build: builds source plugins, and compiles the kernels that plugins carry as source, ahead
// of time.
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>

#include "commands.h"
#include "opdock/compile.h"
#include "report_text.h"

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

// Prints reasons. What consecutive ones share, as the mistakes in a plugin.toml do, is printed
// once.
void print_shared_reasons(const std::vector<const Report*>& reasons, Style style) {
  for (size_t i = 0; i < reasons.size(); ++i) {
    const Report& reason = *reasons[i];
    const auto differs = [&](size_t other, const char* member) {
      return other >= reasons.size() || reasons[other]->at(member) != reason.at(member);
    };
    if (differs(i - 1, "code"))
      std::printf("%s:\n", styled(text_of(reason, "code"), style).c_str());
    const std::string text = reason.at("text").get<std::string>();
    const bool has_lines = text.find('\n') != text.npos;
    std::fputs((has_lines ? lines(text, 2) : paragraph(printable(text), 2)).c_str(), stdout);
    const std::string advice = text_of(reason, "advice");
    if (!advice.empty() && (differs(i + 1, "code") || differs(i + 1, "advice")))
      std::fputs(paragraph("-> " + advice, 2).c_str(), stdout);
  }
}

std::vector<const Report*> all_of(const Report& reasons) {
  std::vector<const Report*> all;
  for (const Report& reason : reasons) all.push_back(&reason);
  return all;
}

Report options_of(const BuildCommand& command) {
  Report wanted = Report::object();
  if (!command.cuda_archs.empty()) wanted["cuda_archs"] = command.cuda_archs;
  if (!command.hip_archs.empty()) wanted["hip_archs"] = command.hip_archs;
  if (command.debug) wanted["debug"] = true;
  if (command.retry) wanted["retry"] = true;
  if (command.jobs != 0) wanted["jobs"] = command.jobs;
  if (command.timeout > 0) wanted["timeout"] = command.timeout;
  return wanted;
}

// Returns ", for 8.0;9.0a", or "".
std::string for_archs(const Report& report) {
  std::string text;
  for (const char* key : {"cuda_archs", "hip_archs"}) {
    const std::string archs = report.contains(key) ? text_of(report, key) : "";
    if (!archs.empty()) text += (text.empty() ? ", for " : " and ") + archs;
  }
  return text;
}

// Puts a copy of what was built at --out, by rename, so that a process that has loaded the file
// that this replaces keeps the old one. Does nothing if nothing was built. The report gets the
// copy's path as "copy".
void copy_out(const BuildCommand& command, Report* report) {
  if (command.out.empty() || !report->at("path").is_string()) return;
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path to = command.out;
  if (command.all || fs::is_directory(to, error) || !to.has_filename()) {
    fs::create_directories(to, error);
    to /= report->at("plugin").get<std::string>() + ".so";
  }
  to = fs::absolute(to, error).lexically_normal();
  const fs::path fresh = to.string() + "." + std::to_string(getpid());
  fs::copy_file(report->at("path").get<std::string>(), fresh, fs::copy_options::overwrite_existing,
                error);
  if (!error) fs::rename(fresh, to, error);
  if (error) {
    const std::string problem = error.message();
    fs::remove(fresh, error);
    throw Failure{OPDOCK_INTERNAL, "build: --out: cannot write " + to.string() + ": " + problem +
                                       "; name a folder that you may write"};
  }
  (*report)["copy"] = to.string();
}

// Prints what became of one plugin.
void print_plugin(const Report& report) {
  const std::string outcome = text_of(report, "outcome");
  const std::string shown =
      report.at("plugin").is_string() ? text_of(report, "plugin") : text_of(report, "folder");
  const std::string name = styled(shown, Style::kBold);
  if (outcome == "built") {
    std::printf("%s was built in %.1f s by %s%s\n", name.c_str(),
                report.at("seconds").get<double>(), text_of(report, "by").c_str(),
                for_archs(report).c_str());
  } else if (outcome == "cached") {
    std::printf("%s is there already, built by %s%s\n", name.c_str(), text_of(report, "by").c_str(),
                for_archs(report).c_str());
  } else if (outcome == "skipped") {
    std::printf("%s was left out\n", name.c_str());
  } else {
    std::printf("%s could not be built\n", name.c_str());
  }
  const bool good = report.at("path").is_string();
  if (good) std::fputs(paragraph(text_of(report, "path"), 2).c_str(), stdout);
  if (report.contains("copy")) {
    std::fputs(paragraph("copied to " + text_of(report, "copy"), 2).c_str(), stdout);
  }
  if (report.contains("changed")) {
    for (const Report& change : report.at("changed"))
      std::fputs(
          paragraph("since the last build: " + printable(change.get<std::string>()), 2).c_str(),
          stdout);
  }
  print_shared_reasons(all_of(report.at("warnings")), Style::kUnsure);
  std::vector<const Report*> shown_reasons = all_of(report.at("reasons"));
  std::erase_if(shown_reasons,
                [&](const Report* reason) { return good && reason->at("severity") == "notice"; });
  print_shared_reasons(shown_reasons, outcome == "skipped" ? Style::kUnsure : Style::kBad);
  if (outcome == "failed" && report.contains("log") && report.at("log").is_string())
    std::fputs(paragraph("the whole log is " + text_of(report, "log"), 2).c_str(), stdout);
}

Report report_of(const BuildCommand& command, const Runtime& runtime) {
  return read_report([&](char** out, char* error, uint32_t size) {
    return opdock_build_json(runtime.get(), command.path.c_str(),
                             options_of(command).dump().c_str(), out, error, size);
  });
}

// Prints how to use what was built, unless it is found anyway.
void print_next(const Report& report, const Runtime& runtime) {
  const Report known = read_report([&](char** out, char* error, uint32_t size) {
    return opdock_list_json(runtime.get(), 0, out, error, size);
  });
  for (const Report& plugin : known.at("plugins")) {
    if (plugin.at("name") == report.at("plugin") && plugin.at("verdict") != "rejected") return;
  }
  std::printf("Next: opdock install %s, or --plugin-path %s with each command\n",
              text_of(report, "folder").c_str(),
              text_of(report, report.contains("copy") ? "copy" : "path").c_str());
}

int build_one(const BuildCommand& command, const Runtime& runtime) {
  Report report = report_of(command, runtime);
  copy_out(command, &report);
  const bool good = report.at("path").is_string();
  if (command.json) {
    print_json(report);
  } else {
    print_plugin(report);
    if (good) print_next(report, runtime);
  }
  return good ? kGood : kExitUnusable;
}

int build_all(const BuildCommand& command, const Runtime& runtime) {
  Report report = read_report([&](char** out, char* error, uint32_t size) {
    return opdock_build_json(runtime.get(), nullptr, options_of(command).dump().c_str(), out, error,
                             size);
  });
  Report& plugins = report.at("plugins");
  for (Report& plugin : plugins) copy_out(command, &plugin);
  const Report& against = report.at("reasons");
  size_t counts[4] = {};
  constexpr const char* kOutcomes[] = {"built", "cached", "skipped", "failed"};
  for (const Report& plugin : plugins)
    for (size_t i = 0; i < 4; ++i) counts[i] += plugin.at("outcome") == kOutcomes[i];
  const int status = counts[3] == 0 && against.empty() && !plugins.empty() ? kGood : kExitUnusable;
  if (command.json) {
    print_json(report);
    return status;
  }
  for (const Report& plugin : plugins) print_plugin(plugin);
  print_shared_reasons(all_of(against), Style::kBad);
  if (!against.empty()) {
    std::printf("nothing was built\n");
  } else if (plugins.empty()) {
    std::printf("no source plugin was found; `opdock doctor` shows where they are looked for\n");
  } else {
    std::printf("%zu built, %zu there already, %zu left out, %zu failed\n", counts[0], counts[1],
                counts[2], counts[3]);
  }
  return status;
}

// Prints a line for each plugin and architecture, however many kernels of it were compiled.
int compile_all(const BuildCommand& command, const Runtime& runtime) {
  std::string archs = command.cuda_archs;
  if (!command.hip_archs.empty()) archs += (archs.empty() ? "" : ";") + command.hip_archs;
  const Report report = read_report([&](char** out, char* error, uint32_t size) {
    return opdock_warm_json(runtime.get(), archs.empty() ? nullptr : archs.c_str(), command.jobs,
                            out, error, size);
  });
  const Report& images = report.at("images");
  bool failed = images.empty();
  for (const Report& image : images) failed = failed || image.at("outcome") == "failed";
  const int status = failed ? kExitUnusable : kGood;
  if (command.json) {
    print_json(report);
    return status;
  }
  print_shared_reasons(all_of(report.at("notices")), Style::kUnsure);
  if (images.empty()) std::printf("no plugin here carries source for these GPUs\n");
  for (size_t i = 0; i < images.size();) {
    const Report& first = images[i];
    size_t counts[3] = {}, all = 0;
    std::string by;
    std::vector<const Report*> reasons;
    for (; i < images.size() && images[i].at("plugin") == first.at("plugin") &&
           images[i].at("arch") == first.at("arch");
         ++i, ++all) {
      const std::string outcome = text_of(images[i], "outcome");
      counts[outcome == "compiled" ? 0 : outcome == "cached" ? 1 : 2]++;
      if (by.empty()) by = text_of(images[i], "compiler");
      for (const Report& reason : images[i].at("reasons")) {
        const bool is_told = std::any_of(reasons.begin(), reasons.end(),
                                         [&](const Report* shown) { return *shown == reason; });
        if (!is_told) reasons.push_back(&reason);
      }
    }
    std::printf("%s for %s: %zu compiled, %zu there already, %zu failed%s\n",
                styled(text_of(first, "plugin"), Style::kBold).c_str(),
                text_of(first, "arch").c_str(), counts[0], counts[1], counts[2],
                by.empty() ? "" : (", by " + by).c_str());
    print_shared_reasons(reasons, Style::kBad);
  }
  return status;
}

}  // namespace

int build_command(const BuildCommand& command) {
  opdock_options options = default_options(command.plugin_path);
  options.cancelled = is_interrupted;
  const Runtime runtime(options);
  std::signal(SIGINT, interrupt);
  const int status = command.jit   ? compile_all(command, runtime)
                     : command.all ? build_all(command, runtime)
                                   : build_one(command, runtime);
  std::signal(SIGINT, SIG_DFL);
  return interrupted && status != kGood ? kInterrupted : status;
}

int build_for_install(const BuildCommand& command, std::string* file) {
  opdock_options options = default_options("");
  options.cancelled = is_interrupted;
  const Runtime runtime(options);
  std::signal(SIGINT, interrupt);
  const Report report = report_of(command, runtime);
  std::signal(SIGINT, SIG_DFL);
  if (report.at("path").is_string()) {
    *file = report.at("path").get<std::string>();
    return kGood;
  }
  if (command.json) {
    print_json(report);
  } else {
    print_plugin(report);
  }
  return interrupted ? kInterrupted : kExitUnusable;
}

}  // namespace opdock::cli
