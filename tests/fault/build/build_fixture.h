// A test fixture with a plugin's folder, a cache, and a PATH of scripts that replace the build's
// tools.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "build/builder.h"
#include "plain_cache.h"

namespace opdock::testing {

// Records the progress that is reported to it, and cancels the build when told to.
class Watcher : public Progress {
 public:
  void step(std::string_view text, double fraction) override;
  bool cancelled() override;
  std::vector<std::string> steps;
  double last_fraction = -1;
  std::string stop_when;  // a file whose existence cancels the build
  bool stop_at_once = false;
};

// Sets the environment that a build sees while the object lives. By default the scripts make a good
// build: the compilers print their versions, meson creates a folder, and ninja prints two steps and
// copies this build's own plugin noop there.
class BuildFixture : public ::testing::Test {
 protected:
  BuildFixture();
  ~BuildFixture() override;

  // Writes a script into the tools' folder; `body` is sh code, in which $TOP is the test's folder.
  void tool(const std::string& name, const std::string& body);
  void remove_tool(const std::string& name);
  void write(const std::string& name, const std::string& text);  // below the test's folder
  std::string read(const std::string& name) const;
  // Counts the lines of a file that the scripts append to; 0 if there is no such file.
  size_t lines(const std::string& name) const;

  // Uses this machine's Meson, Ninja and compilers from now on, with a limit of two minutes.
  // Returns false if it has none.
  bool use_real_tools();
  static Manifest manifest_at(const std::string& folder);
  Manifest manifest() const { return manifest_at(source()); }
  std::string source() const { return top + "/source"; }
  BuildResult build(Cache* with = nullptr);
  bool failed_with(Code code) const;
  std::string text_of_reasons() const;
  // Whether the builder has left no work folder in the cache's folder.
  bool left_nothing() const;
  // Returns the processes whose command line or environment names the test's folder, except this
  // one; waits up to a second for them to end.
  std::vector<std::string> orphans() const;

  std::string top;
  std::unique_ptr<PlainCache> cache;
  BuildOptions options;
  Watcher watcher;
  std::vector<Reason> reasons;
};

// Returns a plugin.toml with one op for this device that does nothing. More sections may follow it.
std::string noop_toml(const std::string& device = "cpu");

// Files of this build, whose paths come from environment variables that Meson sets.
std::string good_plugin();    // noop.so
std::string other_plugin();   // norm.so
std::string plain_library();  // libopdock.so, not a plugin

}  // namespace opdock::testing
