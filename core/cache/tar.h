// Reads and writes the plain tar format, POSIX.1-1988 ustar without compression, only for plain
// files.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace opdock::cache {

inline constexpr size_t kTarBlock = 512;
using TarBlock = std::array<char, kTarBlock>;

// Appends the file at `path` to the archive, as `name`, and adds its bytes in the archive to
// *total. Returns 0 or errno; ENAMETOOLONG if the name or the size does not fit.
int append_to_tar(int archive, const std::string& path, const std::string& name, uint64_t* total);
// Returns the bytes that end an archive, after the last file.
std::string tar_end();

// The head of a file in an archive. The file's bytes follow it, padded to a whole block.
struct TarFile {
  std::string name;
  uint64_t size = 0;
  bool is_executable = false;
};
enum class TarHead {
  kFile,
  kOther,   // no plain file; only the name in *out is known
  kEnd,     // end of the archive
  kNoHead,  // bytes that are not a tar file's
};
TarHead read_tar_head(const TarBlock& block, TarFile* out);
// Returns the number of padding bytes after a file of that size.
size_t tar_padding(uint64_t size);

}  // namespace opdock::cache
