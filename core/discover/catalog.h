// The catalogue: every plugin file that discovery found, in search order, with its verdict.
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

// Identifies a file's content without reading it. Used to ensure that the file that is loaded is
// the one that was checked.
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
  std::string origin;  // the search place: "OPDOCK_PLUGIN_PATH", "/etc/opdock/plugins.d", …
  size_t rank = 0;     // position in the search order; smaller is earlier
  FileStamp stamp;
  FileFacts file;   // empty if the file was rejected before it was read
  Verdict verdict;  // state and all reasons, including those of discovery and trust
};

// A folder with a plugin.toml, which can be built if no binary fits.
struct SourcePlugin {
  std::string folder;  // absolute
  std::string origin;  // the search place
  size_t rank = 0;     // position in the search order of source plugins
  // The user did not name its place, so trust is checked again before a build.
  bool needs_trust = false;
  std::shared_ptr<const Manifest> manifest;  // NULL: plugin.toml cannot be read
  State state = State::kUsable;              // kUsable: may be built; kRejected: must not be built
  std::vector<Reason> reasons;               // all reasons, also notices
  // The verdict for each device that it supports: rejected if this machine does not have the
  // device.
  std::vector<DeviceVerdict> devices;
};

// Immutable once built; readers share it while a newer one is made.
class Catalog {
 public:
  const std::vector<std::shared_ptr<const Candidate>>& candidates() const { return candidates_; }
  // All source plugins that were found, in search order.
  const std::vector<std::shared_ptr<const SourcePlugin>>& sources() const { return sources_; }
  // Messages about the search itself and not about one file, such as ignored variables.
  const std::vector<Reason>& notices() const { return notices_; }

  // Returns the candidates whose note has op `name`, best first: usable before undecided before
  // rejected, then the newer plugin version, then the smaller rank. `name` may be "plugin/op".
  std::vector<std::shared_ptr<const Candidate>> providers(const std::string& name) const;
  // Returns the source plugins that declare op `name`, best first by the same rules.
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

// Walks the search places (docs/concepts/concepts.md has their order), judges each file for the
// given machine, and returns the catalogue. Loads nothing. Reads files in several threads.
std::shared_ptr<const Catalog> discover(const SearchOptions& options, const MachineFacts& machine);

// Judges one file by its explicit path. The explicit path is consent, so there is no trust check.
std::shared_ptr<const Candidate> examine(const std::string& path, const MachineFacts& machine,
                                         Depth depth);

}  // namespace opdock
