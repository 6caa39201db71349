// Implements bias_activation and interleaved_gate.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "device/gate_params.cuh"
#include "ragged.h"

namespace ragged {
namespace {

constexpr auto kBias = OPDOCK_KERNEL_FAMILY("ragged::bias_activation", opdock::RowTypes);
constexpr auto kPairs = OPDOCK_KERNEL_FAMILY("ragged::gate_pairs", opdock::RowTypes);

int activation_of(std::string_view name) {
  constexpr std::string_view kNames[] = {"none", "relu", "gelu", "gelu_tanh", "silu"};
  for (int i = 0; i < 5; ++i)
    if (name == kNames[i]) return i;
  throw Error(OPDOCK_INVALID_ARGUMENT,
              concat("argument 'activation': found '", name,
                     "', wanted 'none', 'relu', 'gelu', 'gelu_tanh' or 'silu'; pass one of them"));
}

float activated(int activation, float x) {
  switch (activation) {
    case kRelu:
      return x < 0 ? 0 : x;
    case kGelu:
      return 0.5f * x * (1 + std::erf(x * 0.707106781f));
    case kGeluTanh:
      return 0.5f * x * (1 + std::tanh(0.797884561f * (x + 0.044715f * x * x * x)));
    case kSilu:
      return x / (1 + std::exp(-x));
    default:
      return x;
  }
}

void plan_bias(Plan& plan, Tensor x, OptionalTensor, std::string_view activation) {
  check_element(x, "x");
  static_cast<void>(activation_of(activation));
  plan.output(x.like());
}

void run_bias(Call& call, Results results, Tensor x, OptionalTensor bias, std::string_view name) {
  const Tensor out = results[0];
  if (x.is_empty()) return;
  const int activation = activation_of(name);
  BiasParams p = {opdock::make_elements<3>({out, x, bias}, x.size(-1), {}), activation};
  if (!call.is_cpu()) return opdock::launch_elements(call, kBias(x.dtype()), p.elements, p);
  for_type(x, "x", [&](auto tag) {
    using T = typename decltype(tag)::type;
    const opdock::Elements<3>& of = p.elements;
    const T* const added = static_cast<const T*>(of.data[2]);
    const int64_t grain = std::max<int64_t>(1, kGrain / of.length);
    call.parallel_for(of.rows.count, grain, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        long long at[3];
        of.rows.locate(row, at);
        T* const to = static_cast<T*>(of.data[0]) + at[0];
        const T* const from = static_cast<const T*>(of.data[1]) + at[1];
        for (int64_t i = 0; i < of.length; ++i) {
          const float value = static_cast<float>(from[i]);
          to[i] = T(activated(activation, added ? value + static_cast<float>(added[i]) : value));
        }
      }
    });
  });
}

// Returns the stride of the rows of x if they are evenly spaced over all dimensions, else -1.
int64_t even_stride(Tensor x) {
  int64_t stride = 0, rows = 1;
  for (int32_t dim = x.ndim() - 2; dim >= 0; --dim) {
    if (x.size(dim) == 1) continue;
    if (rows == 1)
      stride = x.stride(dim);
    else if (x.stride(dim) != stride * rows)
      return -1;
    rows *= x.size(dim);
  }
  return stride;
}

void plan_pairs(Plan& plan, Tensor x, OptionalTensor, std::string_view activation) {
  check_element(x, "x");
  static_cast<void>(activation_of(activation));
  if (x.size(-1) % 2 != 0)
    throw Error(OPDOCK_INVALID_ARGUMENT,
                concat("argument 'x': found ", x.size(-1), " columns, shape ", x.shape_text(),
                       ", wanted an even number, gates and values in turn; pass both"));
  if (!x.is_empty() && even_stride(x) < 0)
    throw Error(OPDOCK_UNSUPPORTED,
                concat("argument 'x': found rows at uneven distances, shape ", x.shape_text(),
                       ", wanted one stride from each row to the next; make it contiguous"));
  plan.output(x.like().with_size(-1, x.size(-1) / 2));
}

void run_pairs(Call& call, Results results, Tensor x, OptionalTensor bias, std::string_view name) {
  const Tensor out = results[0];
  check(out, "output 0").contiguous().aligned();
  if (out.is_empty()) return;
  PairParams p = {};
  p.x = x.raw();
  p.bias = bias ? bias->raw() : nullptr;
  p.out = out.raw();
  p.columns = out.size(-1);
  p.rows = out.numel() / p.columns;
  p.x_row = even_stride(x);
  p.activation = activation_of(name);
  if (!call.is_cpu()) {
    const int64_t piece = 16 / x.dtype().bytes();
    p.by_vectors = Vectors(x)
                       .address(p.x)
                       .address(p.bias)
                       .address(p.out)
                       .elements(p.x_row)
                       .elements(p.columns)
                       .fit();
    const int64_t jobs = p.by_vectors ? p.columns / piece : p.columns;
    const int64_t blocks = (jobs + kPairThreads - 1) / kPairThreads;
    p.column_blocks = static_cast<int>(blocks);
    const int64_t threads = std::min<int64_t>(kPairThreads, (jobs + 63) / 64 * 64);
    return launch_blocks(call, kPairs(x.dtype()), p.rows * blocks, threads, p, "rows of 'x'");
  }
  for_type(x, "x", [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* const added = static_cast<const T*>(p.bias);
    call.parallel_for(p.rows, std::max<int64_t>(1, kGrain / p.columns),
                      [&](int64_t begin, int64_t end) {
                        for (int64_t row = begin; row < end; ++row) {
                          const T* const from = static_cast<const T*>(p.x) + row * p.x_row;
                          T* const to = static_cast<T*>(p.out) + row * p.columns;
                          for (int64_t i = 0; i < p.columns; ++i) {
                            float gate = static_cast<float>(from[2 * i]),
                                  value = static_cast<float>(from[2 * i + 1]);
                            if (added) {
                              gate += static_cast<float>(added[2 * i]);
                              value += static_cast<float>(added[2 * i + 1]);
                            }
                            to[i] = T(activated(p.activation, gate) * value);
                          }
                        }
                      });
  });
}

}  // namespace
}  // namespace ragged

OPDOCK_OP(bias_activation, ragged::plan_bias, nullptr, ragged::run_bias)
OPDOCK_OP(interleaved_gate, ragged::plan_pairs, nullptr, ragged::run_pairs)
