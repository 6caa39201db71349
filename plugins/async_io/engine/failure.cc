// SPDX-License-Identifier: Apache-2.0
#include "failure.h"

#include <cerrno>
#include <system_error>

namespace async_io {
namespace {

std::string range_text(uint64_t bytes, uint64_t offset) {
  return std::to_string(bytes) + " bytes at offset " + std::to_string(offset);
}

const char* advice(int error) {
  switch (error) {
    case ENOENT:
      return "; a read wants an existing file, and a write an existing folder";
    case EACCES:
    case EPERM:
    case EROFS:
      return "; give this user the right to it, or use another file";
    case EISDIR:
      return "; give the path of a file";
    case EMFILE:
    case ENFILE:
      return "; close files, or raise the limit of open files (ulimit -n)";
    case ENOSPC:
    case EDQUOT:
      return "; free space on the file system, or use another one";
    case EFBIG:
      return "; raise the limit of file sizes (ulimit -f), or use a file system with larger files";
    case EFAULT:
      return "; give memory that this process may read and write";
    case EIO:
      return "; the kernel's log (dmesg) may say what is wrong with the device";
  }
  return "";
}

}  // namespace

std::string error_text(int error) {
  return std::generic_category().message(error) + " (errno " + std::to_string(error) + ")";
}

std::string to_text(const Failure& failure, const Request& request) {
  const std::string file = "'" + request.path + "'";
  const std::string why = ": " + error_text(failure.error) + advice(failure.error);
  switch (failure.of) {
    case Failure::Of::kOpening:
      return "cannot open " + file + (request.is_write ? " for writing" : " for reading") + why;
    case Failure::Of::kKind:
      return file + ": found a folder or a device, wanted a regular file; give another path";
    case Failure::Of::kEndOfFile:
      return file + ": found a file of " + std::to_string(failure.found) + " bytes, wanted " +
             range_text(request.bytes, request.offset) + ", which takes " +
             std::to_string(request.offset + request.bytes) +
             "; read less, or complete the file first";
    case Failure::Of::kReading:
      return "cannot read " + range_text(failure.bytes, failure.offset) + " of " + file + why;
    case Failure::Of::kWriting:
      return "cannot write " + range_text(failure.bytes, failure.offset) + " of " + file + why;
    case Failure::Of::kResizing:
      return "cannot give " + file + " the size of " + std::to_string(request.file_size) +
             " bytes" + why;
    case Failure::Of::kClosing:
      return "cannot finish the writing of " + file + why;
    case Failure::Of::kNothing:
      break;
  }
  return "";
}

}  // namespace async_io
