// SPDX-License-Identifier: Apache-2.0
#include "folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <mutex>

namespace opdock::testing {
namespace {

namespace fs = std::filesystem;

std::mutex count_mutex;
std::map<std::string, int> counts;

void count(const opdock_call*, int32_t, const char* message) {
  const std::lock_guard<std::mutex> lock(count_mutex);
  ++counts[message];
}

const MachineFacts& machine() {
  static const MachineFacts facts = probe_machine();
  return facts;
}

}  // namespace

Folder::Folder() {
  std::string pattern = std::string(CASE_PLUGINS) + "/folder.XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) ADD_FAILURE() << "mkdtemp " << pattern;
  root_ = fs::canonical(pattern);
  chmod(root_.c_str(), 0755);
}

Folder::~Folder() {
  std::error_code ignored;
  fs::remove_all(root_, ignored);
}

std::string Folder::path(const std::string& name) const {
  return name.empty() ? root_.string() : (root_ / name).string();
}

std::string Folder::add(const std::string& name, std::string as) const {
  const std::string to = path(as.empty() ? name + ".so" : as);
  fs::copy_file(case_path(name), to, fs::copy_options::overwrite_existing);
  chmod(to.c_str(), 0755);
  return to;
}

std::string Folder::replace(const std::string& name, const std::string& as) const {
  const std::string fresh = add(name, as + ".new");
  fs::rename(fresh, path(as));
  return path(as);
}

std::string Folder::write(const std::string& as, const std::string& text) const {
  std::ofstream(path(as), std::ios::binary) << text;
  chmod(path(as).c_str(), 0644);
  return path(as);
}

std::string case_path(const std::string& name) {
  return std::string(CASE_PLUGINS) + "/" + name + ".so";
}

SearchOptions explicit_place(const std::string& path) {
  SearchOptions options;
  options.plugin_path = path;
  options.has_plugin_path = true;
  return options;
}

SearchOptions package_place(const std::string& path) {
  SearchOptions options;
  options.package_path = path;
  return options;
}

std::shared_ptr<const Catalog> find(const SearchOptions& options) {
  return discover(options, machine());
}

std::shared_ptr<const Candidate> at(const Catalog& catalog, const std::string& path) {
  for (const std::shared_ptr<const Candidate>& candidate : catalog.candidates()) {
    if (candidate->path == path) return candidate;
  }
  ADD_FAILURE() << "no candidate " << path;
  return nullptr;
}

std::string describe(const Candidate& candidate) {
  std::string text = candidate.path + " " + std::string(to_text(candidate.verdict.state)) + ":";
  for (const Reason& reason : candidate.verdict.reasons) text += "\n  " + to_text(reason);
  return text;
}

const opdock_host* counting_host() {
  static const opdock_host host = [] {
    opdock_host made{};
    made.struct_size = sizeof made;
    made.abi_major = OPDOCK_ABI_MAJOR;
    made.abi_minor = OPDOCK_ABI_MINOR;
    made.version = "test";
    made.log = count;
    return made;
  }();
  return &host;
}

int count_of(const std::string& message) {
  const std::lock_guard<std::mutex> lock(count_mutex);
  return counts[message];
}

void expect_good_still_loads(const SearchOptions& options) {
  const std::shared_ptr<const Catalog> catalog = find(options);
  for (const std::shared_ptr<const Candidate>& candidate : catalog->providers("good")) {
    if (candidate->verdict.state != State::kUsable) continue;
    std::vector<Reason> reasons;
    EXPECT_NE(load(candidate, counting_host(), &reasons), nullptr)
        << (reasons.empty() ? "" : to_text(reasons.front()));
    return;
  }
  ADD_FAILURE() << "the plugin \"good\" is not usable";
}

}  // namespace opdock::testing
