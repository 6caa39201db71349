// Whether files still are as they were when they were read, without reading them again.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace opdock {

// Notes how the files and folders that something is derived from look (device, inode, size, times
// of modification and of change), and gives a text to be kept beside what was derived. A change
// within one tick of the file system's clock leaves the times as they are: nothing is vouched for
// that changed less than two seconds before it was read, or, by a clock that was wrong, after it.
// One thread.
class Stamps {
 public:
  // folder: absolute; what is noted lies below it. Begins the reading, at begin_ns of the clock.
  explicit Stamps(std::string folder, int64_t begin_ns = now_ns());
  static int64_t now_ns();  // since the epoch

  // Notes the file or folder, before it is read. name: relative to the folder; "" is the folder
  // itself, whose stamp changes when a name in it comes or goes. Links are followed.
  void add(const std::string& name);
  // Notes only whether it is a folder: that is all that counted.
  void add_kind(const std::string& name);
  // Something could not be read: nothing can be said of next time.
  void spoil() { is_sound_ = false; }

  // After the reading: `value` and the stamps as one text. None if something was spoilt, changed
  // meanwhile, or changed too lately.
  std::optional<std::string> seal(std::string_view value) const;

  // The value of a text that seal() gave, if everything in it still looks the same below `folder`.
  static std::optional<std::string> open(const std::string& folder, std::string_view text);

 private:
  struct Stamp;
  static bool look(const std::string& path, bool only_kind, Stamp* out);
  void add(const std::string& name, bool only_kind);

  const std::string folder_;
  const int64_t begin_ns_;
  bool is_sound_ = true;
  std::vector<std::pair<std::string, std::string>> seen_;  // name, stamp as bytes
};

// Texts as one, and apart again; nothing if `packed` was not made so.
std::string pack_texts(const std::vector<std::string>& texts);
std::optional<std::vector<std::string>> unpack_texts(std::string_view packed);

}  // namespace opdock
