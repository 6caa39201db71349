#include "opname.h"

#include <opdock/op.hpp>
#include <opdock/stream_context.hpp>

using namespace opdock;

// Describes the output; touches no data. The host has already checked what plugin.toml declares:
// devices, dtypes, and that x is contiguous, and so is the output.
static void plan(Plan& plan, Tensor x, double) {
  plan.output(x.like());
}

static void check_gpu(const char* problem) {
  if (problem != nullptr) throw Error(OPDOCK_DEVICE_ERROR, std::string("opname: ") + problem);
}

// Called once per device, before the first run there.
static void prepare(Call& call) {
  if (call.is_cuda()) check_gpu(load_opname());
}

static void run(Call& call, Results out, Tensor x, double a) {
  const int64_t n = x.numel();
  if (n == 0) return;
  dispatch<float, half, bfloat16>(x, "x", [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (call.is_cuda()) {
      constexpr Element kElement = std::is_same_v<T, float>  ? Element::kFloat32
                                   : std::is_same_v<T, half> ? Element::kFloat16
                                                             : Element::kBfloat16;
      const StreamContext context(call);  // <<<…>>> launches into the current context
      check_gpu(launch_opname(kElement, x.raw(), out[0].raw(), float(a), n, call.stream()));
      return;
    }
    const T* px = x.data<T>();
    T* py = out[0].data<T>();
    call.parallel_for(n, 4096, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) py[i] = T(float(a) * float(px[i]));
    });
  });
}

OPDOCK_OP(opname, plan, prepare, run)
