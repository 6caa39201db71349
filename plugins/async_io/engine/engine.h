// Reads and writes files from and to memory while the program goes on, in threads of its own. Whole
// pages go past the page cache (O_DIRECT) where the file system takes that, by a queue in the
// kernel that each thread has: io_uring, else Linux AIO, else none. What is left goes through the
// page cache by pread and pwrite: bytes before and behind the whole pages, and all of a request
// whose memory and offset do not lie alike in their pages.
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
// Nothing here depends on Opdock. All errors are thrown as Error (or std::bad_alloc).
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
    kSystem,    // what a file or the kernel answered
    kUnusable,  // the engine cannot be used from here: after a fork, or in a callback
    kStopped,   // the caller wanted to wait no longer
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
  kThreads,  // pread and pwrite alone: each thread has one I/O in flight
};
const char* name(Backend backend);

struct Options {
  uint64_t block_size = 1 << 20;  // bytes of one I/O, 1 to 1 GiB; rounded up to whole pages
  uint32_t queue_depth = 32;      // direct I/Os that one thread has in flight, 1 to 32768
  bool single_submit = false;     // one system call for each I/O rather than for all at hand
  // A thread hands over new I/Os as soon as some have ended; false: when all have.
  bool overlap_events = true;
  uint32_t num_threads = 1;  // 1 to 1024
  Backend backend = Backend::kAny;
};

struct Request {
  bool is_write = false;
  // The file: a path, which a write creates (mode 0666 less the umask), or an open descriptor, of
  // which submit() keeps a duplicate, so that it may be closed at once. Regular files only.
  std::string path;
  int fd = -1;          // used if it is not negative
  uint64_t offset = 0;  // bytes from the file's beginning
  // Must stay valid, and be neither written nor (for a read) read, until the request has ended.
  void* memory = nullptr;
  uint64_t bytes = 0;
  // Of a write: the size that the file is given before, at least offset + bytes; whatever is beyond
  // is cut off. Not while another request works on the file. Negative: the file only grows.
  int64_t file_size = -1;
  // Called once for each request that submit() or run() has taken, when the memory is no longer
  // used, whether the request has failed or not, before a wait for it returns. On a thread of the
  // engine. It may submit to the engine and destroy it; it must not wait for it, throw, or fork a
  // process that returns from it.
  void (*done)(void* context) = nullptr;
  void* context = nullptr;
};

// How many bytes went which way since the engine was made.
struct Totals {
  uint64_t direct = 0;    // past the page cache
  uint64_t buffered = 0;  // through it
};

struct Core;

// All functions may be called from any number of threads at once; only the destructor must not run
// together with another function (as with any object).
//
// A forked child must not use its parent's engine: submit, run, wait and wait_all throw kUnusable
// there. Its destructor only frees what the child has of it (memory, descriptors): no thread is
// joined, no callback called, and the parent's I/O goes on.
//
// Requests run in no particular order. Two that overlap in a file or in memory, with a write among
// them, must not be in flight together.
class Engine {
 public:
  // Starts the threads. Throws kArgument for an option out of its range, and kSystem if the kernel
  // refuses threads or the one backend that was asked for.
  explicit Engine(const Options& options);

  // Waits for all that was submitted, callbacks included, and joins the threads. Called from a
  // callback it returns at once, since a thread cannot wait for itself: the threads then finish
  // what was submitted, with its callbacks, and the last one frees the rest. Outcomes that nobody
  // has waited for are lost.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Queues a request and returns its ticket; touches no file, so that only mistakes in the request
  // itself throw (kArgument), and then the callback is not called. The engine keeps each outcome
  // until it is waited for, by its ticket or with all others.
  uint64_t submit(const Request& request);

  // Blocks until the request has ended; throws kSystem if it failed, and kArgument for a ticket
  // that was never given or has been waited for. Threads that wait for one at once all get its
  // outcome.
  //
  // Both waits call stop(), if there is one, about every 50 ms and with nothing locked. Once it is
  // true they throw kStopped: the I/O goes on, and what was waited for can be waited for again.
  void wait(uint64_t ticket, const std::function<bool()>& stop = {});

  // Blocks until every request submitted before, and not yet waited for, has ended: those of other
  // threads too, whose tickets are then gone unless they wait already. Returns their number, or
  // throws kSystem for the one of those that failed which was submitted first.
  size_t wait_all(const std::function<bool()>& stop = {});

  // Like submit and wait in one, out of wait_all's sight.
  void run(const Request& request);

  // As they are in effect: the block size rounded, the backend chosen. Never blocks.
  const Options& options() const;
  // "io_uring, 2 threads" and below, a line each, why a backend that goes before was not taken.
  const std::string& report() const;
  Totals totals() const;

 private:
  Core* core_;
};

}  // namespace async_io
