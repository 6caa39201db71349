// SPDX-License-Identifier: Apache-2.0
#include "product.h"

#include "elements.h"

namespace linear {
namespace {

using opdock::Error;
using opdock::Rows;

enum Place : int { kOut, kX, kResidual, kPlaces };
using Layout = Rows<kPlaces>;

const opdock_gemm_table* table_of(const CallBase& call) {
  const auto* const found = call.extension<opdock_gemm_table>(OPDOCK_GEMM_1);
  if (found != nullptr) return found;
  throw Error(OPDOCK_UNSUPPORTED, "this host has no " OPDOCK_GEMM_1 "; use a newer Opdock");
}
// Throws if a host function failed; the host has already written the error's text.
void done(opdock_status status) {
  if (status != OPDOCK_OK) throw Error(status, std::string());
}

void* address(Tensor tensor) {
  return tensor.has_data() && !tensor.is_empty() ? tensor.raw() : nullptr;
}
void advance(void** data, int64_t elements, Dtype dtype) {
  if (*data != nullptr) *data = static_cast<char*>(*data) + elements * dtype.bytes();
}

// Rows as products of matrices: each matrix has `rows` rows, and a batched product has `batch`
// matrices. `others` dimensions are left; each of their steps is another product.
struct Shape {
  int64_t rows = 1, batch = 1;
  int64_t row[kPlaces] = {}, matrix[kPlaces] = {};  // strides
  int others = 0;
};

Shape shape_of(const Layout& rows, const int64_t (&length)[kPlaces]) {
  Shape shape;
  int left = rows.ndim;
  // Rows of one matrix share no element.
  bool is_matrix = left > 0;
  for (int t = 0; is_matrix && t < kPlaces; ++t)
    is_matrix = length[t] == 0 || rows.stride[t][left - 1] >= length[t];
  for (int t = 0; t < kPlaces; ++t) shape.row[t] = length[t];
  if (is_matrix) {
    --left;
    shape.rows = rows.size[left];
    for (int t = 0; t < kPlaces; ++t) shape.row[t] = rows.stride[t][left];
  }
  if (left > 0) {
    // Matrices of the output must not overlap: one lies behind the other, or their rows are
    // interleaved.
    const int64_t count = rows.size[left - 1], step = rows.stride[kOut][left - 1];
    const int64_t size = (shape.rows - 1) * shape.row[kOut] + length[kOut];
    if (step >= size || (step >= length[kOut] && shape.row[kOut] >= count * step)) {
      --left;
      shape.batch = count;
      for (int t = 0; t < kPlaces; ++t) shape.matrix[t] = rows.stride[t][left];
    }
  }
  shape.others = left;
  return shape;
}

void set(opdock_gemm_matrix* matrix, Dtype dtype, const Shape& shape, Place place) {
  matrix->dtype = dtype;
  matrix->stride = shape.row[place];
  matrix->batch_stride = shape.batch > 1 ? shape.matrix[place] : 0;
}

// Splits a Product into GEMMs. `gemm` describes each of them, except for the addresses of x, out
// and residual. These begin at `data`, and for_each() moves them on for later products.
class Products {
 public:
  Products(const Product& of, Tensor out) : dtype_(of.x.dtype()) {
    rows_ = opdock::make_rows<kPlaces>({out, of.x, of.residual});
    const int64_t n = of.weight.outputs(), k = of.weight.inputs();
    const Shape shape = shape_of(rows_, {n, k, of.residual ? n : 0});
    others_ = shape.others;
    gemm.struct_size = sizeof gemm;
    gemm.flags = OPDOCK_GEMM_DETERMINISTIC;
    gemm.alpha = 1.0f;
    gemm.m = out.is_empty() ? 0 : shape.rows;
    gemm.batch = shape.batch;
    gemm.n = n;
    gemm.k = k;
    gemm.activation = of.activation;
    set(&gemm.d, dtype_, shape, kOut);
    set(&gemm.a, dtype_, shape, kX);
    if (of.residual) {
      set(&gemm.c, dtype_, shape, kResidual);
      gemm.beta = 1.0f;
      gemm.flags |= OPDOCK_GEMM_RESIDUAL;
      data[kResidual] = address(*of.residual);
    }
    const Tensor& weight = of.weight.tensor;
    gemm.b.data = address(weight);
    gemm.b.dtype = weight.dtype();
    gemm.b.stride = weight.size(0) > 1 && !weight.is_empty() ? weight.stride(0) : weight.size(1);
    if (of.weight.transposed) gemm.b.flags = OPDOCK_GEMM_TRANSPOSED;
    if (of.bias) {
      gemm.bias = address(*of.bias);
      gemm.bias_dtype = of.bias->dtype();
    }
    data[kX] = address(of.x);
    data[kOut] = address(out);
  }

  // Calls body(gemm) for each product.
  template <class Body>
  void for_each(const Body& body) {
    int64_t count = 1;
    for (int i = 0; i < others_; ++i) count *= rows_.size[i];
    for (int64_t number = 0; number < count; ++number) {
      int64_t rest = number, offset[kPlaces] = {};
      for (int i = others_ - 1; i >= 0; --i) {
        for (int t = 0; t < kPlaces; ++t) offset[t] += rest % rows_.size[i] * rows_.stride[t][i];
        rest /= rows_.size[i];
      }
      void* at[kPlaces];
      for (int t = 0; t < kPlaces; ++t) {
        at[t] = data[t];
        advance(&at[t], offset[t], dtype_);
      }
      gemm.a.data = at[kX];
      gemm.c.data = at[kResidual];
      gemm.d.data = at[kOut];
      body(gemm);
    }
  }

  opdock_gemm gemm = {};
  void* data[kPlaces] = {};

 private:
  Dtype dtype_;
  Layout rows_;
  int others_ = 0;
};

// Returns whether the plugin's own kernels compute the product. On the CPU, no library that the
// host finds multiplies 16-bit numbers. On a GPU, one row takes less time with a kernel that reads
// each weight once than with a library's tiles of rows.
bool uses_own_kernels(const CallBase& call, const Product& of) {
  if (of.weight.scale) return true;
  if (call.is_cpu()) return of.x.dtype().bytes() == 2;
  const int64_t inputs = of.weight.inputs();
  return of.weight.transposed && inputs > 0 && of.x.numel() == inputs;
}

}  // namespace

void check_weight(const Weight& weight, const char* name, const char* scale_name, Tensor x,
                  int64_t inputs) {
  if (weight.scale) {
    check_int8(weight, name, scale_name, x);
  } else {
    if (weight.tensor.dtype() == opdock::dtype_of<int8_t>())
      throw Error(OPDOCK_INVALID_ARGUMENT,
                  opdock::detail::concat("argument '", name, "': found dtype int8 and no '",
                                         scale_name, "', wanted both; pass the scales"));
    check(weight.tensor, name).same_dtype_as(x, "x");
  }
  check_matrix(weight.tensor, name);
  check(weight.tensor, name).size(weight.transposed ? 1 : 0, inputs);
}

uint64_t Product::workspace_bytes(const CallBase& call, Tensor out) const {
  if (may_copy_weight(call, *this)) {
    const WeightCopy copy(*this, nullptr);
    return copy.bytes() + copy.product().workspace_bytes(call, out);
  }
  if (uses_own_kernels(call, *this)) return 0;
  Products products(*this, out);
  products.gemm.a.data = products.data[kX];
  // The output may turn out to be the residual, which needs more workspace.
  products.gemm.c.data = products.gemm.d.data = products.data[kResidual];
  return gemm_workspace(call, products.gemm);
}

void Product::run(Call& call, Tensor out, void* workspace, uint64_t bytes) const {
  if (out.is_empty()) return;
  if (uses_own_kernels(call, *this)) {
    if (run_tiles(call, *this, out)) return;
    const WeightCopy copy(*this, workspace);
    copy.make(call);
    return copy.product().run(call, out, static_cast<char*>(workspace) + copy.bytes(),
                              bytes - copy.bytes());
  }
  const bool in_place = residual && residual->raw() == out.raw();
  if (call.is_cpu() && !in_place && (bias || residual || activation != OPDOCK_GEMM_NONE)) {
    // finish_sums() uses vectors; the host would compute these steps one number at a time.
    Product{x, weight}.run(call, out, workspace, bytes);
    return finish_sums(call, out, bias, activation, residual);
  }
  Products(*this, out).for_each([&](const opdock_gemm& gemm) {
    run_gemm(call, gemm, workspace, bytes);
  });
}

uint64_t gemm_workspace(const CallBase& call, const opdock_gemm& gemm) {
  uint64_t bytes = 0;
  done(table_of(call)->plan(call.get(), &gemm, &bytes));
  return bytes;
}

void run_gemm(const Call& call, const opdock_gemm& gemm, void* workspace, uint64_t bytes) {
  done(table_of(call)->run(call.get(), &gemm, workspace, bytes));
}

void prepare_products(Call& call) {
  for (const Dtype dtype : {opdock::dtype_of<float>(), opdock::dtype_of<opdock::half>(),
                            opdock::dtype_of<opdock::bfloat16>()})
    for (const uint32_t activation : {OPDOCK_GEMM_NONE, OPDOCK_GEMM_RELU, OPDOCK_GEMM_GELU,
                                      OPDOCK_GEMM_GELU_TANH, OPDOCK_GEMM_SILU})
      opdock::Gemm::prepare(call, dtype, dtype, dtype, activation);
}

}  // namespace linear
