// Gives the paths of the files in the cache's folder.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cache/cache.h"

namespace opdock::cache {

// Paths below <root>/v1/; docs/reference/cache.md draws the tree. A later layout gets a folder of
// its own, v2, and neither touches the other's.
struct Layout {
  std::string root;
  // The root for memos if `root` cannot be written; else empty.
  std::string memo_root = {};

  std::string base() const { return root + "/v1"; }
  std::string temp() const { return base() + "/tmp"; }
  Layout memos() const { return {memo_root.empty() ? root : memo_root, ""}; }
  std::string bad() const { return base() + "/bad"; }
  std::string locks() const { return base() + "/locks"; }
  std::string usage() const { return base() + "/usage"; }
  // The folder of a request's variants, and one variant in it: a file, or a folder with "entry".
  std::string variants(std::string_view kind, std::string_view key) const;
  std::string variant(std::string_view kind, std::string_view key, const CacheMaker& maker) const;
  std::string lock(std::string_view key, const CacheMaker& maker) const;
  // The folder of a request's remembered failures.
  std::string failures(std::string_view key) const;
  std::string failure(std::string_view key, const CacheMaker& maker) const;
  std::string failure_log(std::string_view key, const CacheMaker& maker) const;
  // The file in which this machine keeps the text of a name.
  std::string memo(std::string_view name) const;
  // The folder that records what was made before for a subject: one file for each key.
  std::string history(std::string_view kind, std::string_view subject) const;
};

// Texts that this machine keeps to spare itself work; see Cache::recall.
std::optional<std::string> recall(const Layout& layout, const std::string& name);
void remember(const Layout& layout, const std::string& name, const std::string& text);

// The folders in base() that hold entries.
inline constexpr const char* kKinds[] = {"kernels", "plugin", "tuning"};

// Returns a maker's id as a file name: the id itself if it is 8 to 64 lower-case hexadecimal
// digits, else its SHA-256.
std::string maker_name(const CacheMaker& maker);
bool is_hex(std::string_view text, size_t least, size_t most);
bool is_key(std::string_view text);

}  // namespace opdock::cache
