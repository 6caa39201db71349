// The files that a source plugin is built from: which, their contents, and copies of them.
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
  std::string name;    // relative to the plugin's folder, with '/'; of a folder: and one at its end
  std::string sha256;  // of its contents; "unreadable" if it cannot be read, "folder" for a folder
};

// What a build takes of the plugin's folder, in the order of the names: plugin.toml, the files that
// it names, all of what lies in its include folders, meson.build, the files and folders that its
// texts name (and those of a meson.build in such a folder), and what the #include lines of all
// these reach, relative to the file, to the plugin's folder and to the folders named. Nothing
// outside of the folder. Whatever else lies there is neither read nor copied: a build that takes it
// must name it.
//
// Reads every such file: at most 256 MiB in all, and asks `progress` (may be NULL) meanwhile
// whether to stop. False and a reason (source-too-large, cancelled; `reasons` may be NULL). stamps,
// of this folder: what the list depends on is added; NULL: none. Any thread.
bool list_sources(const Manifest& manifest, Progress* progress, std::vector<SourceFile>* files,
                  std::vector<Reason>* reasons, Stamps* stamps = nullptr);

// Copies these below `target`, which exists. trust: checks each file, open for reading; NULL: none
// need be. progress as above. False and a reason if one cannot be read, written or used.
class Trust;
bool copy_sources(const std::string& folder, const std::vector<SourceFile>& files,
                  const std::string& target, Trust* trust, Progress* progress,
                  std::vector<Reason>* reasons);

}  // namespace opdock
