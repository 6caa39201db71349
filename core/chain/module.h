// A module of compile.h: a program, and its kernels on one device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/fork_aware_lock.h"
#include "base/guarded.h"
#include "call/kernels.h"
#include "chain/runtime.h"
#include "jit/compiler.h"
#include "opdock/compile.h"

struct opdock_module {
  opdock_runtime* runtime = nullptr;
  opdock::CompileRequest request;  // has the kernels that were named beforehand
  opdock_device device{};
  opdock::Driver* driver = nullptr;  // NULL: only an image is wanted
  bool arch_is_gpus = false;         // the caller named no architecture, so it is the device's own
  opdock::ForkAwareLock lock;        // guards what follows; callers of compile() and find() hold it
  opdock::CompiledImagePtr image;    // has the kernels named beforehand
  std::map<std::string, opdock_kernel*, std::less<>> kernels;

  // Sets the device, its driver and, unless the request names one, its architecture.
  opdock::Status aim_at(opdock_device at);
  // Compiles `image`. On failure keeps the reasons for this thread.
  opdock::Status compile();
  // Finds a kernel. One that was not named beforehand is compiled into an image of its own.
  opdock::Status find(const std::string& name, opdock_kernel** out);
  // Turns `reasons` into a status, and keeps them for this thread.
  opdock::Status fail_for(std::vector<opdock::Reason> reasons);

 private:
  // Replaces `image` without a fork in the middle: a child sees either the old or the new image.
  void put(opdock::CompiledImagePtr made);
  std::optional<opdock::CompileRequest> for_newer_gpu(const opdock::CompileRequest& failed,
                                                      const opdock::JitContext& context,
                                                      std::vector<opdock::Reason>* reasons) const;
};

namespace opdock {

// Returns the reasons why this thread's last compilation failed.
std::vector<Reason>& last_compile_reasons();

Status null_argument(const char* name);

}  // namespace opdock
