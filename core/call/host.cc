// SPDX-License-Identifier: Apache-2.0
#include "call/host.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/guarded.h"
#include "call/attention.h"
#include "call/cancel.h"
#include "call/gemm.h"
#include "call/invocation.h"
#include "call/launch.h"
#include "call/memory.h"
#include "call/parallel.h"
#include "call/retain.h"
#include "call/tuning.h"
#include "schema/dtype.h"

namespace opdock {
namespace {

Invocation& invocation(const opdock_call* call) {
  return *static_cast<Invocation*>(call->host_data);
}

// All functions that plugins get from this file are noexcept: an exception would unwind the
// plugin's stack frames.

// Logs a message: with a call to the log of the call's runtime, without one to stderr.
void host_log(const opdock_call* call, int32_t level, const char* message) noexcept {
  if (message == nullptr) return;
  guarded({}, [&] {
    if (call != nullptr) {
      invocation(call).function.resolver()->log(level, message);
    } else if (level >= 2) {
      std::fprintf(stderr, "opdock: %s\n", message);
    }
    return OPDOCK_OK;
  });
}

opdock_status host_set_error(const opdock_call* call, opdock_status status,
                             const char* message) noexcept {
  return invocation(call).fail(status, message == nullptr ? "" : message);
}

opdock_status find_kernel(Invocation& in, uint32_t index, opdock_kernel** out) {
  if (out == nullptr) {
    return in.fail(OPDOCK_INTERNAL,
                   "kernel(): found out of NULL, wanted room for the kernel; pass a pointer to it");
  }
  if (in.phase == Phase::kPlan) {
    return in.fail(OPDOCK_INTERNAL,
                   "kernel(): found a call from plan, which must touch no device, wanted one from "
                   "prepare or run; move it");
  }
  Kernels* const kernels = in.target->kernels;
  if (kernels == nullptr) {
    return in.fail(OPDOCK_NOT_FOUND, "kernel(" + std::to_string(index) +
                                         "): found the op running on " +
                                         to_text(in.target->device) +
                                         ", which has no kernels, wanted a GPU; ask for kernels "
                                         "only there");
  }
  if (kernels->is_ready(index, out)) [[likely]]
    return OPDOCK_OK;
  bool is_capturing = false;
  const opdock_status asked = in.is_capturing(&is_capturing);
  if (asked != OPDOCK_OK) return asked;
  Status found = kernels->find(index, out, !is_capturing);
  if (found.ok() && *out == nullptr) [[unlikely]] {
    found = in.function.resolver()->make_kernels(in.function, in.target, kernels->name_of(index));
    if (found.ok()) found = kernels->find(index, out, false);
  }
  return found.ok() ? OPDOCK_OK : in.fail(found.status, found.text);
}

opdock_status refuse_launch(Invocation& in, const std::string& text) {
  return in.fail(OPDOCK_INTERNAL, "launch(): " + text);
}

opdock_status launch_kernel(Invocation& in, const opdock_call* call, opdock_kernel* kernel,
                            const opdock_launch* launch) {
  opdock_launch room;
  std::string problem;
  launch = read_launch(kernel, launch, &room, &problem);
  if (launch == nullptr) return refuse_launch(in, problem);
  if (in.phase != Phase::kRun) {
    return refuse_launch(in, "found a call from plan or prepare, wanted one from run; move it");
  }
  if (in.target->driver == nullptr || !same(kernel->device, in.target->device)) {
    return refuse_launch(in, "found a kernel of " + to_text(kernel->device) + ", wanted one of " +
                                 to_text(in.target->device) +
                                 ", where the op runs; look it up in every call");
  }
  Status done = in.target->driver->launch(kernel->function, call->stream, *launch);
  return done.ok() ? OPDOCK_OK : in.fail(done.status, done.text);
}

opdock_status more_workspace(Invocation& in, uint64_t bytes, uint64_t alignment, void** out) {
  if (out == nullptr) {
    return in.fail(OPDOCK_INTERNAL,
                   "workspace(): found out of NULL, wanted room for the address; pass a pointer "
                   "to it");
  }
  *out = nullptr;
  if (in.phase != Phase::kRun || !in.target->has_flag(OPDOCK_OP_MAY_ALLOCATE)) {
    return in.fail(
        OPDOCK_INTERNAL,
        std::string("workspace(): found a call from ") +
            (in.phase != Phase::kRun ? "plan or prepare" : "an op without the flag may-allocate") +
            ", wanted one from run of an op with may-allocate; plan the size instead");
  }
  bool is_capturing = false;
  const opdock_status asked = in.is_capturing(&is_capturing);
  if (asked != OPDOCK_OK) return asked;
  if (is_capturing) {
    return in.fail(OPDOCK_UNSUPPORTED,
                   "workspace(): found the stream being captured, wanted all workspace planned; "
                   "plan its size, or do not capture this op");
  }
  if (alignment == 0) alignment = kAlignment;
  if (!std::has_single_bit(alignment) || bytes > (UINT64_MAX >> 1)) {
    return in.fail(OPDOCK_INTERNAL,
                   "workspace(): found " + std::to_string(bytes) + " bytes with alignment " +
                       std::to_string(alignment) +
                       ", wanted fewer than 2^63 bytes and a power of two; correct them");
  }
  if (bytes == 0) return OPDOCK_OK;
  if (in.extra == nullptr) in.extra = new std::vector<void*>;
  in.extra->reserve(in.extra->size() + 1);
  if (in.target->driver != nullptr) {
    void* memory = nullptr;
    const Status done =
        allocate_on_device(*in.target, in.call.stream, bytes, alignment, &memory, out);
    if (!done.ok()) return in.fail(done.status, "workspace(): " + done.text);
    in.extra->push_back(memory);
    return OPDOCK_OK;
  }
  alignment = std::max<uint64_t>(alignment, 64);
  *out = allocate_on_host(bytes, alignment);
  if (*out == nullptr) {
    return in.fail(OPDOCK_OUT_OF_MEMORY, "workspace(): no host memory of " + std::to_string(bytes) +
                                             " bytes; free some and try again");
  }
  in.extra->push_back(*out);
  return OPDOCK_OK;
}

opdock_status host_kernel(const opdock_call* call, uint32_t index, opdock_kernel** out) noexcept {
  Invocation& in = invocation(call);
  return answer(in, [&] { return find_kernel(in, index, out); });
}

opdock_status host_launch(const opdock_call* call, opdock_kernel* kernel,
                          const opdock_launch* launch) noexcept {
  Invocation& in = invocation(call);
  return answer(in, [&] { return launch_kernel(in, call, kernel, launch); });
}

opdock_status host_workspace(const opdock_call* call, uint64_t bytes, uint64_t alignment,
                             void** out) noexcept {
  Invocation& in = invocation(call);
  return answer(in, [&] { return more_workspace(in, bytes, alignment, out); });
}

void* host_driver_symbol(int32_t device_type, const char* name) noexcept {
  if (name == nullptr) return nullptr;
  void* found = nullptr;
  guarded({}, [&] {
    Driver* driver = nullptr;
    if (driver_for(static_cast<Backend>(device_type), &driver).ok()) found = driver->symbol(name);
    return OPDOCK_OK;
  });
  return found;
}

const void* host_get_extension(const char* id) noexcept {
  if (id == nullptr) return nullptr;
  if (std::strcmp(id, OPDOCK_TUNING_1) == 0) return tuning_extension();
  if (std::strcmp(id, OPDOCK_PARALLEL_2) == 0) return parallel_extension();
  if (std::strcmp(id, OPDOCK_RETAIN_1) == 0) return retain_extension();
  if (std::strcmp(id, OPDOCK_GEMM_1) == 0) return gemm_extension();
  if (std::strcmp(id, OPDOCK_ATTENTION_1) == 0) return attention_extension();
  if (std::strcmp(id, OPDOCK_CANCEL_1) == 0) return cancel_extension();
  return nullptr;
}

}  // namespace

const opdock_host host_functions = {
    sizeof(opdock_host), OPDOCK_ABI_MAJOR, OPDOCK_ABI_MINOR,   0,
    OPDOCK_VERSION,      host_log,         host_set_error,     host_kernel,
    host_launch,         host_workspace,   host_driver_symbol, host_get_extension};

}  // namespace opdock
