#include <algorithm>
#include <opdock/op.hpp>

using namespace opdock;

// The kernels that plugin.toml lists, by number.
static constexpr auto kKernels =
    OPDOCK_KERNEL_FAMILY("opname_kernel", KernelTypes<float, half, bfloat16>);

// Describes the output; touches no data. The host has already checked what plugin.toml declares:
// devices, dtypes, and that x is contiguous, and so is the output.
static void plan(Plan& plan, Tensor x, double) {
  plan.output(x.like());
}

// Called once per device: loads the kernels, so that the first run may be inside a graph capture.
static void prepare(Call& call) {
  if (!call.is_cpu()) call.kernel(kKernels(dtype_of<float>()));  // its image has all kernels
}

static void run(Call& call, Results out, Tensor x, double a) {
  const int64_t n = x.numel();
  if (n == 0) return;
  dispatch<float, half, bfloat16>(x, "x", [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* px = x.data<T>();
    T* py = out[0].data<T>();
    if (!call.is_cpu()) {
      const int64_t blocks = std::min<int64_t>((n + 255) / 256, 65535);
      // The arguments' types must be those of the kernel's parameters.
      call.launch(kKernels(x.dtype()), {blocks, 256}, px, py, float(a), n);
      return;
    }
    call.parallel_for(n, 4096, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) py[i] = T(float(a) * float(px[i]));
    });
  });
}

OPDOCK_OP(opname, plan, prepare, run)
