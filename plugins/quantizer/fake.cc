// Implements fake_quantize_: numbers become those that integers of 4 or 8 bits stand for.
// SPDX-License-Identifier: Apache-2.0
#include "device/fake_params.cuh"
#include "quantizer.h"

namespace quantizer {
namespace {

using Generator = std::optional<const opdock_generator*>;

constexpr auto kFake = OPDOCK_KERNEL_FAMILY("quantizer::fake", Types);

void plan_fake(Plan& plan, Tensor x, int64_t groups, int64_t bits, bool, bool stochastic,
               Generator) {
  check(x, "x")
      .dtype(dtype_of<float>(), dtype_of<opdock::half>(), dtype_of<opdock::bfloat16>())
      .ndim_at_least(1);
  check_bits(bits);
  check_groups(groups, x.numel(), 8, "groups");
  plan.random_numbers(stochastic ? static_cast<uint64_t>(x.numel()) : 0);
}

template <class T>
void fake_group(const FakeParams& params, int64_t group) {
  const Target& to = params.to;
  T* const x = static_cast<T*>(params.x) + group * to.length;
  const Extremes extremes = find_extremes(x, to.length);
  const FakeScale scale = make_fake_scale(to.format, extremes.least, extremes.most);
  for (int64_t i = 0; i < to.length; ++i) {
    unsigned drawn = 0;
    if (params.stochastic) {
      const unsigned long long at =
          params.random.offset + static_cast<unsigned long long>(group * to.length + i);
      drawn = opdock::random_block(params.random.seed, at >> 2).word[at & 3];
    }
    const float q = fake_integer(to.format, scale, x[i], params.stochastic != 0, drawn);
    x[i] = to.format.is_symmetric ? q / scale.factor : std::fma(q, scale.step, scale.least);
  }
}

void run_fake(Call& call, Results, Tensor x, int64_t groups, int64_t bits, bool symmetric,
              bool stochastic, Generator) {
  if (x.numel() == 0) return;
  FakeParams params = {};
  params.x = x.raw();
  params.to.groups = groups;
  params.to.length = x.numel() / groups;
  params.to.format = {static_cast<int>(bits), symmetric, false};
  params.to.aligned = address_of(params.x) % 16 == 0;
  params.stochastic = stochastic;
  if (stochastic) params.random = opdock::random_source(*call.generator());
  if (!call.is_cpu()) return launch_groups(call, kFake(x.dtype()), 4, &params);
  opdock::dispatch<float, opdock::half, opdock::bfloat16>(x, "x", [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_groups(call, groups, params.to.length,
               [&](int64_t group) { fake_group<T>(params, group); });
  });
}

}  // namespace
}  // namespace quantizer

OPDOCK_OP(fake_quantize_, quantizer::plan_fake, nullptr, quantizer::run_fake)
