// Implements fp_matmul: decodes the weight into the workspace, for a product by opdock.gemm/1. Such
// a copy costs little beside a product with many rows.
// SPDX-License-Identifier: Apache-2.0
#include <opdock/gemm.hpp>

#include "arguments.h"
#include "groups.h"

namespace fp_quantizer {
namespace {

// A matrix without gaps; while planning, without an address.
class Matrix {
 public:
  Matrix(void* data, opdock::Device device, Dtype dtype, int64_t rows, int64_t columns)
      : shape_{rows, columns}, strides_{columns, 1} {
    tensor_.data = data;
    tensor_.device = device;
    tensor_.ndim = 2;
    tensor_.dtype = dtype;
    tensor_.shape = shape_;
    tensor_.strides = strides_;
  }
  Matrix(const Matrix&) = delete;  // the tensor points into it
  Matrix& operator=(const Matrix&) = delete;

  Tensor tensor() const {
    return Tensor(&tensor_, tensor_.data == nullptr ? OPDOCK_VALUE_NO_DATA : 0);
  }
  int64_t numel() const { return shape_[0] * shape_[1]; }
  // Returns its size in a workspace where what follows it is aligned too.
  uint64_t bytes() const {
    return (static_cast<uint64_t>(numel() * opdock::Dtype(tensor_.dtype).bytes()) + 255) / 256 *
           256;
  }

 private:
  int64_t shape_[2], strides_[2];
  opdock_tensor tensor_ = {};
};

// The factors and the result as the host multiplies them, and where they lie. A BLAS of the CPU
// multiplies float32 only, so there x and the result are copied too.
class Product {
 public:
  // workspace, out: null while planning.
  Product(Tensor x, Tensor weight, bool is_cpu, void* workspace, void* out)
      : is_copied_(is_cpu),
        dtype_(is_cpu ? dtype_of<float>() : x.dtype()),
        rows_(rows_of(x)),
        weight_(workspace, x.device(), dtype_, weight.size(0), weight.size(1)),
        x_(is_cpu         ? after(workspace, weight_)
           : x.has_data() ? x.raw()
                          : nullptr,
           x.device(), dtype_, rows_, weight.size(0)),
        out_(is_cpu ? after(x_.tensor(), x_) : out, x.device(), dtype_, rows_, weight.size(1)) {}

  uint64_t bytes() const { return weight_.bytes() + (is_copied_ ? x_.bytes() + out_.bytes() : 0); }
  opdock::Gemm gemm() const {
    opdock::Gemm gemm(x_.tensor(), weight_.tensor());
    gemm.flags(OPDOCK_GEMM_DETERMINISTIC).d(out_.tensor());
    return gemm;
  }
  Tensor weight() const { return weight_.tensor(); }
  Tensor x() const { return x_.tensor(); }
  Tensor out() const { return out_.tensor(); }

 private:
  static int64_t rows_of(Tensor x) {
    int64_t rows = 1;
    for (int32_t i = 0; i + 1 < x.ndim(); ++i) rows *= x.size(i);
    return rows;
  }
  static void* after(void* begin, const Matrix& matrix) {
    return begin == nullptr ? nullptr : static_cast<char*>(begin) + matrix.bytes();
  }
  static void* after(Tensor tensor, const Matrix& matrix) {
    return after(tensor.has_data() ? tensor.raw() : nullptr, matrix);
  }

  bool is_copied_;
  Dtype dtype_;
  int64_t rows_;
  Matrix weight_, x_, out_;
};

void plan_matmul(Plan& plan, Tensor x, Tensor weight, Tensor scale, int64_t exponent_bits,
                 int64_t mantissa_bits) {
  const Format format(exponent_bits, mantissa_bits);
  if (format.bits() != 8)
    throw Error(OPDOCK_UNSUPPORTED,
                concat("argument 'exponent_bits': found codes of ", format.bits(),
                       " bits, wanted 8: 4 with 3 'mantissa_bits', or 5 with 2; decode them by "
                       "fp_dequantize"));
  check(x, "x").dtype(dtype_of<opdock::half>(), dtype_of<opdock::bfloat16>()).ndim_at_least(1);
  check(weight, "weight")
      .dtype(dtype_of<uint8_t>())
      .same_device_as(x, "x")
      .ndim(2)
      .size(0, x.size(-1));
  check(scale, "scale").dtype(dtype_of<float>()).same_device_as(x, "x");
  const int64_t groups = scale.numel();
  if (!weight.is_empty() && (groups == 0 || weight.numel() % groups != 0))
    throw Error(OPDOCK_INVALID_ARGUMENT,
                concat("argument 'scale': found ", groups, " scales, wanted one for each group of ",
                       "as many of the ", weight.numel(), " codes of 'weight'; pass a divisor"));
  plan.output(x.like().with_size(-1, weight.size(1)));
  const Product product(x, weight, plan.is_cpu(), nullptr, nullptr);
  plan.workspace(product.bytes() + product.gemm().workspace_bytes(plan), 256);
}

void prepare_matmul(Call& call) {
  if (call.is_cpu())
    return opdock::Gemm::prepare(call, dtype_of<float>(), dtype_of<float>(), dtype_of<float>());
  for (const Dtype dtype : {dtype_of<opdock::half>(), dtype_of<opdock::bfloat16>()})
    opdock::Gemm::prepare(call, dtype, dtype, dtype);
}

// Converts as many elements as `to` has; one of the two tensors is of float32.
template <class T>
void convert(const Call& call, Tensor from, Tensor to) {
  constexpr int64_t kGrain = 16384;
  call.parallel_for(to.numel(), kGrain, [&](int64_t begin, int64_t end) {
    if (to.dtype() == dtype_of<float>()) {
      for (int64_t i = begin; i < end; ++i)
        static_cast<float*>(to.raw())[i] = static_cast<const T*>(from.raw())[i];
    } else {
      for (int64_t i = begin; i < end; ++i)
        static_cast<T*>(to.raw())[i] = static_cast<const float*>(from.raw())[i];
    }
  });
}
void convert(const Call& call, Dtype half, Tensor from, Tensor to) {
  if (half == dtype_of<opdock::half>()) {
    convert<opdock::half>(call, from, to);
  } else {
    convert<opdock::bfloat16>(call, from, to);
  }
}

void run_matmul(Call& call, Results results, Tensor x, Tensor weight, Tensor scale,
                int64_t exponent_bits, int64_t mantissa_bits) {
  const Tensor out = results[0];
  check(out, "output 0").contiguous();
  if (out.is_empty()) return;
  const Format format(exponent_bits, mantissa_bits);
  const Product product(x, weight, call.is_cpu(), call.workspace(), out.raw());
  if (!weight.is_empty()) {
    DequantizeParams params = {};
    params.codes_at = static_cast<const unsigned char*>(weight.raw());
    params.scales_at = static_cast<const unsigned char*>(scale.raw());
    params.out = product.weight().raw();
    params.groups = scale.numel();
    params.group = params.code_stride = weight.numel() / params.groups;
    params.scale_stride = kScaleBytes;
    params.codes = format.codes();
    if (call.is_cpu()) {
      call.parallel_for(params.groups, group_grain(params.group), [&](int64_t begin, int64_t end) {
        dequantize_on_cpu(x.dtype(), true, format.bits(), params, begin, end);
      });
      convert(call, x.dtype(), x, product.x());
    } else {
      launch_dequantize(call, x.dtype(), format.bits(), params);
    }
  }
  product.gemm().run(call, static_cast<char*>(call.workspace()) + product.bytes(),
                     call.workspace_bytes() - product.bytes());
  if (call.is_cpu()) convert(call, x.dtype(), product.out(), out);
}

}  // namespace
}  // namespace fp_quantizer

OPDOCK_OP(fp_matmul, fp_quantizer::plan_matmul, fp_quantizer::prepare_matmul,
          fp_quantizer::run_matmul)
