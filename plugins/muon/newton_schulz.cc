// Implements newton_schulz by products of opdock.gemm/1: three in each step, whose sums are added
// in the products' own epilogues. It has no device code.
// SPDX-License-Identifier: Apache-2.0
#include <opdock/gemm.h>

#include <algorithm>
#include <cmath>
#include <opdock/op.hpp>
#include <utility>

namespace muon {
namespace {

using namespace opdock::usual;
using opdock::CallBase;
using opdock::Error;

const opdock_gemm_table* table_of(const CallBase& call) {
  const auto* const found = call.extension<opdock_gemm_table>(OPDOCK_GEMM_1);
  if (found != nullptr) return found;
  throw Error(OPDOCK_UNSUPPORTED, "this host has no " OPDOCK_GEMM_1 "; use a newer Opdock");
}
// Throws if a host function failed; the host has already written the error's text.
void done(opdock_status status) {
  if (status != OPDOCK_OK) throw Error(status, std::string());
}

// Contiguous matrices of a batch, in memory that may be null while planning.
struct Matrices {
  void* data;
  int64_t rows, columns;
};

struct Coefficients {
  float a, b, c;
};

// The iteration for one argument, and what lies where in its workspace.
class Iteration {
 public:
  Iteration(Tensor x, int64_t steps, Coefficients by)
      : dtype_(x.dtype()), steps_(steps), by_(by), rows_(x.size(-2)), columns_(x.size(-1)) {
    for (int32_t i = 0; i < x.ndim() - 2; ++i) batch_ *= x.size(i);
    side_ = std::min(rows_, columns_);
  }

  // Returns the workspace that run() needs, aligned to 256 bytes.
  uint64_t workspace_bytes(const CallBase& call) const {
    uint64_t products = 0;
    Matrices x{nullptr, rows_, columns_}, gram{nullptr, side_, side_}, mixed = gram;
    for_each_product(x, x, gram, mixed, [&](const opdock_gemm& gemm) {
      uint64_t bytes = 0;
      done(table_of(call)->plan(call.get(), &gemm, &bytes));
      products = std::max(products, bytes);
    });
    return 2 * bytes_of(gram) + other_bytes() + products;
  }

  void run(Call& call, Tensor from, Tensor to) const {
    char* const workspace = static_cast<char*>(call.workspace());
    Matrices gram{workspace, side_, side_}, mixed = gram;
    mixed.data = workspace + bytes_of(gram);
    char* const other = workspace + 2 * bytes_of(gram);
    void* const rest = other + other_bytes();
    const uint64_t used = 2 * bytes_of(gram) + other_bytes();
    // Results alternate between two places, so that the last one is the op's result.
    Matrices x{from.raw(), rows_, columns_},
        next{steps_ % 2 == 1 ? to.raw() : other, rows_, columns_};
    Matrices after{steps_ % 2 == 1 ? other : to.raw(), rows_, columns_};
    for (int64_t step = 0; step < steps_; ++step) {
      for_each_product(x, next, gram, mixed, [&](const opdock_gemm& gemm) {
        done(table_of(call)->run(call.get(), &gemm, rest, call.workspace_bytes() - used));
      });
      x = next;
      std::swap(next, after);
    }
  }

 private:
  // Calls body(gemm) for the three products of a step, in order.
  template <class Body>
  void for_each_product(const Matrices& x, const Matrices& next, const Matrices& gram,
                        const Matrices& mixed, const Body& body) const {
    const bool is_wide = rows_ <= columns_;
    opdock_gemm gemm = product(x, x, gram, is_wide ? columns_ : rows_);
    (is_wide ? gemm.b : gemm.a).flags = OPDOCK_GEMM_TRANSPOSED;
    body(gemm);
    gemm = product(gram, gram, mixed, side_);
    gemm.alpha = by_.c;
    add(gram, by_.b, &gemm);
    body(gemm);
    gemm = is_wide ? product(mixed, x, next, side_) : product(x, mixed, next, side_);
    add(x, by_.a, &gemm);
    body(gemm);
  }

  opdock_gemm_matrix matrix(const Matrices& of) const {
    // A batch of one may have any stride, and 0 is what tells libraries that there is one matrix.
    const int64_t batch_stride = batch_ > 1 ? of.rows * of.columns : 0;
    return {of.data, dtype_, 0, of.columns, batch_stride, nullptr};
  }

  opdock_gemm product(const Matrices& a, const Matrices& b, const Matrices& d, int64_t k) const {
    opdock_gemm gemm = {};
    gemm.struct_size = sizeof gemm;
    gemm.flags = OPDOCK_GEMM_DETERMINISTIC;
    gemm.alpha = 1.0f;
    gemm.m = d.rows;
    gemm.n = d.columns;
    gemm.k = k;
    gemm.batch = batch_;
    gemm.a = matrix(a);
    gemm.b = matrix(b);
    gemm.d = matrix(d);
    return gemm;
  }

  // Adds beta * c to the product.
  void add(const Matrices& c, float beta, opdock_gemm* gemm) const {
    if (beta == 0) return;
    gemm->c = matrix(c);
    gemm->beta = beta;
  }

  uint64_t bytes_of(const Matrices& one) const {
    const int64_t bytes = batch_ * one.rows * one.columns * dtype_.bytes();
    return (static_cast<uint64_t>(bytes) + 255) / 256 * 256;
  }

  // The matrix between two steps needs a place beside the op's result.
  uint64_t other_bytes() const { return steps_ > 1 ? bytes_of({nullptr, rows_, columns_}) : 0; }

  Dtype dtype_;
  int64_t steps_, batch_ = 1;
  Coefficients by_;
  int64_t rows_, columns_, side_;
};

Coefficients checked(double a, double b, double c) {
  for (const auto& [name, number] : {std::pair{"a", a}, {"b", b}, {"c", c}}) {
    if (std::isfinite(static_cast<float>(number))) continue;
    throw Error(OPDOCK_INVALID_ARGUMENT,
                opdock::detail::concat("argument '", name, "': found ", number,
                                       ", wanted a finite float32"));
  }
  return {static_cast<float>(a), static_cast<float>(b), static_cast<float>(c)};
}

void plan(Plan& plan, Tensor x, int64_t steps, double a, double b, double c) {
  check(x, "x").ndim(2, OPDOCK_MAX_NDIM).contiguous();
  if (steps < 1 || steps > 99) {
    throw Error(OPDOCK_INVALID_ARGUMENT,
                opdock::detail::concat("argument 'steps': found ", steps, ", wanted 1 to 99"));
  }
  const Coefficients by = checked(a, b, c);
  plan.workspace(Iteration(x, steps, by).workspace_bytes(plan));
  plan.output(x.like());
}

void prepare(Call& call) {
  for (const Dtype dtype : {opdock::dtype_of<float>(), opdock::dtype_of<opdock::half>(),
                            opdock::dtype_of<opdock::bfloat16>()}) {
    opdock_gemm gemm = {};
    gemm.struct_size = sizeof gemm;
    gemm.alpha = 1.0f;
    gemm.a.dtype = gemm.b.dtype = gemm.d.dtype = dtype;
    done(table_of(call)->prepare(call.get(), &gemm));
  }
}

void run(Call& call, Results results, Tensor x, int64_t steps, double a, double b, double c) {
  const Tensor out = results[0];
  if (out.is_empty()) return;
  check(out, "output 0").contiguous();
  Iteration(x, steps, checked(a, b, c)).run(call, x, out);
}

}  // namespace
}  // namespace muon

OPDOCK_OP(newton_schulz, muon::plan, muon::prepare, muon::run)
