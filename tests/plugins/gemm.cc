// SPDX-License-Identifier: Apache-2.0
#include "gemm.h"

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "harness.h"

namespace opdock_test {
namespace {

constexpr uint64_t kWorkspace = 768;

opdock_status refuse(const opdock_call* call, const std::string& text) {
  return call->host->set_error(call, OPDOCK_INVALID_ARGUMENT, ("gemm: " + text).c_str());
}

bool type_of(opdock_dtype dtype, Type* out) {
  for (const Type type : {Type::kFloat32, Type::kFloat16, Type::kBFloat16}) {
    const opdock_dtype known = dtype_of(type);
    if (known.code != dtype.code || known.bits != dtype.bits) continue;
    *out = type;
    return true;
  }
  return false;
}

// Checks one matrix. `rows` and `columns` are logical; a transposed matrix is stored with both
// swapped.
std::string problem_of(const char* name, const opdock_gemm_matrix& matrix, int64_t rows,
                       int64_t columns) {
  if (matrix.flags & OPDOCK_GEMM_TRANSPOSED) std::swap(rows, columns);
  Type type;
  if (!type_of(matrix.dtype, &type)) return std::string(name) + ": not a dtype of the stand-in";
  if (rows > 1 && matrix.stride < columns) return std::string(name) + ": rows overlap";
  if (matrix.batch_stride < 0) return std::string(name) + ": matrices lie backwards";
  if (matrix.scale != nullptr) return std::string(name) + ": the stand-in takes no scales";
  return "";
}

opdock_status check(const opdock_call* call, const opdock_gemm* what) {
  if (what->struct_size != sizeof *what) return refuse(call, "struct_size");
  if (what->m < 0 || what->n < 0 || what->k < 0 || what->batch < 0) return refuse(call, "sizes");
  std::string problem = problem_of("a", what->a, what->m, what->k);
  if (problem.empty()) problem = problem_of("b", what->b, what->k, what->n);
  if (problem.empty()) problem = problem_of("d", what->d, what->m, what->n);
  if (problem.empty() && what->beta != 0) problem = problem_of("c", what->c, what->m, what->n);
  if (what->activation > OPDOCK_GEMM_SILU) problem = "activation";
  return problem.empty() ? OPDOCK_OK : refuse(call, problem);
}

opdock_status plan(const opdock_call* call, const opdock_gemm* what, uint64_t* bytes) {
  *bytes = kWorkspace;
  return check(call, what);
}

opdock_status prepare(const opdock_call*, const opdock_gemm*) {
  return OPDOCK_OK;
}

// A matrix of the batch, whose elements are read and written as double.
struct Matrix {
  const opdock_gemm_matrix& of;
  int64_t number;  // index in the batch

  unsigned char* at(int64_t row, int64_t column) const {
    if (of.flags & OPDOCK_GEMM_TRANSPOSED) std::swap(row, column);
    return static_cast<unsigned char*>(of.data) +
           (number * of.batch_stride + row * of.stride + column) * (of.dtype.bits / 8);
  }
  double get(int64_t row, int64_t column) const {
    Type type = {};
    type_of(of.dtype, &type);
    return read_number(type, at(row, column));
  }
  void set(int64_t row, int64_t column, double value) const {
    Type type = {};
    type_of(of.dtype, &type);
    write_number(type, value, at(row, column));
  }
};

double activate(uint32_t activation, double x) {
  switch (activation) {
    case OPDOCK_GEMM_RELU:
      return x > 0 ? x : 0;
    case OPDOCK_GEMM_GELU:
      return x * std::erfc(-x / std::sqrt(2.0)) / 2;
    case OPDOCK_GEMM_GELU_TANH:
      return x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))) / 2;
    case OPDOCK_GEMM_SILU:
      return x / (1 + std::exp(-x));
    default:
      return x;
  }
}

void multiply(const opdock_gemm& what, int64_t number) {
  const Matrix a = {what.a, number}, b = {what.b, number}, c = {what.c, number},
               d = {what.d, number};
  const bool late = (what.flags & OPDOCK_GEMM_RESIDUAL) != 0;
  for (int64_t i = 0; i < what.m; ++i)
    for (int64_t j = 0; j < what.n; ++j) {
      double sum = 0, added = 0;
      for (int64_t k = 0; k < what.k; ++k) sum += a.get(i, k) * b.get(k, j);
      sum *= static_cast<double>(what.alpha);
      if (what.bias_dtype.bits != 0) {
        const opdock_gemm_matrix bias = {
            const_cast<void*>(what.bias), what.bias_dtype, 0, 0, 0, nullptr};
        sum += Matrix{bias, 0}.get(0, j);
      }
      if (what.beta != 0) added = static_cast<double>(what.beta) * c.get(i, j);
      d.set(i, j,
            late ? activate(what.activation, sum) + added : activate(what.activation, sum + added));
    }
}

opdock_status run(const opdock_call* call, const opdock_gemm* what, void* workspace,
                  uint64_t workspace_bytes) {
  const opdock_status checked = check(call, what);
  if (checked != OPDOCK_OK) return checked;
  if (workspace == nullptr || workspace_bytes < kWorkspace) return refuse(call, "workspace");
  if (reinterpret_cast<uintptr_t>(workspace) % 256 != 0) return refuse(call, "its alignment");
  if (call->host_data != nullptr) {
    static_cast<std::vector<Launch>*>(call->host_data)
        ->push_back({OPDOCK_GEMM_1, opdock_launch{}, call->stream});
    return OPDOCK_OK;
  }
  for (int64_t i = 0; i < what->batch; ++i) multiply(*what, i);
  return OPDOCK_OK;
}

}  // namespace

const opdock_gemm_table* plain_gemm() {
  static const opdock_gemm_table table = {sizeof table, 0, plan, prepare, run};
  return &table;
}

}  // namespace opdock_test
