// Functions on files and folders. Those that return int return 0 on success, else errno; none
// throws when a file operation fails.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"

namespace opdock {

std::string error_text(int error);  // "No space left on device"

// Adds O_CLOEXEC, O_NONBLOCK (so that a FIFO cannot block the caller) and O_NOFOLLOW to flags.
int open_file(const std::string& path, int flags, mode_t mode, Fd* out);
// Returns EFBIG beyond the file size limit, and suppresses the signal (SIGXFSZ) that comes with it.
int write_all(int fd, std::string_view bytes);
// Creates or overwrites the file, with mode 0600 if it is new.
int write_whole(const std::string& path, std::string_view bytes);
// Reads a whole regular file of at most `most` bytes; returns EFBIG if it is larger.
int read_all(int fd, uint64_t most, std::vector<uint8_t>* out);
// Reads a whole regular file, following links; nullopt if it does not exist or cannot be read.
std::optional<std::string> read_file(const std::string& path);
int sync_file(int fd);
// Returns 0 where the file system cannot sync folders: it is assumed not to need it.
int sync_folder(const std::string& path);

// Creates the folder and its missing parents, with mode 0700. Appends to *changed each folder that
// got a new subfolder: the caller syncs them once, after it has written the files.
int make_folders(const std::string& path, std::vector<std::string>* changed = nullptr);
// Returns whether this process may write in the folder.
bool can_write(const std::string& folder);
// Renames unless `to` exists (then EEXIST), atomically on every file system that supports that.
int rename_new(const std::string& from, const std::string& to);
// Removes a file, or a folder with everything in it, without following links. Ignores errors.
void remove_tree(const std::string& path);
// Returns whether the path is a regular file that this process may execute.
bool is_executable(const std::string& path);
// Returns the path of the executable `name` in a list of folders in the form of PATH, or "".
// Relative entries are skipped: they would mean another file in every working directory.
std::string find_executable(std::string_view folders, const std::string& name);
// Returns the total size in bytes of the regular files in a tree.
uint64_t tree_bytes(const std::string& path);

// Lists the names in a folder, sorted, without "." and "..".
int list_folder(const std::string& path, std::vector<std::string>* names);
// Computes the SHA-256 (hex) and the size of a regular file of at most `most` bytes; returns EFBIG
// if it is larger.
int digest_file(const std::string& path, uint64_t most, std::string* sha256, uint64_t* size);
// Computes the same for an open file, from its current offset to its end.
int digest_open_file(int fd, std::string* sha256, uint64_t* size);

std::string parent_of(const std::string& path);
// Returns the absolute path with all links resolved, or "" with errno set if there is no such file.
std::string real_path(const std::string& path);
int64_t now_seconds();  // wall-clock time, since 1970
std::string host_name();
// Returns "host.pid.number.random", unique among all processes, threads and machines that share the
// folder.
std::string unique_name();

}  // namespace opdock
