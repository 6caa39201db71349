// Step 2 of the chain: a plugin whose host part fits but which has no image for a GPU. Of the
// device source that it carries each kernel is compiled for exactly that GPU when it is asked for:
// a call waits for the one that it launches, not for all that the plugin has.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/turn.h"
#include "call/kernels.h"
#include "driver/driver.h"
#include "facts/machine.h"
#include "jit/compiler.h"

namespace opdock {

// What a plugin's image table says of its source, ready to be compiled for `arch`. plugin: name and
// version, for messages. False and a reason (jit-no-source) if it carries none or names no kernel.
bool packed_request(const std::string& plugin, std::span<const ImageRow> rows, Backend backend,
                    const std::string& arch, CompileRequest* out, std::vector<Reason>* reasons);

// What is compiled of it: each kernel by itself, in an image, and a cache entry, of its own (and so
// with `__device__` variables of its own), once if it is listed twice.
std::vector<CompileRequest> kernel_requests(const CompileRequest& all);

// The architecture to compile for on this GPU: "sm_90a", with the suffix where there is one, as the
// image is for no other GPU; on AMD the GPU's own name.
std::string exact_arch(const Gpu& gpu);

// The kernels of a plugin's source on one device, made as they are asked for and kept until the
// process ends. Thread-safe: different kernels do not wait for each other (but in NVRTC itself),
// and one that is asked for twice at once is made once.
class CompiledKernels : public Kernels {
 public:
  // request: what packed_request() gave.
  CompiledKernels(CompileRequest request, Driver* driver, opdock_device device);

  // Makes kernel `name` ready: from the cache or a compiler, loaded on the device, whose primary
  // context is created. A cached image that does not load is set aside and compiled anew, once.
  // False and reasons (stages jit, cache, device) if it cannot be done; notices on success too.
  // Nothing is remembered of a failure: asking again tries again. A name that the plugin does not
  // have is left to find(). Blocking; `context` is used during the call only.
  bool make(std::string_view name, const JitContext& context, std::vector<Reason>* reasons);
  // The same for all kernels; where several are missing, they are compiled in processes of their
  // own, as many at a time as there are cores. Reasons are those of the first that failed; the
  // others are ready all the same.
  bool make_all(const JitContext& context, std::vector<Reason>* reasons);
  // Whether one of them has been made ready.
  bool has_made() {
    const std::lock_guard lock(mutex_);
    return !parts_.empty();
  }

 private:
  CompileRequest request_;
  Driver* driver_;
  Mutex mutex_;                                      // of what follows
  std::map<std::string, Turn, std::less<>> making_;  // of each kernel that was asked for
  std::vector<std::unique_ptr<Kernels>> parts_;      // each of one kernel's image
};

// The kernels of a plugin on `device`, none of which is compiled yet. rows: all of the plugin's
// table, of every kind and backend. gpu: that device, as its driver describes it; where it is newer
// than every compiler, the kernels are PTX, and a notice says so (arch-ptx); once a compiler that
// knows the GPU has been installed, another notice says that (arch-known). NULL and reasons if none
// could be made: no source, no compiler for this GPU and driver (the compiler is opened, for that
// shows only then) while not all kernels are in the cache, or compiling is switched off. What is
// wrong with the source itself shows when a kernel is asked for: finding it here would cost every
// first use a compilation of a kernel that it may not need. Blocking; any thread.
std::unique_ptr<CompiledKernels> jit_kernels(const std::string& plugin,
                                             std::span<const ImageRow> rows, Driver* driver,
                                             opdock_device device, const Gpu& gpu,
                                             const JitContext& context,
                                             std::vector<Reason>* reasons);

// The same for any request whose architecture is set: loads its image on `device` and looks for its
// first kernel. *image: what was loaded.
std::unique_ptr<Kernels> load_compiled(const CompileRequest& request, Driver* driver,
                                       opdock_device device, const JitContext& context,
                                       CompiledImagePtr* image, std::vector<Reason>* reasons);

}  // namespace opdock
