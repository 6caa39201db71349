// Decides who could have written a plugin file; keeps the folders that a user has vouched for.
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

// The result of a check whether other users can decide what a path leads to.
struct TrustedPath {
  std::optional<Reason> reason;  // the first folder or link that makes it untrusted
  bool has_consent = false;      // the user vouched for the folder where it ends
};

// Checks files and the folders above them; remembers each folder. Thread-safe.
//
// Trusted owners are root, the owner of this library, and the user, except under AT_SECURE, where
// the program's privileges must be protected from the user. A file or folder that others can write
// is not trusted. A path may pass through a sticky folder, such as /tmp, to an entry of a trusted
// owner, because no other user can rename or remove that entry. Group write permission is accepted
// for the private group of a trusted owner if there is no access list.
//
// Consent covers what is in the folder that the user vouched for after links are resolved. A link
// is trusted only if both the folder that contains it and the folder that it leads to are.
class Trust {
 public:
  explicit Trust(const SearchEnvironment& environment);

  // Checks all folders and links that resolving `path` (absolute; of a folder or a file) passes
  // through. If it does not exist, what others could create there counts.
  TrustedPath check_path(const std::string& path);

  // Checks the file itself, by the descriptor that was opened. `path` is only for the text.
  std::optional<Reason> check_file(int fd, const struct stat& status, const std::string& path);

  // Checks both the path of a file and the file that was opened there.
  std::optional<Reason> check(const std::string& path, int fd, const struct stat& status);

  // Returns the folders that the user vouched for, as recorded: absolute, links resolved.
  const std::vector<std::string>& consents() const { return consents_; }

  // Returns the problems of the list of vouched folders, for the catalogue's notices.
  const std::vector<Reason>& notices() const { return notices_; }

 private:
  // Why others can decide what is in a folder, and whether it is sticky, so that they can only add
  // to it.
  struct Folder {
    std::optional<Reason> reason;
    bool is_sticky = false;
  };

  // A folder on a path, with links resolved, and the reason against it or against one above it.
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
  // A list that others could have written is ignored and gives a notice.
  void read_consents(const SearchEnvironment& environment);

  std::vector<uid_t> owners_;
  std::vector<std::string> consents_;
  std::vector<Reason> notices_;
  Mutex mutex_;  // guards folders_
  std::map<std::string, Folder> folders_;
};

// Returns the file with the user's consents, one absolute path per line; empty if there is no home.
std::string consent_file(const SearchEnvironment& environment);

// Adds `folder`, with links resolved, to the user's consents; adding it again changes nothing.
// Without `force` the root folder and folders that everybody may write are refused, because anybody
// could add code to them. Returns OPDOCK_INVALID_ARGUMENT if the argument is at fault,
// OPDOCK_INTERNAL if the list is.
Status record_consent(const std::string& folder, const SearchEnvironment& environment,
                      bool force = false);

// Removes `folder` from the user's consents, by the name it is listed under or one that leads to
// it. Returns OPDOCK_INVALID_ARGUMENT if it is not listed.
Status withdraw_consent(const std::string& folder, const SearchEnvironment& environment);

}  // namespace opdock
