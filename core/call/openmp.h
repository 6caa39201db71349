// Finds the OpenMP runtime of the process, whose threads CPU ops share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace opdock {

// Functions of the OpenMP runtime in the global scope; GNU's, Intel's and LLVM's runtimes have
// them. PyTorch loads such a runtime. Its threads keep a core busy for a while after each parallel
// region, so a second pool of threads would wait for the very cores that it was given.
struct OpenMp {
  // Calls body(data) on at most `threads` threads, including this one; returns when all are done.
  void (*parallel)(void (*body)(void* data), void* data, unsigned threads, unsigned flags);
  int (*max_threads)();    // of a region that this thread begins: OMP_NUM_THREADS, or as set
  int (*thread_number)();  // inside a region; the caller's number is 0
  int (*num_threads)();    // inside a region: its number of threads
};

// Returns NULL if there is no runtime (yet), or if this process is a fork, where the runtime's
// threads may no longer exist. Any thread. The first call after an object was loaded looks up the
// symbols, which takes a microsecond or two.
const OpenMp* openmp();

}  // namespace opdock
