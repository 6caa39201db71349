// Implements quantize_groups: groups of numbers become integers of 4 or 8 bits.
// SPDX-License-Identifier: Apache-2.0
#include "quantizer.h"

namespace quantizer {
namespace {

constexpr auto kQuantize = OPDOCK_KERNEL_FAMILY("quantizer::quantize", Types, KernelNumbers<0, 1>);

struct Swizzle {
  int64_t slices, nodes, devices;

  int64_t parts() const { return slices * nodes * devices; }
};

void check_swizzle(const Swizzle& swizzle, int64_t groups) {
  constexpr int64_t kMost = 1 << 20;
  const auto check_count = [](int64_t value, const char* name) {
    if (value < 1 || value > kMost)
      fail(name, concat(value), "a number from 1 to 2^20; 1 leaves groups where they are");
  };
  check_count(swizzle.slices, "slices");
  check_count(swizzle.nodes, "nodes");
  check_count(swizzle.devices, "devices");
  if (groups % swizzle.parts() != 0)
    fail(
        "groups", concat(groups),
        "a multiple of slices * nodes * devices, because each slice of a device's part has equally "
        "many groups");
  if (swizzle.parts() > 1 && groups > 0x7fffffff)
    fail("groups", concat(groups), "at most 2^31 - 1 with slices, nodes or devices; pass fewer");
}

void plan_quantize(Plan& plan, Tensor x, int64_t groups, int64_t bits, bool symmetric,
                   bool scaled_offset, int64_t slices, int64_t nodes, int64_t devices) {
  check(x, "x")
      .dtype(dtype_of<float>(), dtype_of<opdock::half>(), dtype_of<opdock::bfloat16>())
      .ndim_at_least(1);
  check_bits(bits);
  check_groups(groups, x.numel(), bits, "groups");
  if (bits == 4 && x.size(-1) % 2 != 0)
    fail("x", concat("shape ", x.shape_text()),
         "an even last size for 4 bits, because a byte has two elements; reshape it");
  check_swizzle({slices, nodes, devices}, groups);
  if (symmetric && scaled_offset)
    fail("scaled_offset", "True", "False for symmetric groups, which have no offset");
  plan.output(x.like().with_dtype(dtype_of<int8_t>()).with_size(-1, x.size(-1) * bits / 8));
  plan.output(opdock::Layout(dtype_of<float>(), {groups, symmetric ? 1 : 2}));
}

void run_quantize(Call& call, Results results, Tensor x, int64_t, int64_t bits, bool symmetric,
                  bool scaled_offset, int64_t slices, int64_t nodes, int64_t devices) {
  const Format format = {static_cast<int>(bits), symmetric, scaled_offset};
  QuantizeParams params = {};
  params.x = x.raw();
  params.numel = x.numel();
  params.to = make_target(results[0], results[1], x.numel(), format);
  const Swizzle swizzle = {slices, nodes, devices};
  if (swizzle.parts() > 1)
    params.to.slots = {static_cast<unsigned>(params.to.groups / swizzle.parts()),
                       static_cast<unsigned>(slices), static_cast<unsigned>(nodes),
                       static_cast<unsigned>(devices)};
  if (!call.is_cpu()) {
    const int plain = is_plain(params.to) && address_of(params.x) % 16 == 0;
    return launch_groups(call, kQuantize(x.dtype(), plain), 4, &params);
  }
  const Target& to = params.to;
  opdock::dispatch<float, opdock::half, opdock::bfloat16>(x, "x", [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_groups(call, to.groups, to.length, [&](int64_t group) {
      quantize_group(to, to.slots.slot_of(group),
                     static_cast<const T*>(params.x) + group * to.length);
    });
  });
}

}  // namespace
}  // namespace quantizer

OPDOCK_OP(quantize_groups, quantizer::plan_quantize, nullptr, quantizer::run_quantize)
