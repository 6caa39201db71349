// Reads and writes files from and to memory in its own threads, while the program goes on. Whole
// pages bypass the page cache (O_DIRECT) where the file system allows it, through a kernel queue
// per thread: io_uring, else Linux AIO, else none. The rest goes through the page cache with pread
// and pwrite: bytes before and after the whole pages, and the whole request if its memory and its
// offset are at different positions in their pages.
//
//   Engine engine({});
//   Request read;
//   read.path = "weights.bin";
//   read.memory = pages.data();
//   read.bytes = pages.bytes();
//   uint64_t ticket = engine.submit(read);
//   …
//   engine.wait(ticket);
//
// The engine does not depend on Opdock. All errors are thrown as Error (or std::bad_alloc).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

namespace async_io {

class Error : public std::runtime_error {
 public:
  enum class Kind {
    kArgument,  // the caller's mistake: an option, a request, a ticket
    kSystem,    // an error from a file or from the kernel
    kUnusable,  // the engine cannot be used from here: after a fork, or in a callback
    kStopped,   // the caller asked to stop waiting
  };
  Error(Kind kind, const std::string& text) : std::runtime_error(text), kind_(kind) {}
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

enum class Backend {
  kAny,      // the first of these that the kernel allows
  kUring,    // io_uring
  kAio,      // Linux AIO (io_submit)
  kThreads,  // only pread and pwrite: each thread has one I/O in flight
};
const char* name(Backend backend);

struct Options {
  uint64_t block_size = 1 << 20;  // bytes per I/O, 1 to 1 GiB; rounded up to whole pages
  uint32_t queue_depth = 32;      // direct I/Os that one thread has in flight, 1 to 32768
  bool single_submit = false;     // one system call per I/O instead of one for all that are ready
  // A thread submits new I/Os as soon as some have ended; false: only when all have.
  bool overlap_events = true;
  uint32_t num_threads = 1;  // 1 to 1024
  Backend backend = Backend::kAny;
};

struct Request {
  bool is_write = false;
  // The file: a path, which a write creates if necessary (mode 0666 minus the umask), or an open
  // descriptor, of which submit() keeps a duplicate, so that the caller may close it at once.
  // Regular files only.
  std::string path;
  int fd = -1;          // used if it is not negative
  uint64_t offset = 0;  // bytes from the file's beginning
  // Must stay valid, and be neither written nor (for a read) read, until the request has ended.
  void* memory = nullptr;
  uint64_t bytes = 0;
  // For a write: the size that the file is given first, at least offset + bytes; anything beyond it
  // is cut off. No other request may work on the file at the same time. Negative: the file only
  // grows.
  int64_t file_size = -1;
  // Called once for each request that submit() or run() has accepted, on a thread of the engine,
  // when the memory is no longer used, whether or not the request has failed, and before a wait for
  // it returns. It may submit to the engine and destroy it; it must not wait for it, throw, or fork
  // a process that returns from the callback.
  void (*done)(void* context) = nullptr;
  void* context = nullptr;
};

// How many bytes bypassed the page cache, and how many went through it, since the engine was made.
struct Totals {
  uint64_t direct = 0;    // past the page cache
  uint64_t buffered = 0;  // through it
};

struct Core;

// All functions may be called from any number of threads at once; only the destructor must not run
// at the same time as another function (as with any object).
//
// A forked child must not use its parent's engine: submit, run, wait and wait_all throw kUnusable
// there. Its destructor only frees the child's copies (memory, descriptors): no thread is joined,
// no callback is called, and the parent's I/O goes on.
//
// Requests run in no particular order. Two requests that overlap in a file or in memory must not be
// in flight at the same time if one of them is a write.
class Engine {
 public:
  // Starts the threads. Throws kArgument for an option out of its range, and kSystem if the kernel
  // refuses threads or a backend that was explicitly requested.
  explicit Engine(const Options& options);

  // Waits for all requests, including their callbacks, and joins the threads. In a callback it
  // returns at once, because a thread cannot wait for itself: the threads then finish all requests
  // and callbacks, and the last thread frees the rest. Outcomes that nobody has waited for are
  // lost.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Queues a request and returns its ticket. It touches no file, so that only errors in the request
  // itself throw (kArgument); in that case the callback is not called. The engine keeps each
  // outcome until it is waited for, by its ticket or with all others.
  uint64_t submit(const Request& request);

  // Blocks until the request has ended; throws kSystem if it failed, and kArgument for a ticket
  // that was never given or has been waited for. All threads that wait for a ticket at the same
  // time get its outcome.
  //
  // wait and wait_all call stop(), if there is one, about every 50 ms, without holding a lock. Once
  // it returns true they throw kStopped: the I/O goes on, and the requests can be waited for again.
  void wait(uint64_t ticket, const std::function<bool()>& stop = {});

  // Blocks until every request that was submitted before, and not yet waited for, has ended. This
  // includes the requests of other threads, whose tickets are then invalid unless these threads are
  // already waiting. Returns their number; if some failed, throws kSystem for the one that was
  // submitted first.
  size_t wait_all(const std::function<bool()>& stop = {});

  // Does what submit and wait do together, but is invisible to wait_all.
  void run(const Request& request);

  // Returns the options in effect, with the rounded block size and the chosen backend. Never
  // blocks.
  const Options& options() const;
  // Returns "io_uring, 2 threads", and on a line each, why a preferred backend was not chosen.
  const std::string& report() const;
  Totals totals() const;

 private:
  Core* core_;
};

}  // namespace async_io
