// Tells whether files are still as they were when they were read, without reading them again.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace opdock {

// Records how the files and folders that a value is derived from look (device, inode, size, times
// of modification and of change), and gives a text to be kept with the value. A change within one
// tick of the file system's clock leaves the times as they are, so files are not vouched for that
// changed less than two seconds before they were read or, by a clock that was wrong, after it. One
// thread.
class Stamps {
 public:
  // folder: absolute; everything recorded lies below it. The reading begins now, at begin_ns of the
  // clock.
  explicit Stamps(std::string folder, int64_t begin_ns = now_ns());
  static int64_t now_ns();  // since the epoch

  // Records the file or folder; to be called before it is read. name: relative to the folder; "" is
  // the folder itself, whose stamp changes when a name in it comes or goes. Links are followed.
  void add(const std::string& name);
  // Records only whether it is a folder, for readers to whom nothing else matters.
  void add_kind(const std::string& name);
  // Records that there is nothing of that name: the memo holds while there is not.
  void add_absent(const std::string& name);
  // Records that something could not be read, so that nothing can be vouched for next time.
  void invalidate() { is_sound_ = false; }

  // To be called after the reading. Returns `value` and the stamps as one text; nullopt if
  // something was unreadable, changed meanwhile, or changed too recently.
  std::optional<std::string> to_memo(std::string_view value) const;

  // Returns the value of a text that to_memo() returned, if everything in it still looks the same
  // below `folder`.
  static std::optional<std::string> from_memo(const std::string& folder, std::string_view text);

 private:
  struct Stamp;
  static bool look(const std::string& path, bool only_kind, Stamp* out);
  void add(const std::string& name, bool only_kind);

  const std::string folder_;
  const int64_t begin_ns_;
  bool is_sound_ = true;
  std::vector<std::pair<std::string, std::string>> seen_;  // name, stamp as bytes
};

// Joins texts into one, and splits it again; nullopt if `packed` was not made by pack_texts().
std::string pack_texts(const std::vector<std::string>& texts);
std::optional<std::vector<std::string>> unpack_texts(std::string_view packed);

}  // namespace opdock
