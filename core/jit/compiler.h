// Run-time compilation as a service: one image for one request, made once by whoever asks first,
// kept in the cache, found there by everybody else.
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

// What is to be compiled. Everything in it decides the result, except `name`.
struct CompileRequest {
  std::string name;  // for messages and listings: "softmax 0.1.0", "saxpy.cu"
  // The program's own text, which messages call program_name. Empty: it includes `sources`.
  std::string program;
  std::string program_name = "plugin.cu";
  std::vector<SourceText> headers;   // what #include finds before any folder
  std::vector<std::string> sources;  // names among `headers`
  std::vector<std::string> options;  // the compiler's, in order; --std=c++17 unless they say
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
  std::string log;                 // the compiler's warnings, where it was compiled just now
  bool from_cache = false;         // no compiler ran for whoever got this first
  std::shared_ptr<CacheEntry> entry;  // what bytes and names lie in; or else these:
  std::vector<uint8_t> own_bytes, own_names;
};
using CompiledImagePtr = std::shared_ptr<const CompiledImage>;

// What one compilation may use. The pointed-at things outlive the call.
struct JitContext {
  Cache* cache = nullptr;        // NULL: nothing is kept
  Progress* progress = nullptr;  // may be NULL
  std::string denied;            // where compiling was switched off: "OPDOCK_JIT=never"; empty:
                                 // it is allowed. Cached images are used all the same.
  std::optional<Version> cuda_driver;  // unknown: any compiler will do
  // Compile with NVRTC in a process of its own too: several at once, and nothing that the compiler
  // does (NVRTC 13 initialises the CUDA driver) happens in this one.
  bool in_worker = false;
  // How long a worker may take before it is ended: far longer than any real compilation.
  std::chrono::milliseconds deadline{300000};
  // Tests: these instead of what is on the machine.
  const std::vector<NvrtcFile>* nvrtcs = nullptr;
  const std::vector<HiprtcFile>* hiprtcs = nullptr;
  std::string worker;  // opdock-compile's path; empty: the installed one
};

// The image for the request, from memory, the cache or a compiler; NULL and reasons (stage jit; of
// the cache, notices on success too). Threads and processes that ask for the same thing at the same
// time wait for one of them; others are not held up. Blocking; any thread. Images live as long as
// somebody holds them, and are not evicted from the cache meanwhile.
//
// NVRTC: the newest whose images the driver runs and which knows the architecture. An image in the
// cache that another compiler has made is used only where no compiler can be.
CompiledImagePtr compile_image(const CompileRequest& request, const JitContext& context,
                               std::vector<Reason>* reasons);

// Whether the images of `requests`, which differ in their kernels only, could be made, without
// compiling one: there is a compiler for their architecture, which is opened unless one of the
// images is in the cache by it; or all of them are in the cache. Otherwise false and the reasons.
bool can_make(const std::vector<CompileRequest>& requests, const JitContext& context,
              std::vector<Reason>* reasons);

// After `refused` turned out not to load, for `why`: an image from the cache is set aside and
// compiled anew; for one that was just compiled there is nothing more to do: NULL, and `why` is the
// reason.
CompiledImagePtr compile_again(const CompileRequest& request, const JitContext& context,
                               const CompiledImagePtr& refused, const std::string& why,
                               std::vector<Reason>* reasons);

// For a request whose cubin is for a GPU that is newer than every NVRTC here: the same for PTX of
// the newest architecture that one of them knows and whose PTX the driver takes ("compute_121"),
// which the driver then compiles; *why says so (arch-ptx). nullopt: a compiler knows the
// architecture, or the GPU is older than all that they know, or nothing can be made here.
std::optional<CompileRequest> ptx_for_newer_gpu(const CompileRequest& request,
                                                const JitContext& context, Reason* why);

// Makes the images of all requests, `jobs` at a time, each in a process of its own. done(i, image,
// reasons) is called for each as it ends, from any thread, one at a time; image is NULL where it
// failed, also because `context.progress` said to stop before its turn came.
void compile_all(
    const std::vector<CompileRequest>& requests, int jobs, const JitContext& context,
    const std::function<void(size_t, const CompiledImagePtr&, const std::vector<Reason>&)>& done);

// The cache's view of a request. `outside` are digests of headers in folders that options name.
CacheRequest cache_request(const CompileRequest& request, const JitContext& context,
                           const std::vector<SourceText>& outside);

// The pairs of a names blob; false if it is damaged.
bool read_names(std::span<const uint8_t> names,
                std::vector<std::pair<std::string, std::string>>* out);

}  // namespace opdock
