// SPDX-License-Identifier: Apache-2.0
#include "chain/settings.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "base/files.h"
#include "base/mutex.h"
#include "base/sentence.h"
#include "base/status.h"
#include "base/texts.h"
#include "fmt/format.h"
#include "manifest/toml_table.h"
#include "trust/trust.h"

namespace opdock {
namespace {

struct Policy {
  const char* name;  // in configuration files and in the options
  const char* variable;
  Setting Settings::* setting;
  std::optional<std::string> SearchEnvironment::* given;
  std::vector<std::string> values;
};

const std::vector<Policy>& policies() {
  const NoFork no_fork;
  static const std::vector<Policy> all = {
      {"build",
       "OPDOCK_BUILD",
       &Settings::build,
       &SearchEnvironment::build,
       {"auto", "never", "always"}},
      {"jit", "OPDOCK_JIT", &Settings::jit, &SearchEnvironment::jit, {"auto", "never", "always"}},
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

// Reads the text of a regular file that no other user could have written; an absent file gives "".
// Fails if the file exists and cannot be used.
Status read_config(const std::string& path, const SearchEnvironment& environment,
                   std::string* text) {
  constexpr uint64_t kMaxSettingsBytes = 1 << 20;
  const auto refuse = [&](const std::string& why) {
    return Status{OPDOCK_INVALID_ARGUMENT, path + why};
  };
  const Fd file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  if (!file) {
    if (errno == ENOENT || errno == ENOTDIR) return {};
    return refuse(": " + error_text(errno) + "; make it readable or remove it");
  }
  struct stat status{};
  if (fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      static_cast<uint64_t>(status.st_size) > kMaxSettingsBytes) {
    return refuse(fmt::format(": found no regular file of at most {} bytes; repair or remove it",
                              kMaxSettingsBytes));
  }
  if (std::optional<Reason> reason = Trust(environment).check(path, file.get(), status)) {
    return refuse(" decides what is built, and others could have written it: " + sentence(*reason) +
                  "; run `chmod go-w` on it");
  }
  std::vector<uint8_t> bytes;
  if (const int error = read_all(file.get(), kMaxSettingsBytes, &bytes)) {
    return refuse(": " + error_text(error) + "; make it readable or remove it");
  }
  text->assign(bytes.begin(), bytes.end());
  return {};
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
    std::string text;
    if (const Status read = read_config(path, environment, &text); read.ok()) {
      apply_config(path, text, settings, problems);
    } else {
      problems->push_back(read.text);
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
