// SPDX-License-Identifier: Apache-2.0
#include "base/guarded.h"

#include <cstring>
#include <exception>
#include <new>

#include "opdock/types.hpp"

namespace opdock {

void ErrorBuffer::write(std::string_view first, std::string_view second,
                        std::string_view third) const {
  if (data == nullptr || size == 0) return;
  size_t used = 0;
  bool cut = false;
  for (std::string_view part : {first, second, third}) {
    size_t room = size - 1 - used;
    size_t count = part.size() < room ? part.size() : room;
    cut = cut || count < part.size();
    if (count > 0) std::memcpy(data + used, part.data(), count);
    used += count;
  }
  if (cut) {  // do not end inside a UTF-8 sequence
    size_t start = used;
    while (start > 0 && (static_cast<unsigned char>(data[start - 1]) & 0xC0) == 0x80) --start;
    if (start > 0) {
      unsigned char lead = static_cast<unsigned char>(data[start - 1]);
      size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
      if (used - (start - 1) < length) used = start - 1;
    }
  }
  data[used] = '\0';
}

opdock_status status_of_exception(const ErrorBuffer& error) noexcept {
  try {
    throw;
  } catch (const Error& failure) {
    return error.fail(failure.status(), failure.what());
  } catch (const std::bad_alloc&) {
    return error.fail(OPDOCK_OUT_OF_MEMORY, "no host memory is left; free some and try again");
  } catch (const std::exception& problem) {
    return error.fail(OPDOCK_INTERNAL, problem.what());
  } catch (...) {  // a type that the program or a plugin defines
    return error.fail(OPDOCK_INTERNAL, "found an exception of a type unknown here, wanted none");
  }
}

std::string text_of_exception() {
  try {
    throw;
  } catch (const std::exception& problem) {
    return std::string("an exception: ") + problem.what();
  } catch (...) {
    return "an exception of a type unknown here";
  }
}

opdock_status missing(const ErrorBuffer& error, const char* what) {
  error.write("found NULL, wanted ", what);
  return OPDOCK_INVALID_ARGUMENT;
}

}  // namespace opdock
