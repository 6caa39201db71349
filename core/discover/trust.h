// Trust: who could have written a plugin file, and the folders that a user has vouched for.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/reason.h"
#include "discover/catalog.h"

namespace opdock {

// Judges files and the folders on the way to them; remembers each folder. Thread-safe.
//
// Trusted owners are root, the owner of this library, and the user, except under AT_SECURE: there
// the user is whom the program's privileges must be protected from. What others can write is not
// trusted. A sticky folder, such as /tmp, may be passed through to what a trusted owner has in it,
// as nobody else can rename or remove that. Group write permission is accepted for the private
// group of a trusted owner, if no access list says more.
class Trust {
 public:
  explicit Trust(const SearchEnvironment& environment);

  // The first folder or link that makes `path` (absolute; a folder or a file) untrusted, of all
  // that resolving it passes through. If `path` is not there, what might be made there counts.
  std::optional<Reason> judge_way(const std::string& path);

  // The file itself, by the descriptor that was opened. `path` is for the text.
  std::optional<Reason> judge_file(int fd, const struct stat& status, const std::string& path);

  // Both: the way to a file, and the file that was opened there.
  std::optional<Reason> judge(const std::string& path, int fd, const struct stat& status);

  // True if `folder` (absolute), links resolved, is one that the user vouched for, or lies in one.
  bool has_consent(const std::string& folder) const;

  // What was wrong with the list of vouched folders, for the catalogue's notices.
  const std::vector<Reason>& notices() const { return notices_; }

 private:
  // What is known of a folder: why others decide what is in it, and whether they can only add.
  struct Folder {
    std::optional<Reason> reason;
    bool is_sticky = false;
  };

  Folder judge_folder(const std::string& path);
  std::optional<Reason> judge_entry(const std::string& folder, const std::string& path,
                                    const struct stat& status);
  std::optional<Reason> judge_owner_and_mode(const struct stat& status, const std::string& path,
                                             int fd) const;
  bool is_owner(uid_t user) const;

  std::vector<uid_t> owners_;
  std::vector<std::string> consents_;
  std::vector<Reason> notices_;
  std::mutex mutex_;
  std::map<std::string, Folder> folders_;
};

// The file that holds the user's consents, one absolute path a line; empty if there is no home.
std::string consent_file(const SearchEnvironment& environment);

// The folders in it. A file that others could have written counts for nothing and gives a notice.
std::vector<std::string> read_consents(const SearchEnvironment& environment,
                                       std::vector<Reason>* notices);

// Adds `folder`, links resolved, to the user's consents; a second time changes nothing. Returns
// what went wrong, or an empty text. `is_argument` tells whether the argument was at fault.
std::string record_consent(const std::string& folder, const SearchEnvironment& environment,
                           bool* is_argument);

}  // namespace opdock
