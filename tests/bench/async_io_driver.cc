// Times the I/O engine of plugins/async_io on one file, for benches that compare it with others.
//   async_io_driver read|write FILE BYTES [--block=N] [--depth=N] [--threads=N] [--repeat=N]
//                   [--backend=io_uring|aio|threads] [--single-submit] [--no-overlap] [--lock]
// Prints a line of JSON: the seconds of each round, from submit to the end of wait, and the way the
// engine took. A read makes the file first if it is not that large. A write overwrites.
// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "../../plugins/async_io/engine.h"
#include "../../plugins/async_io/pages.h"

namespace {

using namespace async_io;

[[noreturn]] void usage() {
  fprintf(stderr,
          "usage: async_io_driver read|write FILE BYTES [--block=N] [--depth=N] [--threads=N]\n"
          "       [--repeat=N] [--backend=io_uring|aio|threads] [--single-submit] [--no-overlap]\n"
          "       [--lock]\n");
  exit(2);
}

struct Arguments {
  Request request;
  Options options;
  int repeat = 5;
  bool lock = false;  // the memory
};

Arguments parse(int argc, char** argv) {
  if (argc < 4) usage();
  Arguments parsed;
  parsed.request.is_write = strcmp(argv[1], "write") == 0;
  if (!parsed.request.is_write && strcmp(argv[1], "read") != 0) usage();
  parsed.request.path = argv[2];
  parsed.request.bytes = strtoull(argv[3], nullptr, 10);
  const std::map<std::string, Backend> backends = {
      {"io_uring", Backend::kUring}, {"aio", Backend::kAio}, {"threads", Backend::kThreads}};
  for (int i = 4; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.find('=');
    const std::string option = argument.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : argument.substr(equals + 1);
    if (option == "--block")
      parsed.options.block_size = strtoull(value.c_str(), nullptr, 10);
    else if (option == "--depth")
      parsed.options.queue_depth = static_cast<uint32_t>(atoi(value.c_str()));
    else if (option == "--threads")
      parsed.options.num_threads = static_cast<uint32_t>(atoi(value.c_str()));
    else if (option == "--repeat")
      parsed.repeat = atoi(value.c_str());
    else if (option == "--backend" && backends.count(value) != 0)
      parsed.options.backend = backends.at(value);
    else if (argument == "--single-submit")
      parsed.options.single_submit = true;
    else if (argument == "--lock")
      parsed.lock = true;
    else if (argument == "--no-overlap")
      parsed.options.overlap_events = false;
    else
      usage();
  }
  return parsed;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '\n')
      out += "; ";
    else if (c == '"' || c == '\\')
      out += std::string("\\") + c;
    else
      out += c;
  }
  return out + "\"";
}

int measure(const Arguments& arguments) {
  Request request = arguments.request;
  Pages pages(request.bytes, arguments.lock);
  if (!pages.why_not_locked().empty())
    fprintf(stderr, "async_io_driver: not locked: %s\n", pages.why_not_locked().c_str());
  request.memory = pages.data();
  memset(request.memory, 'x', request.bytes);
  Engine engine(arguments.options);
  struct stat status{};
  if (!request.is_write && (stat(request.path.c_str(), &status) != 0 ||
                            static_cast<uint64_t>(status.st_size) < request.bytes)) {
    Request write = request;
    write.is_write = true;
    engine.run(write);
  }
  const Totals before = engine.totals();
  std::string seconds;
  for (int round = 0; round < arguments.repeat; ++round) {
    const auto start = std::chrono::steady_clock::now();
    engine.wait(engine.submit(request));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    seconds += (round > 0 ? ", " : "") + std::to_string(took.count());
  }
  const Totals after = engine.totals();
  printf(
      "{\"seconds\": [%s], \"bytes\": %llu, \"way\": %s, \"direct\": %llu, \"buffered\": %llu}\n",
      seconds.c_str(), static_cast<unsigned long long>(request.bytes),
      quoted(engine.report()).c_str(),
      static_cast<unsigned long long>(after.direct - before.direct),
      static_cast<unsigned long long>(after.buffered - before.buffered));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return measure(parse(argc, argv));
  } catch (const std::exception& error) {
    fprintf(stderr, "async_io_driver: %s\n", error.what());
    return 1;
  }
}
