// Trust: who could have written a plugin file, and the folders that a user has vouched for.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/reason.h"
#include "base/status.h"
#include "trust/search_environment.h"

namespace opdock {

// Whether others decide what a path leads to.
struct TrustedPath {
  std::optional<Reason> reason;  // the first folder or link that makes it untrusted
  bool has_consent = false;      // the user vouched for the folder where it ends
};

// Checks files and the folders above them; remembers each folder. Thread-safe.
//
// Trusted owners are root, the owner of this library, and the user, except under AT_SECURE: there
// the user is whom the program's privileges must be protected from. What others can write is not
// trusted. A sticky folder, such as /tmp, may be passed through to what a trusted owner has in it,
// as no other user can rename or remove that. Group write permission is accepted for the private
// group of a trusted owner, if no access list says more.
//
// Consent covers what really lies in the folder that the user vouched for. A link is as trusted as
// both the folder that it lies in and the one that it leads to.
class Trust {
 public:
  explicit Trust(const SearchEnvironment& environment);

  // All folders and links that resolving `path` (absolute; of a folder or a file) passes through.
  // If it is not there, what might be made there counts.
  TrustedPath check_path(const std::string& path);

  // The file itself, by the descriptor that was opened. `path` is for the text.
  std::optional<Reason> check_file(int fd, const struct stat& status, const std::string& path);

  // Both: the path of a file, and the file that was opened there.
  std::optional<Reason> check(const std::string& path, int fd, const struct stat& status);

  // The folders that the user vouched for, as they were recorded: absolute, links resolved.
  const std::vector<std::string>& consents() const { return consents_; }

  // What was wrong with the list of vouched folders, for the catalogue's notices.
  const std::vector<Reason>& notices() const { return notices_; }

 private:
  // What is known of a folder: why others decide what is in it, and whether they can only add.
  struct Folder {
    std::optional<Reason> reason;
    bool is_sticky = false;
  };

  // A folder of a path, its links resolved, and what speaks against it or one above it.
  struct Level {
    std::string path;
    std::optional<Reason> reason;
  };

  TrustedPath check_end(const Level& level, std::optional<Reason> own) const;
  bool covers(const std::string& real) const;
  Folder check_folder(const std::string& path);
  std::optional<Reason> check_entry(const std::string& folder, const std::string& path,
                                    const struct stat& status);
  std::optional<Reason> check_owner_and_mode(const struct stat& status, const std::string& path,
                                             int fd) const;
  bool is_owner(uid_t user) const;
  // A list that others could have written counts for nothing and gives a notice.
  void read_consents(const SearchEnvironment& environment);

  std::vector<uid_t> owners_;
  std::vector<std::string> consents_;
  std::vector<Reason> notices_;
  Mutex mutex_;  // of the folders
  std::map<std::string, Folder> folders_;
};

// The file that holds the user's consents, one absolute path a line; empty if there is no home.
std::string consent_file(const SearchEnvironment& environment);

// Adds `folder`, links resolved, to the user's consents; a second time changes nothing. Without
// `force` the root folder and folders that everybody may write are refused: anybody could add code
// to them. OPDOCK_INVALID_ARGUMENT: the argument is at fault; OPDOCK_INTERNAL: the list is.
Status record_consent(const std::string& folder, const SearchEnvironment& environment,
                      bool force = false);

// Takes `folder` from them, by the name it is listed under or one that leads to it. One that is not
// listed is the argument's fault.
Status withdraw_consent(const std::string& folder, const SearchEnvironment& environment);

}  // namespace opdock
