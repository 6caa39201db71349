// A module of compile.h: a program, and its kernels on one device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/guarded.h"
#include "base/turn.h"
#include "call/kernels.h"
#include "chain/runtime.h"
#include "jit/compiler.h"
#include "opdock/compile.h"

struct opdock_module {
  opdock_runtime* runtime = nullptr;
  opdock::CompileRequest request;  // with the kernels that were named beforehand
  opdock_device device{};
  opdock::Driver* driver = nullptr;  // NULL: an image alone
  bool arch_is_gpus = false;         // the caller named no architecture: it is the device's own
  opdock::Turn turn;                 // of what follows; who calls compile() or find() has it
  opdock::CompiledImagePtr image;    // of the kernels named beforehand
  std::map<std::string, opdock_kernel*, std::less<>> kernels;

  // Makes `image`. A failure's reasons are kept for this thread.
  opdock::Status compile();
  // One that was not named beforehand gets an image of its own.
  opdock::Status find(const std::string& name, opdock_kernel** out);
  // What `reasons` come to; keeps them for this thread.
  opdock::Status fail_for(std::vector<opdock::Reason> reasons);

 private:
  // In a turn that a fork may leave in the middle: `image` is the former one or the new one.
  void put(opdock::CompiledImagePtr made);
  std::optional<opdock::CompileRequest> for_newer_gpu(const opdock::CompileRequest& failed,
                                                      const opdock::JitContext& context,
                                                      std::vector<opdock::Reason>* reasons) const;
};

namespace opdock {

// Why this thread's last compilation failed.
std::vector<Reason>& last_compile_reasons();

Status null_argument(const char* name);

}  // namespace opdock
