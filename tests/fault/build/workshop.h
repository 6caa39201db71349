// A plugin's folder, a cache and a PATH of scripts that play the build's tools.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "build/builder.h"
#include "plain_cache.h"

namespace opdock::testing {

// Keeps what is reported to it and stops when asked to.
class Watcher : public Progress {
 public:
  void step(std::string_view text, double fraction) override;
  bool cancelled() override;
  std::vector<std::string> steps;
  double last_fraction = -1;
  std::string stop_when;  // a file whose existence means: stop
  bool stop_at_once = false;
};

// Sets what a build sees of its surroundings for the life of the object. The scripts of a good
// build: compilers that say their version, meson that makes a folder, ninja that prints two steps
// and copies this build's own plugin noop there.
class Workshop : public ::testing::Test {
 protected:
  Workshop();
  ~Workshop() override;

  // A script in the tools' folder; `body` is sh, $TOP the test's folder.
  void tool(const std::string& name, const std::string& body);
  void remove_tool(const std::string& name);
  void write(const std::string& name, const std::string& text);  // below the test's folder
  std::string read(const std::string& name) const;
  // Lines in a file that the scripts append to; 0 if it is not there.
  size_t lines(const std::string& name) const;

  // This machine's Meson, Ninja and compilers from now on, and two minutes. False if it has none.
  bool use_real_tools();
  static Manifest manifest_at(const std::string& folder);
  Manifest manifest() const { return manifest_at(source()); }
  std::string source() const { return top + "/source"; }
  BuildResult build(Cache* with = nullptr);
  bool failed_with(Code code) const;
  std::string text_of_reasons() const;
  // Nothing but entries is left in the cache's folder.
  bool left_nothing() const;
  // Processes whose command line or environment names the test's folder, this one excepted; waits
  // up to a second for them to go.
  std::vector<std::string> orphans() const;

  std::string top;
  std::unique_ptr<PlainCache> cache;
  BuildOptions options;
  Watcher watcher;
  std::vector<Reason> reasons;
};

// A plugin.toml of one op for this device, which does nothing. More sections may follow it.
std::string noop_toml(const std::string& device = "cpu");

// This build's own files, by the environment that Meson sets.
std::string good_plugin();    // noop.so
std::string other_plugin();   // norm.so
std::string plain_library();  // libopdock.so: no plugin

}  // namespace opdock::testing
