// SPDX-License-Identifier: Apache-2.0
#include "call/retain.h"

#include <memory>
#include <new>

#include "base/guarded.h"
#include "call/invocation.h"
#include "call/tensor_arguments.h"

// The reference that an op holds: the handle of the program's keeper, and the function to release
// it.
struct opdock_retained {
  void* kept;
  void (*release)(void* kept);
};

namespace opdock {
namespace {

bool is_argument(const Invocation& in, const opdock_value* args, const opdock_tensor* tensor) {
  return !each_tensor(in.function, args, [&](ArgumentPlace, const opdock_value& value) {
    return value.as.tensor != tensor;
  });
}

opdock_status keep(Invocation& in, const opdock_tensor* tensor, opdock_retained** out) {
  if (tensor == nullptr || out == nullptr) {
    return in.fail(OPDOCK_INTERNAL, "retain(): found a NULL tensor or out, wanted both; pass both");
  }
  if (in.phase != Phase::kRun || !in.target->has_flag(OPDOCK_OP_RETAINS)) {
    return in.fail(
        OPDOCK_INTERNAL,
        "retain(): only run of an op with the flag retains may keep an argument; add the "
        "flag in plugin.toml");
  }
  if (!is_argument(in, in.args, tensor)) {
    return in.fail(OPDOCK_INTERNAL,
                   "retain(): found a tensor that is no argument of the call, wanted one that is");
  }
  const opdock_keeper* keeper = in.how.keeper;
  if (keeper == nullptr || !OPDOCK_HAS(keeper, opdock_keeper, release) ||
      keeper->retain == nullptr || keeper->release == nullptr) {
    return in.fail(
        OPDOCK_UNSUPPORTED,
        "found a call whose arguments must not be kept, wanted one with options.keeper, as the "
        "op goes on using its arguments after it has returned");
  }
  std::unique_ptr<opdock_retained> made(new (std::nothrow) opdock_retained{});
  if (made == nullptr) {
    return in.fail(OPDOCK_OUT_OF_MEMORY, "retain(): no host memory; free some and try again");
  }
  made->release = keeper->release;
  const opdock_status status = keeper->retain(keeper->context, tensor, &made->kept);
  if (status != OPDOCK_OK) {
    return in.fail(status, "retain(): the program that makes the call cannot keep this argument");
  }
  *out = made.release();
  return OPDOCK_OK;
}

opdock_status retain(const opdock_call* call, const opdock_tensor* tensor,
                     opdock_retained** out) noexcept {
  Invocation& in = *static_cast<Invocation*>(call->host_data);
  return answer(in, [&] { return keep(in, tensor, out); });
}

void release(opdock_retained* retained) noexcept {
  if (retained == nullptr) return;
  guarded({}, [&] {
    retained->release(retained->kept);
    return OPDOCK_OK;
  });
  delete retained;
}

constexpr opdock_retain kRetainTable = {sizeof(opdock_retain), 0, retain, release};

}  // namespace

const opdock_retain* retain_extension() {
  return &kRetainTable;
}

}  // namespace opdock
