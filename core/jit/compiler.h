// Run-time compilation as a service: one image per request, made once by the first caller that
// asks, kept in the cache, and found there by all others.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/reason.h"
#include "base/version.h"
#include "cache/cache.h"
#include "facts/environment.h"
#include "jit/hiprtc_files.h"
#include "jit/nvrtc.h"
#include "jit/nvrtc_files.h"
#include "note/note.h"

namespace opdock {

// A program to compile. Every member decides the result, except `name`.
struct CompileRequest {
  std::string name;  // for messages and listings: "softmax 0.1.0", "saxpy.cu"
  // The program's own text, which messages call program_name. Empty: it includes `sources`.
  std::string program;
  std::string program_name = "plugin.cu";
  std::vector<SourceText> headers;   // what #include finds before any folder
  std::vector<std::string> sources;  // names among `headers`
  std::vector<std::string> options;  // for the compiler, in order; default: --std=c++17
  std::vector<std::string> kernels;  // name expressions: "softmax<float>"
  Backend backend = Backend::kCuda;
  std::string arch;  // "sm_90a": a cubin; "compute_90": PTX; "gfx90a:xnack-": a code object
};

struct CompiledImage {
  ImageKind kind = ImageKind::kCubin;
  std::string arch;
  Version toolkit;    // the compiler's
  std::string maker;  // "NVRTC 12.9", for people
  std::span<const uint8_t> bytes;
  std::span<const uint8_t> names;  // pairs of NUL-terminated texts: expression, name in the image
  std::string log;                 // the compiler's warnings, if it was compiled just now
  bool from_cache = false;         // no compiler ran for the first caller
  std::shared_ptr<CacheEntry> entry;  // holds bytes and names, or else these do:
  std::vector<uint8_t> own_bytes, own_names;
};
using CompiledImagePtr = std::shared_ptr<const CompiledImage>;

// The resources that one compilation may use. All pointers must outlive the call.
struct JitContext {
  Cache* cache = nullptr;              // NULL: nothing is kept
  Progress* progress = nullptr;        // may be NULL
  std::string denied;                  // what forbids compiling, "OPDOCK_JIT=never"; empty: nothing
                                       // does. Cached images are used anyway.
  std::optional<Version> cuda_driver;  // unknown: any compiler will do
  // Compile in a separate process with NVRTC too: several images at once, and nothing that the
  // compiler does (NVRTC 13 initialises the CUDA driver) happens in this process.
  bool in_worker = false;
  // How long a worker may run before it is killed: far longer than any real compilation.
  std::chrono::milliseconds deadline{300000};
  // For tests: use these instead of what is on the machine.
  const std::vector<NvrtcFile>* nvrtcs = nullptr;
  const std::vector<HiprtcFile>* hiprtcs = nullptr;
  std::string worker;  // opdock-compile's path; empty: the installed one
};

// Returns the image for the request, from memory, the cache or a compiler; NULL and reasons (stage
// jit; notices of the cache on success too). Threads and processes that ask for the same image at
// the same time wait for one of them; others are not held up. Blocking; any thread. Images live as
// long as somebody holds them, and are not evicted from the cache meanwhile.
//
// The newest NVRTC is used that knows the architecture and whose images the driver runs. A cached
// image that another compiler has made is used only if no compiler can be.
CompiledImagePtr compile_image(const CompileRequest& request, const JitContext& context,
                               std::vector<Reason>* reasons);

// Returns whether the images of `requests`, which differ only in their kernels, could be made;
// compiles none. They can be made if there is a compiler for their architecture, which is opened
// unless one of the images is in the cache by it, or if all of them are in the cache. Otherwise
// returns false and the reasons.
bool can_make(const std::vector<CompileRequest>& requests, const JitContext& context,
              std::vector<Reason>* reasons);

// Called after `refused` turned out not to load, for `why`. An image from the cache is set aside
// and compiled again. For an image that was compiled just now nothing more can be done: returns
// NULL, with `why` as the reason.
CompiledImagePtr compile_again(const CompileRequest& request, const JitContext& context,
                               const CompiledImagePtr& refused, const std::string& why,
                               std::vector<Reason>* reasons);

// For a request whose cubin is for a GPU that is newer than every NVRTC here: returns the request
// for PTX of the newest architecture that one of them knows and whose PTX the driver takes
// ("compute_121"). The driver then compiles it; *why says so (arch-ptx). Returns nullopt if a
// compiler knows the architecture, if the GPU is older than all that they know, or if nothing can
// be made here.
std::optional<CompileRequest> ptx_for_newer_gpu(const CompileRequest& request,
                                                const JitContext& context, Reason* why);

// Makes the images of all requests, `jobs` at a time, each in a process of its own. Calls done(i,
// image, reasons) for each as it ends, from any thread, one call at a time. image is NULL if it
// failed, or if `context.progress` said to stop before its compilation began.
void compile_all(
    const std::vector<CompileRequest>& requests, int jobs, const JitContext& context,
    const std::function<void(size_t, const CompiledImagePtr&, const std::vector<Reason>&)>& done);

// Returns the cache's view of a request. outside: names and digests of headers in folders that
// options name.
CacheRequest cache_request(const CompileRequest& request, const JitContext& context,
                           const std::vector<SourceText>& outside);

// Reads the pairs of a names blob; false if it is damaged.
bool read_names(std::span<const uint8_t> names,
                std::vector<std::pair<std::string, std::string>>* out);

}  // namespace opdock
