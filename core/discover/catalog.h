// The catalogue: every plugin file that discovery found, in order, with its verdict.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/reason.h"
#include "compat/verdict.h"
#include "facts/machine.h"
#include "manifest/manifest.h"
#include "note/file_facts.h"
#include "trust/search_environment.h"

namespace opdock {

// What identifies a file's content without reading it: the file that was checked must be the file
// that is loaded.
struct FileStamp {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t size = 0;
  int64_t mtime_ns = 0;
  int64_t ctime_ns = 0;
  bool operator==(const FileStamp&) const = default;
};

struct Candidate {
  std::string path;    // absolute
  std::string origin;  // which search place: "OPDOCK_PLUGIN_PATH", "/etc/opdock/plugins.d", …
  size_t rank = 0;     // position in the search order; smaller is earlier
  FileStamp stamp;
  FileFacts file;   // empty if the file could not be read or is not trusted enough to matter
  Verdict verdict;  // state and all reasons, those of discovery and trust included
};

// A folder with a plugin.toml: what can be built where no binary fits.
struct SourcePlugin {
  std::string folder;        // absolute
  std::string origin;        // which search place
  size_t rank = 0;           // position in the search order, among the source plugins
  bool needs_trust = false;  // its place was not named: trust is checked again before a build
  std::shared_ptr<const Manifest> manifest;  // NULL: plugin.toml cannot be read
  State state = State::kUsable;              // kUsable: it may be built; kRejected: it may not
  std::vector<Reason> reasons;               // all, notices too
  // How each device it is for would fare: rejected where it is not on this machine.
  std::vector<DeviceVerdict> devices;
};

// Immutable once built; its readers share it while a newer one is being made.
class Catalog {
 public:
  const std::vector<std::shared_ptr<const Candidate>>& candidates() const { return candidates_; }
  // Every source plugin found, in the order of the search.
  const std::vector<std::shared_ptr<const SourcePlugin>>& sources() const { return sources_; }
  // What is to be said of the search itself and not of one file: variables that were ignored.
  const std::vector<Reason>& notices() const { return notices_; }

  // The candidates whose note has op `name`, best first: usable before undecided before rejected,
  // then the newer plugin version, then the smaller rank. `name` may be "plugin/op".
  std::vector<std::shared_ptr<const Candidate>> providers(const std::string& name) const;
  // The source plugins that declare op `name`, best first, by the same rules.
  std::vector<std::shared_ptr<const SourcePlugin>> source_providers(const std::string& name) const;

 private:
  friend class Discovery;
  std::vector<std::shared_ptr<const Candidate>> candidates_;
  std::vector<std::shared_ptr<const SourcePlugin>> sources_;
  std::vector<Reason> notices_;
};

struct SearchOptions {
  std::string plugin_path;  // opdock_options.plugin_path; empty: the default places
  bool has_plugin_path = false;
  std::string package_path;  // opdock_options.package_path
  SearchEnvironment environment;
};

// Walks the search places (docs/concepts.md has the order), judges each file on the machine given,
// and returns the catalogue. Loads nothing. Several threads read files.
std::shared_ptr<const Catalog> discover(const SearchOptions& options, const MachineFacts& machine);

// One file by explicit path, which is consent: no trust check.
std::shared_ptr<const Candidate> examine(const std::string& path, const MachineFacts& machine,
                                         Depth depth);

}  // namespace opdock
