// Implements lamb_: one step of the optimizer for lists of tensors.
// SPDX-License-Identifier: Apache-2.0
#include <opdock/kernel_names.hpp>

#include "device/lamb_params.cuh"
#include "lists_cpu.h"
#include "lists_gpu.h"

namespace lamb {
namespace {

using opdock::Call;
using opdock::Plan;
using opdock::Results;
using opdock::Tensor;
using namespace optimizer;

constexpr auto kNorms =
    OPDOCK_KERNEL_FAMILY("lamb::norms", opdock::KernelTypes<float, opdock::half, opdock::bfloat16>);
constexpr auto kUpdate = OPDOCK_KERNEL_FAMILY(
    "lamb::update", opdock::KernelTypes<float, opdock::half, opdock::bfloat16>);

// The op's arguments, in the order of its schema.
struct Arguments {
  Tensors params, grads, exp_avgs, exp_avg_sqs;
  Tensor step;
  double lr, beta1, beta2, eps, weight_decay, max_coeff, min_coeff;
  bool bias_correction, eps_inside_sqrt, maximize;
  std::optional<Tensors> masters;
  OptionalTensor lr_tensor, grad_scale, found_inf;

  Lists lists() const {
    return {params, grads, {&exp_avgs, &exp_avg_sqs}, {"exp_avgs", "exp_avg_sqs"}, masters};
  }
  // The betas of the bias correction; without it they are 0.
  double corrected(double beta) const { return bias_correction ? beta : 0; }
};

// Returns how many blocks of a GPU, or pieces for the CPU's threads, a tensor has.
int64_t parts_of(int64_t numel) {
  const int64_t size = part_of(numel);
  return numel == 0 ? 1 : (numel + size - 1) / size;
}

int64_t parts_of(const Tensors& params) {
  int64_t parts = 0;
  for (size_t i = 0; i < params.size(); ++i) parts += parts_of(params[i].numel());
  return parts;
}

void check_arguments(const Arguments& a, bool is_cpu) {
  check_lists(a.lists(), is_cpu);
  check_one_number(a.step, "step");
  check_scalars(a.lr_tensor, a.grad_scale, a.found_inf);
  check_not_negative(a.lr, "lr", "1e-3");
  check_beta(a.beta1, "beta1", "0.9");
  check_beta(a.beta2, "beta2", "0.999");
  check_not_negative(a.eps, "eps", "1e-8");
  check_not_negative(a.weight_decay, "weight_decay", "1e-2");
  check_not_negative(a.max_coeff, "max_coeff", "10");
  check_not_negative(a.min_coeff, "min_coeff", "0.01");
}

// Sums of squares of a piece of a tensor, on the CPU.
struct Sums {
  double weights, changes;
};

void run_on_cpu(const Call& call, const Arguments& a, float* ratios) {
  const Lists lists = a.lists();
  const size_t count = a.params.size();
  if (number_of(a.found_inf, 0) != 0) {
    std::fill(ratios, ratios + count, 0.0f);
    return;
  }
  float* const step = a.step.data<float>();
  *step += 1;
  if (count == 0) return;
  const adam::Schedule now =
      adam::make_schedule(number_of(a.lr_tensor, a.lr), a.corrected(a.beta1), a.corrected(a.beta2),
                          0, 0, static_cast<int64_t>(*step));
  LambNumbers numbers;
  numbers.grads = {number_of(a.grad_scale, 1), a.maximize ? -1.0 : 1.0, 0};
  numbers.beta1 = factors_of(a.beta1);
  numbers.beta2 = factors_of(a.beta2);
  numbers.rest1 = 1 - a.beta1;
  numbers.rest2 = 1 - a.beta2;
  numbers.eps = a.eps;
  numbers.weight_decay = a.weight_decay;
  numbers.is_eps_inside_sqrt = a.eps_inside_sqrt;

  // Pieces of all tensors, counted one after the other; a piece is always the same elements, so
  // that sums do not depend on the number of threads.
  int64_t* const ends = static_cast<int64_t*>(call.workspace());
  for (size_t i = 0; i < count; ++i)
    ends[i] = (i == 0 ? 0 : ends[i - 1]) + parts_of(a.params[i].numel());
  double* const factors = reinterpret_cast<double*>(ends + count);
  Sums* const sums = reinterpret_cast<Sums*>(factors + count);
  const auto for_each_piece = [&](const auto& body) {
    call.parallel_for(ends[count - 1], 4, [&](int64_t first, int64_t last) {
      size_t i = static_cast<size_t>(std::upper_bound(ends, ends + count, first) - ends);
      for (int64_t piece = first; piece < last; ++piece) {
        while (piece >= ends[i]) ++i;
        const int64_t before = i == 0 ? 0 : ends[i - 1], numel = a.params[i].numel();
        const int64_t begin = (piece - before) * part_of(numel);
        body(i, piece, begin, std::min<int64_t>(begin + part_of(numel), numel));
      }
    });
  };
  static const auto add_squares = OPDOCK_SIMD_CHOOSE(add_lamb_squares);
  static const auto move = OPDOCK_SIMD_CHOOSE(move_lamb);
  for_each_piece([&](size_t i, int64_t piece, int64_t begin, int64_t end) {
    double both[2] = {};
    add_squares(dtypes_of(lists), numbers, arrays_of(lists, i), begin, end, both);
    sums[piece] = {both[0], both[1]};
  });
  for (size_t i = 0; i < count; ++i) {
    Sums all = {};
    for (int64_t piece = i == 0 ? 0 : ends[i - 1]; piece < ends[i]; ++piece) {
      all.weights += sums[piece].weights;
      all.changes += sums[piece].changes;
    }
    const double ratio =
        trust_ratio(std::sqrt(all.weights), std::sqrt(all.changes), a.min_coeff, a.max_coeff);
    ratios[i] = static_cast<float>(ratio);
    factors[i] = now.rate * ratio;
  }
  for_each_piece([&](size_t i, int64_t, int64_t begin, int64_t end) {
    LambNumbers own = numbers;
    own.factor = factors[i];
    move(dtypes_of(lists), own, arrays_of(lists, i), begin, end);
  });
}

// Launches one of the two kernels for all tensors, each time for the same tensors at a time.
void launch(const Call& call, uint32_t kernel, Params params, const Lists& lists) {
  Launches<Params> launches(call, kernel, &params, lists);
  int64_t parts = 0;
  int first = 0;  // number of the first tensor of the launch that is being collected
  for (size_t i = 0; i < lists.params.size(); ++i) {
    const int64_t more = parts_of(lists.params[i].numel());
    if (launches.add(i, more)) {
      params.begin.step = nullptr;
      params.squares += parts;
      params.ratios += static_cast<int>(i) - first;
      first = static_cast<int>(i);
      parts = 0;
    }
    parts += more;
  }
  launches.flush();
}

// The step copies nothing to the device and waits for nothing, so a graph may capture it.
void run_on_gpu(const Call& call, const Arguments& a, float* ratios) {
  Params params = {};
  params.begin.step = a.step.data<float>();
  params.begin.lr = address_of(a.lr_tensor);
  params.begin.grad_scale = address_of(a.grad_scale);
  params.begin.found_inf = address_of(a.found_inf);
  params.begin.current = static_cast<adam::Current*>(call.workspace());
  params.begin.lr_number = a.lr;
  params.begin.beta1 = a.corrected(a.beta1);
  params.begin.beta2 = a.corrected(a.beta2);
  params.squares = reinterpret_cast<Squares*>(params.begin.current + 1);
  params.ratios = ratios;
  params.beta1 = factor_of<float>(a.beta1);
  params.beta2 = factor_of<float>(a.beta2);
  params.rest1 = static_cast<float>(1 - a.beta1);
  params.rest2 = static_cast<float>(1 - a.beta2);
  params.eps = static_cast<float>(a.eps);
  params.weight_decay = static_cast<float>(a.weight_decay);
  params.min_coeff = static_cast<float>(a.min_coeff);
  params.max_coeff = static_cast<float>(a.max_coeff);
  params.sign = a.maximize ? -1.0f : 1.0f;
  params.is_eps_inside_sqrt = a.eps_inside_sqrt;
  if (a.params.empty()) {
    // Counts the step.
    call.launch(kNorms(opdock::dtype_of<float>()), {1, kThreads}, params);
    return;
  }
  const opdock::Dtype dtype = a.params[0].dtype();
  launch(call, kNorms(dtype), params, a.lists());
  launch(call, kUpdate(dtype), params, a.lists());
}

void plan(Plan& plan, Tensors params, Tensors grads, Tensors exp_avgs, Tensors exp_avg_sqs,
          Tensor step, double lr, double beta1, double beta2, double eps, double weight_decay,
          double max_coeff, double min_coeff, bool bias_correction, bool eps_inside_sqrt,
          bool maximize, std::optional<Tensors> masters, OptionalTensor lr_tensor,
          OptionalTensor grad_scale, OptionalTensor found_inf) {
  check_arguments({params, grads, exp_avgs, exp_avg_sqs, step, lr, beta1, beta2, eps, weight_decay,
                   max_coeff, min_coeff, bias_correction, eps_inside_sqrt, maximize, masters,
                   lr_tensor, grad_scale, found_inf},
                  plan.is_cpu());
  const uint64_t parts = static_cast<uint64_t>(parts_of(params));
  plan.workspace(plan.is_cpu()
                     ? params.size() * (sizeof(int64_t) + sizeof(double)) + parts * sizeof(Sums)
                     : sizeof(adam::Current) + parts * sizeof(Squares));
  plan.output(opdock::Layout(opdock::dtype_of<float>(), {static_cast<int64_t>(params.size())}));
}

void run(Call& call, Results out, Tensors params, Tensors grads, Tensors exp_avgs,
         Tensors exp_avg_sqs, Tensor step, double lr, double beta1, double beta2, double eps,
         double weight_decay, double max_coeff, double min_coeff, bool bias_correction,
         bool eps_inside_sqrt, bool maximize, std::optional<Tensors> masters,
         OptionalTensor lr_tensor, OptionalTensor grad_scale, OptionalTensor found_inf) {
  const Arguments arguments = {
      params,          grads,           exp_avgs, exp_avg_sqs,  step,      lr,
      beta1,           beta2,           eps,      weight_decay, max_coeff, min_coeff,
      bias_correction, eps_inside_sqrt, maximize, masters,      lr_tensor, grad_scale,
      found_inf};
  float* const ratios = out[0].data<float>();
  call.is_cpu() ? run_on_cpu(call, arguments, ratios) : run_on_gpu(call, arguments, ratios);
}

}  // namespace
}  // namespace lamb

OPDOCK_OP(lamb_, lamb::plan, nullptr, lamb::run)
