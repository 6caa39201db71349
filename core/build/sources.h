// Lists, hashes and copies the files that a source plugin is built from.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/progress.h"
#include "base/reason.h"
#include "cache/stamps.h"
#include "manifest/manifest.h"

namespace opdock {

struct SourceFile {
  std::string name;    // relative to the plugin's folder, with '/'; a folder's name ends with one
  std::string sha256;  // contents' digest; "unreadable" if it cannot be read, "folder" for a folder
};

// Lists what a build takes from the plugin's folder, in the order of the names: plugin.toml, the
// files that it names, everything in its include folders, meson.build, the files and folders that
// its string literals name (and those of a meson.build in such a folder), and what the #include
// lines of all these reach, relative to the file, to the plugin's folder and to the folders named.
// Nothing outside the plugin's folder is taken. Any other file in it is neither read nor copied: a
// build that uses it must name it.
//
// Reads every such file, at most 256 MiB in all, and meanwhile asks `progress` (may be NULL)
// whether to stop. Returns false and adds a reason on failure (source-too-large, cancelled;
// `reasons` may be NULL). stamps: the stamps of this folder, which get everything that the list
// depends on; may be NULL. Any thread.
bool list_sources(const Manifest& manifest, Progress* progress, std::vector<SourceFile>* files,
                  std::vector<Reason>* reasons, Stamps* stamps = nullptr);

// Copies these files below `target`, which exists. trust: checks each file after it is opened for
// reading; NULL: no check. progress as above. Returns false and adds a reason if a file cannot be
// read, written or used.
class Trust;
bool copy_sources(const std::string& folder, const std::vector<SourceFile>& files,
                  const std::string& target, Trust* trust, Progress* progress,
                  std::vector<Reason>* reasons);

}  // namespace opdock
