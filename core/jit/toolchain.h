// One compiler that could make a request's image, not necessarily opened yet.
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
  // As the cache knows it; known without opening it.
  const CacheMaker& maker() const { return maker_; }
  const Version& version() const { return version_; }
  // Opens it and asks whether it knows the architecture. False and a reason otherwise.
  virtual bool open(const std::string& arch, std::vector<Reason>* reasons) = 0;
  // The newest architecture that it knows up to `number` (10 * major + minor): what its PTX for
  // such a GPU is made for. 0: none, or it cannot be found out. Opens it.
  virtual int newest_up_to(int) { return 0; }
  // After open(). A failure whose fault is kNone has its reason appended.
  virtual CompileResult compile(const CompileJob& job, std::vector<Reason>* reasons) = 0;

 protected:
  CacheMaker maker_;
  Version version_;
};

// Those that make what the driver runs, the best first. Reasons say why there is none, or why not
// those that are here. `outside`: the headers that each would read of its own toolkit.
std::vector<std::unique_ptr<Toolchain>> find_toolchains(const CompileRequest& request,
                                                        const JitContext& context,
                                                        std::vector<Reason>* reasons);

// Those of find_toolchains() for AMD's GPUs.
void find_hiprtcs(const JitContext& context, std::vector<std::unique_ptr<Toolchain>>* out,
                  std::vector<Reason>* reasons);

// Of messages: so many folders that were searched in vain are named.
inline constexpr size_t kFoldersShown = 4;

// Compiles with the compiler in `library`, in a process of its own (jit/worker.h).
CompileResult compile_in_worker(const JitContext& context, Backend backend,
                                const std::string& library, const CompileJob& job,
                                std::vector<Reason>* reasons);

// Every header outside the request that the program may read in folders that options name.
OutsideHeaders outside_of(const CompileRequest& request, const std::string& toolkit);

}  // namespace opdock
