// A compiler that could make a request's image, not necessarily opened yet.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "jit/compiler.h"
#include "jit/includes.h"

namespace opdock {

class Toolchain {
 public:
  virtual ~Toolchain() = default;
  // Returns the compiler as the cache knows it, without opening it.
  const CacheMaker& maker() const { return maker_; }
  const Version& version() const { return version_; }
  // Opens the compiler. Returns false and a reason if that fails or it does not know the
  // architecture.
  virtual bool open(const std::string& arch, std::vector<Reason>* reasons) = 0;
  // Returns the newest architecture that it knows up to `number` (10 * major + minor), for which
  // its PTX for such a GPU is made. 0 if there is none, or it cannot be found out. Opens the
  // compiler.
  virtual int newest_up_to(int) { return 0; }
  // Compiles; open() must have succeeded. If the fault is kNone, a failure's reason is appended.
  virtual CompileResult compile(const CompileJob& job, std::vector<Reason>* reasons) = 0;

 protected:
  CacheMaker maker_;
  Version version_;
};

// Returns the compilers whose images the driver runs, the best first. Reasons say why there is
// none, or why those that are here cannot be used.
std::vector<std::unique_ptr<Toolchain>> find_toolchains(const CompileRequest& request,
                                                        const JitContext& context,
                                                        std::vector<Reason>* reasons);

// Lets the cache remember where this process has found compilers, if it could not before: to be
// called after something was published in it, as memos are written only to a cache that exists.
void remember_toolchains(Cache* cache);

// Appends what find_toolchains() returns for AMD's GPUs.
void find_hiprtcs(const JitContext& context, std::vector<std::unique_ptr<Toolchain>>* out,
                  std::vector<Reason>* reasons);

// How many of the folders that were searched in vain a message names.
inline constexpr size_t kFoldersShown = 4;

// Compiles with the compiler in `library`, in a separate process (jit/worker.h).
CompileResult compile_in_worker(const JitContext& context, Backend backend,
                                const std::string& library, const CompileJob& job,
                                std::vector<Reason>* reasons);

// Returns every header outside the request that the program may read, in folders that options name
// and in `toolkit`.
OutsideHeaders outside_of(const CompileRequest& request, const std::string& toolkit);

}  // namespace opdock
