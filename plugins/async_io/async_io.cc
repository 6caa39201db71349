// Implements the async I/O ops. A handle is an object that contains an engine; requests keep their
// tensors alive while they are in flight.
// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <opdock/object.hpp>
#include <opdock/plugin.hpp>
#include <string>
#include <string_view>

#include "engine/engine.h"
#include "engine/pages.h"

namespace async_io {
namespace {

using opdock::Call;
using opdock::check;
using opdock::Plan;
using opdock::Results;
using opdock::Retained;
using opdock::Tensor;
using opdock::detail::concat;

struct Handle {
  static constexpr char kType[] = "aio_handle";
  static constexpr uint32_t kVersion = 1;
  explicit Handle(const Options& options) : engine(options) {}
  Engine engine;
};
using HandleArgument = opdock::Object<Handle>;

// Calls body() and converts the engine's errors to the host's.
template <class Body>
auto translate(const Body& body) {
  try {
    return body();
  } catch (const Error& error) {
    const opdock_status status = error.kind() == Error::Kind::kArgument  ? OPDOCK_INVALID_ARGUMENT
                                 : error.kind() == Error::Kind::kSystem  ? OPDOCK_IO_ERROR
                                 : error.kind() == Error::Kind::kStopped ? OPDOCK_CANCELLED
                                                                         : OPDOCK_UNSUPPORTED;
    throw opdock::Error(status, error.what());
  }
}

void require(bool good, const char* name, const std::string& found, const std::string& wanted) {
  if (good) return;
  throw opdock::Error(OPDOCK_INVALID_ARGUMENT, std::string("argument '") + name + "': found " +
                                                   found + ", wanted " + wanted);
}

void require_range(int64_t value, const char* name, int64_t most) {
  require(value >= 1 && value <= most, name, std::to_string(value), "1 to " + std::to_string(most));
}

void plan_open(Plan&, int64_t block_size, int64_t queue_depth, int64_t threads, bool, bool,
               std::string_view backend) {
  require_range(block_size, "block_size", 1 << 30);
  require_range(queue_depth, "queue_depth", 32768);
  require_range(threads, "threads", 1024);
  require(backend.empty() || backend == "io_uring" || backend == "aio" || backend == "threads",
          "backend", "'" + std::string(backend) + "'", "'io_uring', 'aio', 'threads' or ''");
}

void run_open(Call& call, Results results, int64_t block_size, int64_t queue_depth, int64_t threads,
              bool single_submit, bool overlap_events, std::string_view backend) {
  Options options;
  options.block_size = static_cast<uint64_t>(block_size);
  options.queue_depth = static_cast<uint32_t>(queue_depth);
  options.num_threads = static_cast<uint32_t>(threads);
  options.single_submit = single_submit;
  options.overlap_events = overlap_events;
  if (backend == "io_uring") options.backend = Backend::kUring;
  if (backend == "aio") options.backend = Backend::kAio;
  if (backend == "threads") options.backend = Backend::kThreads;
  translate([&] { results.set(0, opdock::make_object<Handle>(call.device(), options)); });
}

int64_t bytes_of(Tensor x) {
  return x.numel() * x.dtype().bytes();
}

constexpr uint64_t kHugePage = 2 << 20;

void plan_zeros(Plan& plan, Tensor x) {
  const bool is_huge = static_cast<uint64_t>(bytes_of(x)) >= kHugePage;
  plan.output(x.like().with_alignment(is_huge ? kHugePage : page_size()));
}

void run_zeros(Call&, Results results, Tensor) {
  const Tensor zeros = results[0];
  check(zeros, "output 0").contiguous();
  const size_t bytes = static_cast<size_t>(bytes_of(zeros));
  // Huge pages give the device fewer and larger pieces. Without huge pages this has no effect.
  if (bytes >= kHugePage) madvise(zeros.raw(), bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  if (bytes != 0) std::memset(zeros.raw(), 0, bytes);
}

void check_request(Tensor x, std::string_view path, int64_t offset) {
  check(x, "x").contiguous();
  require(!path.empty(), "path", "''", "a file's path");
  require(path.find('\0') == path.npos, "path", "a NUL in it", "a file's path");
  require(offset >= 0 && offset <= INT64_MAX - bytes_of(x), "offset", std::to_string(offset),
          concat("bytes from the file's beginning: 0 to ", INT64_MAX - bytes_of(x)));
}

void plan_read(Plan&, HandleArgument, Tensor x, std::string_view path, int64_t offset) {
  check_request(x, path, offset);
}

void plan_write(Plan&, HandleArgument, Tensor x, std::string_view path, int64_t offset,
                std::optional<int64_t> file_size) {
  check_request(x, path, offset);
  const int64_t end = offset + bytes_of(x);
  require(!file_size || *file_size >= end, "file_size", std::to_string(file_size.value_or(0)),
          concat("offset + the bytes of x, ", end, ", at least"));
}

Request make_request(Tensor x, std::string_view path, int64_t offset) {
  Request request;
  request.path = path;
  request.offset = static_cast<uint64_t>(offset);
  request.memory = x.raw();
  request.bytes = static_cast<uint64_t>(bytes_of(x));
  return request;
}

Request make_write(Tensor x, std::string_view path, int64_t offset,
                   std::optional<int64_t> file_size) {
  Request request = make_request(x, path, offset);
  request.is_write = true;
  request.file_size = file_size.value_or(-1);
  return request;
}

// Submits a request and returns its ticket. Its tensor is kept until the engine no longer uses the
// memory.
int64_t submit(const Call& call, Engine& engine, Tensor x, Request request) {
  std::unique_ptr<Retained> kept = std::make_unique<Retained>(call.retain(x));
  request.context = kept.get();
  request.done = [](void* context) { delete static_cast<Retained*>(context); };
  const uint64_t ticket = translate([&] { return engine.submit(request); });
  kept.release();
  return static_cast<int64_t>(ticket);
}

void run_read(Call&, Results, HandleArgument handle, Tensor x, std::string_view path,
              int64_t offset) {
  translate([&] { handle->engine.run(make_request(x, path, offset)); });
}

void run_write(Call&, Results, HandleArgument handle, Tensor x, std::string_view path,
               int64_t offset, std::optional<int64_t> file_size) {
  translate([&] { handle->engine.run(make_write(x, path, offset, file_size)); });
}

void run_submit_read(Call& call, Results results, HandleArgument handle, Tensor x,
                     std::string_view path, int64_t offset) {
  results.set(0, submit(call, handle->engine, x, make_request(x, path, offset)));
}

void run_submit_write(Call& call, Results results, HandleArgument handle, Tensor x,
                      std::string_view path, int64_t offset, std::optional<int64_t> file_size) {
  results.set(0, submit(call, handle->engine, x, make_write(x, path, offset, file_size)));
}

void plan_wait(Plan&, HandleArgument, int64_t ticket) {
  require(ticket >= 0, "ticket", std::to_string(ticket), "what a submitting op has returned");
}

void run_wait(Call& call, Results, HandleArgument handle, int64_t ticket) {
  const auto stop = [&] { return call.is_cancelled(); };
  translate([&] { handle->engine.wait(static_cast<uint64_t>(ticket), stop); });
}

void plan_wait_all(Plan&, HandleArgument) {}

void run_wait_all(Call& call, Results results, HandleArgument handle) {
  const auto stop = [&] { return call.is_cancelled(); };
  results.set(0, static_cast<int64_t>(translate([&] { return handle->engine.wait_all(stop); })));
}

}  // namespace
}  // namespace async_io

OPDOCK_OP(aio_open, async_io::plan_open, nullptr, async_io::run_open)
OPDOCK_OP(aio_zeros_like, async_io::plan_zeros, nullptr, async_io::run_zeros)
OPDOCK_OP(aio_read, async_io::plan_read, nullptr, async_io::run_read)
OPDOCK_OP(aio_write, async_io::plan_write, nullptr, async_io::run_write)
OPDOCK_OP(aio_submit_read, async_io::plan_read, nullptr, async_io::run_submit_read)
OPDOCK_OP(aio_submit_write, async_io::plan_write, nullptr, async_io::run_submit_write)
OPDOCK_OP(aio_wait, async_io::plan_wait, nullptr, async_io::run_wait)
OPDOCK_OP(aio_wait_all, async_io::plan_wait_all, nullptr, async_io::run_wait_all)
