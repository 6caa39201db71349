// Step 2 of the chain: a plugin whose host part fits but which has no image for a GPU. Each kernel
// of the device source that it carries is compiled for exactly that GPU when it is asked for, so
// that a call waits only for the kernel that it launches, not for all that the plugin has.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fork_aware_lock.h"
#include "base/mutex.h"
#include "call/kernels.h"
#include "driver/driver.h"
#include "facts/machine.h"
#include "jit/compiler.h"

namespace opdock {

// Makes a request of the source in a plugin's image table, to be compiled for `arch`. plugin: name
// and version, for messages. Returns false and a reason (jit-no-source) if the table has no source
// or names no kernel.
bool packed_request(const std::string& plugin, std::span<const ImageRow> rows, Backend backend,
                    const std::string& arch, CompileRequest* out, std::vector<Reason>* reasons);

// Splits a request into one per kernel. Each kernel has an image and a cache entry of its own (and
// so `__device__` variables of its own). A kernel that is listed twice is compiled once.
std::vector<CompileRequest> kernel_requests(const CompileRequest& all);

// Returns the architecture to compile for on this GPU: "sm_90a", with the suffix if there is one,
// because the image is for no other GPU; on AMD the GPU's own name.
std::string exact_arch(const Gpu& gpu);

// The kernels of a plugin's source on one device, made when they are asked for and kept until the
// process ends. Thread-safe: different kernels do not wait for each other (except in NVRTC itself),
// and one that is asked for twice at once is made once.
class CompiledKernels : public Kernels {
 public:
  // request: what packed_request() gave.
  CompiledKernels(CompileRequest request, Driver* driver, opdock_device device);

  // Makes kernel `name` ready: from the cache or a compiler, loaded on the device, whose primary
  // context is created. A cached image that does not load is set aside and compiled again, once. On
  // failure returns false and reasons (stages jit, cache, device); there are notices on success
  // too. A failure is not remembered: asking again tries again. A name that the plugin does not
  // have is left to find(). Blocking; `context` is used only during the call.
  bool make(std::string_view name, const JitContext& context, std::vector<Reason>* reasons);
  // Makes all kernels ready. If several are missing, they are compiled in processes of their own,
  // as many at a time as there are cores. The reasons are those of the first kernel that failed;
  // the others are ready anyway.
  bool make_all(const JitContext& context, std::vector<Reason>* reasons);
  // Returns whether one of the kernels has been made ready.
  bool has_made() {
    const std::lock_guard lock(mutex_);
    return !parts_.empty();
  }

 private:
  CompileRequest request_;
  Driver* driver_;
  Mutex mutex_;                                               // guards what follows
  std::map<std::string, ForkAwareLock, std::less<>> making_;  // for each kernel that was asked for
  std::vector<std::unique_ptr<Kernels>> parts_;               // each with one kernel's image
};

// Returns the kernels of a plugin on `device`, none of which is compiled yet. rows: the plugin's
// whole table, of every kind and backend. gpu: that device, as its driver describes it. If it is
// newer than every compiler, the kernels are PTX, and a notice says so (arch-ptx); once a compiler
// that knows the GPU has been installed, another notice says that (arch-known). Returns NULL and
// reasons if none could be made: there is no source; or not all kernels are in the cache, and
// compiling is switched off or there is no compiler for this GPU and driver (the compiler is
// opened, because only then that shows). Errors in the source itself show when a kernel is asked
// for: finding them here would cost every first use a compilation of a kernel that it may not need.
// Blocking; any thread.
std::unique_ptr<CompiledKernels> jit_kernels(const std::string& plugin,
                                             std::span<const ImageRow> rows, Driver* driver,
                                             opdock_device device, const Gpu& gpu,
                                             const JitContext& context,
                                             std::vector<Reason>* reasons);

// Compiles any request whose architecture is set, loads its image on `device` and looks up its
// first kernel. *image: what was loaded.
std::unique_ptr<Kernels> load_compiled(const CompileRequest& request, Driver* driver,
                                       opdock_device device, const JitContext& context,
                                       CompiledImagePtr* image, std::vector<Reason>* reasons);

}  // namespace opdock
