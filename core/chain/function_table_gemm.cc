// Compiles the library's own kernels (core/gemm) for a device when they are first needed.
// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <map>
#include <memory>
#include <utility>

#include "base/fork_aware_lock.h"
#include "chain/compile_context.h"
#include "chain/function_table.h"
#include "gemm/gpu.h"
#include "jit/plugin_source.h"
#include "jit/vocabulary.h"
#include "schema/dtype.h"

namespace opdock {
namespace {

// There is one table per process: all runtimes share what is loaded on a device.
struct OwnKernelsTable {
  ForkAwareLock lock;  // guards what follows
  std::map<std::pair<int32_t, int32_t>, std::unique_ptr<Kernels>> all;
  std::atomic<bool> announced{false};
};
OwnKernelsTable& own_kernels = *new OwnKernelsTable;

CompileRequest own_request(Backend backend, const std::string& arch) {
  CompileRequest request;
  request.name = "Opdock's kernels for products";
  request.headers = vocabulary();
  for (const gemm::OwnSource& source : gemm::kOwnSources)
    request.headers.push_back({source.name, source.text});
  request.sources = {gemm::kOwnSources[1].name};
  request.kernels.assign(gemm::kOwnNames, gemm::kOwnNames + gemm::kOwnKernels);
  request.backend = backend;
  request.arch = arch;
  return request;
}

}  // namespace

Status FunctionTable::gemm_kernels(opdock_device device, Driver* driver, Kernels** out) {
  const ForkAwareGuard guard(&own_kernels.lock);
  if (!guard)
    return {OPDOCK_INVALID_ARGUMENT, to_text(deadlock_reason("Opdock's kernels to be compiled"))};
  std::unique_ptr<Kernels>& known = own_kernels.all[{device.type, device.index}];
  if (known != nullptr) {
    *out = known.get();
    return {};
  }
  const opdock_device_facts* facts = nullptr;
  Gpu gpu{};
  gpu.backend = static_cast<Backend>(device.type);
  Status asked = driver->facts(device.index, &facts);
  if (asked.ok()) asked = driver->arch(device.index, &gpu.arch);
  if (!asked.ok()) return asked;
  gpu.major = static_cast<int>(facts->arch_major);
  gpu.minor = static_cast<int>(facts->arch_minor);

  const Waiting waits(runtime_->hooks());
  HookedProgress progress(runtime_->hooks(), &own_kernels.announced);
  std::vector<Reason> reasons;
  const JitContext context = jit_context(runtime_, &progress, &reasons);
  CompileRequest request = own_request(gpu.backend, exact_arch(gpu));
  CompiledImagePtr image;
  std::unique_ptr<Kernels> made = load_compiled(request, driver, device, context, &image, &reasons);
  Reason notice{};
  if (made == nullptr) {
    if (const auto ptx = ptx_for_newer_gpu(request, context, &notice))
      made = load_compiled(*ptx, driver, device, context, &image, &reasons);
  }
  if (made == nullptr) {
    std::string text = "kernels for products on " + to_text(device) + ": ";
    for (const Reason& reason : reasons) {
      if (info(reason.code).severity != Severity::kNotice) text += to_text(reason) + "\n";
    }
    if (text.back() == '\n') text.pop_back();
    return {OPDOCK_INCOMPATIBLE, std::move(text)};
  }
  made->number(gemm::kOwnNames, gemm::kOwnKernels);
  for (uint32_t i = 0; i < gemm::kOwnKernels; ++i) {
    opdock_kernel* ignored = nullptr;
    if (Status found = made->find(i, &ignored); !found.ok()) return found;
  }
  const NoFork no_fork;
  known = std::move(made);
  *out = known.get();
  return {};
}

}  // namespace opdock
