// The OpenMP runtime of the process, whose threads CPU ops share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace opdock {

// The functions of the OpenMP runtime in the global scope: GNU's, Intel's and LLVM's have them.
// PyTorch brings one. Its threads keep a core busy for a while after each parallel region, so a
// second pool of threads would wait for the very cores that it was given.
struct OpenMp {
  // Calls body(data) on at most `threads` threads, this one among them; returns when all are done.
  void (*parallel)(void (*body)(void* data), void* data, unsigned threads, unsigned flags);
  int (*max_threads)();    // of a region that this thread begins: OMP_NUM_THREADS, or what was set
  int (*thread_number)();  // inside of a region; the caller's is 0
  int (*num_threads)();    // inside of a region: how many threads it has
};

// Null: there is none (yet), or this process is a fork, in which such threads may be gone for ever.
// Any thread; the first call after something was loaded looks for symbols, a microsecond or two.
const OpenMp* openmp();

}  // namespace opdock
