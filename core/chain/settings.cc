// SPDX-License-Identifier: Apache-2.0
#include "chain/settings.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/mutex.h"
#include "base/sentence.h"
#include "base/texts.h"
#include "fmt/format.h"
#include "manifest/toml_table.h"
#include "trust/trust.h"

namespace opdock {
namespace {

struct Policy {
  const char* name;  // in configuration files, and the options' member
  const char* variable;
  Setting Settings::* setting;
  std::optional<std::string> SearchEnvironment::* given;
  std::vector<std::string> values;
};

const std::vector<Policy>& policies() {
  const NoFork whole;
  static const std::vector<Policy> all = {
      {"build",
       "OPDOCK_BUILD",
       &Settings::build,
       &SearchEnvironment::build,
       {"auto", "never", "always"}},
      {"jit", "OPDOCK_JIT", &Settings::jit, &SearchEnvironment::jit, {"auto", "never"}},
      {"fallback",
       "OPDOCK_FALLBACK",
       &Settings::fallback,
       &SearchEnvironment::fallback,
       {"warn", "error", "silent"}}};
  return all;
}

void set_policy(const Policy& policy, const std::string& value, const std::string& place,
                Settings* settings, std::vector<std::string>* problems) {
  if (std::find(policy.values.begin(), policy.values.end(), value) == policy.values.end()) {
    problems->push_back(fmt::format("{}: found \"{}\" for {}, wanted {}{}", place, value,
                                    policy.name, join(policy.values), guess(value, policy.values)));
    return;
  }
  settings->*policy.setting = {value, place};
}

// The text of a regular file that nobody else could have written. False and *problem if it is there
// and cannot be used; an absent file is "".
bool read_config(const std::string& path, const SearchEnvironment& environment, std::string* text,
                 std::string* problem) {
  constexpr off_t kMostBytes = 1 << 20;
  const int fd = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
  if (fd < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return true;
    *problem = fmt::format("{}: {}; make it readable or remove it", path, std::strerror(errno));
    return false;
  }
  struct stat status{};
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size > kMostBytes) {
    *problem = fmt::format("{}: found no regular file of at most {} bytes; repair or remove it",
                           path, kMostBytes);
  } else if (std::optional<Reason> reason = Trust(environment).judge(path, fd, status)) {
    *problem = fmt::format(
        "{} decides what is built, and others could have written it: {}. Run `chmod "
        "go-w` on what they can write",
        path, sentence(*reason));
  } else {
    text->resize(static_cast<size_t>(status.st_size));
    const ssize_t size = read(fd, text->data(), text->size());
    if (size < 0) *problem = fmt::format("{}: {}", path, std::strerror(errno));
    text->resize(size < 0 ? 0 : static_cast<size_t>(size));
  }
  close(fd);
  return problem->empty();
}

void apply_config(const std::string& path, const std::string& text, Settings* settings,
                  std::vector<std::string>* problems) {
  std::vector<Mistake> mistakes;
  try {
    const toml::table root = toml::parse(text, path);
    TomlTable table(root, "", &mistakes);
    std::vector<std::string> known = {"cuda-archs", "hip-archs"};
    for (const Policy& policy : policies()) known.push_back(policy.name);
    table.only(known);
    const auto place = [&](const char* key) {
      return fmt::format("{}:{}", path, table.place(key).line);
    };
    for (const Policy& policy : policies()) {
      const std::string value = table.text(policy.name, false);
      if (value.empty()) continue;
      set_policy(policy, value, place(policy.name), settings, problems);
    }
    for (const auto& [key, setting] : {std::pair{"cuda-archs", &Settings::cuda_archs},
                                       std::pair{"hip-archs", &Settings::hip_archs}}) {
      const std::string value = table.text(key, false);
      if (!value.empty()) settings->*setting = {value, place(key)};
    }
  } catch (const toml::parse_error& error) {
    const toml::source_position& at = error.source().begin;
    problems->push_back(
        fmt::format("{}:{}:{}: not TOML: {}", path, at.line, at.column, error.description()));
  }
  for (const Mistake& mistake : mistakes) {
    problems->push_back(fmt::format("{}:{}:{}: found {}, wanted {}", path, mistake.place.line,
                                    mistake.place.column, mistake.found, mistake.wanted));
  }
}

}  // namespace

std::vector<std::string> config_files(const SearchEnvironment& environment) {
  std::vector<std::string> files = {"/etc/opdock/config.toml"};
  if (!environment.secure && !environment.config_home.empty()) {
    files.push_back(environment.config_home + "/opdock/config.toml");
  }
  return files;
}

void read_settings(const std::vector<std::string>& files, const SearchEnvironment& environment,
                   const opdock_options* options, Settings* settings,
                   std::vector<std::string>* problems) {
  for (const std::string& path : files) {
    std::string text, problem;
    if (read_config(path, environment, &text, &problem)) {
      apply_config(path, text, settings, problems);
    } else {
      problems->push_back(problem);
    }
  }
  for (const Policy& policy : policies()) {
    const std::optional<std::string>& given = environment.*policy.given;
    if (given) set_policy(policy, *given, policy.variable, settings, problems);
  }
  if (options == nullptr) return;
  const char* const given[] = {
      OPDOCK_HAS(options, opdock_options, build) ? options->build : nullptr,
      OPDOCK_HAS(options, opdock_options, jit) ? options->jit : nullptr,
      OPDOCK_HAS(options, opdock_options, fallback) ? options->fallback : nullptr};
  for (size_t i = 0; i < policies().size(); ++i) {
    if (given[i] == nullptr) continue;
    set_policy(policies()[i], given[i], "opdock_options", settings, problems);
  }
}

}  // namespace opdock
