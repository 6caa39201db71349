// SPDX-License-Identifier: Apache-2.0
#include "inspect/unpack.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "base/files.h"

namespace opdock {
namespace {

Fd unnamed_file() {
  const char* folder = secure_getenv("TMPDIR");
  if (folder == nullptr || *folder != '/') folder = "/tmp";
  Fd file(open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, 0600));
  if (!file) file = Fd(memfd_create("opdock-member", MFD_CLOEXEC));
  return file;
}

}  // namespace

std::optional<Fd> unpack_member(const Zip& zip, const ZipEntry& entry, std::string* problem) {
  Fd file = unnamed_file();
  if (!file) {
    *problem = "no place to unpack it (" + error_text(errno) + ")";
    return std::nullopt;
  }
  int error = 0;
  const bool was_read = zip.read(
      entry, entry.size,
      [&](const uint8_t* bytes, size_t count) {
        error = write_all(file.get(), {reinterpret_cast<const char*>(bytes), count});
        return error == 0;
      },
      problem);
  if (was_read) return file;
  if (error != 0) *problem = "no place to unpack it (" + error_text(error) + "; TMPDIR names one)";
  return std::nullopt;
}

}  // namespace opdock
