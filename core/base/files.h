// Files and folders, with errno as the answer: 0 is success. Nothing here throws.
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

// O_CLOEXEC, O_NONBLOCK and O_NOFOLLOW are added to flags; a FIFO cannot hold the caller up.
int open_file(const std::string& path, int flags, mode_t mode, Fd* out);
// EFBIG beyond the limit of file sizes, without the signal that goes with it.
int write_all(int fd, std::string_view bytes);
// Makes the file, 0600, or overwrites it.
int write_whole(const std::string& path, std::string_view bytes);
// The whole of a regular file of at most `most` bytes, else EFBIG.
int read_all(int fd, uint64_t most, std::vector<uint8_t>* out);
// The bytes of a regular file, links followed; nullopt if there is none, or it cannot be read.
std::optional<std::string> read_file(const std::string& path);
int sync_file(int fd);
// A file system that cannot sync folders counts as one that need not.
int sync_folder(const std::string& path);

// Makes the folder and what is missing above it, 0700. Appends the folders that got a new one in
// them: to be synced, once, after what is made for has been put there.
int make_folders(const std::string& path, std::vector<std::string>* changed = nullptr);
// Whether this process may write in the folder.
bool can_write(const std::string& folder);
// Renames unless `to` is there already (EEXIST), atomically on every file system that can.
int rename_new(const std::string& from, const std::string& to);
// A file or a folder with everything in it, links not followed. Best effort.
void remove_tree(const std::string& path);
// A regular file that this process may execute.
bool is_executable(const std::string& path);
// The executable of that name in a list of folders such as PATH has, or "". A relative entry would
// name another file in every working directory: it is passed over.
std::string find_executable(std::string_view folders, const std::string& name);
// The bytes of the regular files in a tree.
uint64_t tree_bytes(const std::string& path);

// Names in a folder, sorted, without "." and "..".
int list_folder(const std::string& path, std::vector<std::string>* names);
// SHA-256, hex, and size of a regular file of at most `most` bytes, else EFBIG.
int digest_file(const std::string& path, uint64_t most, std::string* sha256, uint64_t* size);
// The same of an open file, from where it is to its end.
int digest_open_file(int fd, std::string* sha256, uint64_t* size);

std::string parent_of(const std::string& path);
// Absolute, with all links resolved; empty if it leads nowhere, and errno says why.
std::string real_path(const std::string& path);
int64_t now_seconds();  // by the wall clock
std::string host_name();
// "host.pid.number.random": different in every process, thread and machine that shares the folder.
std::string unique_name();

}  // namespace opdock
