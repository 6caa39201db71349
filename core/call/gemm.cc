// SPDX-License-Identifier: Apache-2.0
#include "call/gemm.h"

#include <atomic>
#include <string>

#include "call/invocation.h"
#include "gemm/cpu.h"
#include "gemm/gpu.h"
#include "gemm/product.h"

namespace opdock {
namespace {

using gemm::Product;

// Begins all three functions: checks that the call comes from the right phase, then reads and
// checks the struct.
opdock_status enter_gemm(Invocation& in, const char* function, Phase phase,
                         const opdock_gemm** what, opdock_gemm* room, Product* out) {
  if (in.phase != phase) {
    return in.fail(OPDOCK_INTERNAL, std::string("gemm: found ") + function +
                                        "() called from another phase, wanted each function in the "
                                        "phase of its name; move it");
  }
  Status problem;
  *what = gemm::read_gemm(*what, room, &problem);
  if (*what != nullptr) problem = gemm::check_product(**what, out);
  return problem.ok() ? OPDOCK_OK : in.fail(problem.status, problem.text);
}

// Returns the product's flags. For float32 on an NVIDIA GPU it adds TF32 if the call's options
// allow it.
uint32_t flags_of(Invocation& in, const opdock_gemm& what, const Product& p) {
  if (p.a.element != gemm::kFloat32 || in.call.device.type != OPDOCK_CUDA ||
      in.how.allows_tf32 == nullptr) {
    return what.flags;
  }
  using Asked = Invocation::Asked;
  if (in.tf32 == Asked::kUnknown) in.tf32 = in.how.allows_tf32() != 0 ? Asked::kYes : Asked::kNo;
  return in.tf32 == Asked::kYes ? what.flags | OPDOCK_GEMM_TF32 : what.flags;
}

// The library's own kernels for each device, once they are loaded.
std::atomic<Kernels*> own_kernels_of[2][kMaxDevices];

class HostGpuCall : public gemm::GpuCall {
 public:
  explicit HostGpuCall(Invocation* in) : GpuCall(&in->call, in->target->driver), in_(*in) {}

  opdock_status kernel(gemm::OwnKernel which, opdock_kernel** out) override {
    const opdock_device device = in_.target->device;
    std::atomic<Kernels*>& slot = own_kernels_of[device.type == OPDOCK_ROCM][device.index];
    Kernels* kernels = slot.load(std::memory_order_acquire);
    if (kernels == nullptr) {
      bool is_capturing = false;
      const opdock_status asked = in_.is_capturing(&is_capturing);
      if (asked != OPDOCK_OK) return asked;
      if (is_capturing) {
        return in_.fail(OPDOCK_UNSUPPORTED,
                        "gemm: found the stream being captured before the kernels for products "
                        "are loaded, wanted them ready; call the op once before, or have it call "
                        "prepare of " OPDOCK_GEMM_1 " for these dtypes");
      }
      const Status made =
          in_.function.resolver()->gemm_kernels(device, in_.target->driver, &kernels);
      if (!made.ok()) return in_.fail(made.status, made.text);
      slot.store(kernels, std::memory_order_release);
    }
    const Status found = kernels->find(which, out);
    return found.ok() ? OPDOCK_OK : in_.fail(found.status, found.text);
  }

 private:
  Invocation& in_;
};

opdock_status plan_gemm(Invocation& in, const opdock_gemm* what, uint64_t* workspace_bytes) {
  opdock_gemm room;
  Product p;
  const opdock_status entered = enter_gemm(in, "plan", Phase::kPlan, &what, &room, &p);
  if (entered != OPDOCK_OK) return entered;
  const bool on_cpu = in.target->driver == nullptr || gemm::is_empty(p);
  *workspace_bytes = on_cpu ? 0 : gemm::workspace_on_gpu(&in.call, p, flags_of(in, *what, p));
  return OPDOCK_OK;
}

opdock_status prepare_gemm(Invocation& in, const opdock_gemm* what) {
  opdock_gemm room;
  Product p;
  const opdock_status entered = enter_gemm(in, "prepare", Phase::kPrepare, &what, &room, &p);
  if (entered != OPDOCK_OK || in.target->driver == nullptr) return entered;
  HostGpuCall gpu(&in);
  return gemm::prepare_on_gpu(&gpu, p);
}

opdock_status run_gemm(Invocation& in, const opdock_gemm* what, void* workspace,
                       uint64_t workspace_bytes) {
  opdock_gemm room;
  Product p;
  const opdock_status entered = enter_gemm(in, "run", Phase::kRun, &what, &room, &p);
  if (entered != OPDOCK_OK) return entered;
  if (const char* missing = gemm::missing_address(*what)) {
    return in.fail(OPDOCK_INTERNAL,
                   std::string("gemm: ") + missing + ": found NULL, wanted an address; fill it in");
  }
  if (gemm::is_empty(p)) return OPDOCK_OK;
  if (in.target->driver != nullptr) {
    HostGpuCall gpu(&in);
    return gemm::run_on_gpu(&gpu, p, flags_of(in, *what, p), workspace, workspace_bytes);
  }
  gemm::run_on_cpu(&in.call, p);
  return OPDOCK_OK;
}

Invocation& gemm_invocation(const opdock_call* call) {
  return *static_cast<Invocation*>(call->host_data);
}

opdock_status gemm_plan(const opdock_call* call, const opdock_gemm* what,
                        uint64_t* workspace_bytes) noexcept {
  Invocation& in = gemm_invocation(call);
  return answer(in, [&] { return plan_gemm(in, what, workspace_bytes); });
}
opdock_status gemm_prepare(const opdock_call* call, const opdock_gemm* what) noexcept {
  Invocation& in = gemm_invocation(call);
  return answer(in, [&] { return prepare_gemm(in, what); });
}
opdock_status gemm_run(const opdock_call* call, const opdock_gemm* what, void* workspace,
                       uint64_t workspace_bytes) noexcept {
  Invocation& in = gemm_invocation(call);
  return answer(in, [&] { return run_gemm(in, what, workspace, workspace_bytes); });
}

constexpr opdock_gemm_table kGemmTable = {sizeof(opdock_gemm_table), 0, gemm_plan, gemm_prepare,
                                          gemm_run};

}  // namespace

const opdock_gemm_table* gemm_extension() {
  return &kGemmTable;
}

}  // namespace opdock
