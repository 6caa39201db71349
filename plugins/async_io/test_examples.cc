// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <unistd.h>

#include "examples.h"

namespace opdock_test {

// Returns the path of a file that needs no folder: 96 bytes, the size of {4, 6} floats.
static std::string file() {
  static const int descriptor = [] {
    const int made = memfd_create("async-io-examples", 0);
    if (made < 0 || ftruncate(made, 96) != 0) perror("memfd_create");
    return made;
  }();
  return "/proc/self/fd/" + std::to_string(descriptor);
}

static const ExamplesOf async_io_examples([](Examples& examples) {
  const opdock_value x = examples.array({4, 6}), columns = examples.array({4, 6}, {1, 4}),
                     path = examples.text(file()), nowhere = examples.text(""), start = integer(0),
                     before = integer(-1);
  const auto options = [&](int64_t block, int64_t depth, int64_t threads, const char* backend) {
    return std::vector<opdock_value>{integer(block), integer(depth), integer(threads),
                                     boolean(false), boolean(true),  examples.text(backend)};
  };
  const std::vector<opdock_value> good = options(4096, 4, 1, "");
  examples.add({"async_io",
                "aio_open",
                good,
                {},
                {options(0, 4, 1, ""), options(4096, 0, 1, ""), options(4096, 4, 1025, ""),
                 options(4096, 4, 1, "posix")}});
  examples.add({"async_io", "aio_zeros_like", {x}, {examples.output({4, 6})}, {}, false});
  const opdock_value handle = examples.result("async_io", "aio_open", good);
  Array *const read = examples.output({4, 6}), *const later = examples.output({4, 6});
  const auto wrong = [&](const opdock_value& tensor) {
    return std::vector<std::vector<opdock_value>>{{handle, columns, path, start},
                                                  {handle, tensor, nowhere, start},
                                                  {handle, tensor, path, before}};
  };
  const auto wrong_write = [&] {
    std::vector<std::vector<opdock_value>> all = wrong(x);
    for (std::vector<opdock_value>& args : all) args.push_back(none());
    all.push_back({handle, x, path, start, integer(95)});
    return all;
  };
  examples.add({"async_io", "aio_write", {handle, x, path, start, none()}, {}, wrong_write()});
  examples.add({"async_io",
                "aio_read",
                {handle, read->value(), path, start},
                {},
                wrong(read->value()),
                false,
                false,
                {read}});
  examples.add(
      {"async_io", "aio_submit_write", {handle, x, path, start, integer(96)}, {}, wrong_write()});
  const opdock_value ticket =
      examples.result("async_io", "aio_submit_read", {handle, later->value(), path, start});
  examples.add({"async_io", "aio_wait", {handle, ticket}, {}, {{handle, before}}});
  examples.add({"async_io",
                "aio_submit_read",
                {handle, examples.output({4, 6})->value(), path, start},
                {},
                wrong(later->value())});
  examples.add({"async_io", "aio_wait_all", {handle}, {}, {}});
});

}  // namespace opdock_test
