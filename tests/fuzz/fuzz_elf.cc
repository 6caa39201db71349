// Fuzzes the reader of plugin files, at both reading depths.
// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "note/file_facts.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int fd = memfd_create("fuzz", MFD_CLOEXEC);
  if (ftruncate(fd, 0) != 0 || pwrite(fd, data, size, 0) != static_cast<ssize_t>(size)) abort();
  for (const opdock::Depth depth : {opdock::Depth::kJudge, opdock::Depth::kInspect}) {
    const opdock::FileFacts facts = opdock::read_file_facts(fd, size, "fuzz.so", depth);
    // Either the file has a note or there is a reason why not.
    if (!facts.note && facts.reasons.empty()) abort();
    for (const opdock::Reason& reason : facts.reasons) {
      if (reason.found.empty() || reason.wanted.empty()) abort();
    }
    // Each image that is reported lies within the file.
    for (const opdock::DeviceImage& image : facts.images) {
      if (image.offset > size || image.size > size - image.offset) abort();
    }
  }
  return 0;
}
