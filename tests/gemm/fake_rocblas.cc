// A stand-in for librocblas over the software GPU's HIP: computes in double on the host, and
// refuses what it does not implement. Numbers are typed in from AMD's reference.
//
// FAKE_ROCBLAS=N: products return this status. FAKE_ROCBLAS_RECORD: a file that gets a line for
// each handle and product.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <string>
#include <vector>

#include "fake_numbers.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using namespace stand_in;

struct RocHandle {
  void* stream = nullptr;
  const void* workspace = nullptr;
  size_t bytes = 0;
  int atomics = 1;
};

void record(const std::string& line) {
  const char* const path = std::getenv("FAKE_ROCBLAS_RECORD");
  if (path == nullptr) return;
  FILE* const file = std::fopen(path, "a");
  std::fprintf(file, "%s\n", line.c_str());
  std::fclose(file);
}

int type_of(int roc) {
  switch (roc) {
    case 150:
      return kF16;
    case 151:
      return kF32;
    case 160:
      return kI8;
    case 162:
      return kI32;
    case 168:
      return kBf16;
    default:
      broken("an element type");
  }
}

void copy(void* to, const void* from, size_t bytes, int kind, void* stream) {
  static void* const library = dlopen("libamdhip64.so.6", RTLD_NOW);
  const auto call = reinterpret_cast<int (*)(void*, const void*, size_t, int, void*)>(
      dlsym(library, "hipMemcpyAsync"));
  expect(call != nullptr && (bytes == 0 || call(to, from, bytes, kind, stream) == 0), "a copy");
}

struct Matrix {  // column-major
  int type;
  int64_t rows, columns, ld, offset;
  int64_t at(int64_t i, int64_t row, int64_t column) const {
    return i * offset + column * ld + row;
  }
  // Reads the matrix without the gaps between its columns.
  std::vector<char> read(const void* from, int64_t batch, void* stream) const {
    expect(ld >= rows, "a leading dimension below the rows");
    const size_t size = bytes_of(type), column_bytes = static_cast<size_t>(rows) * size;
    std::vector<char> memory(static_cast<size_t>(at(batch - 1, rows, columns)) * size +
                             column_bytes + 1);
    for (int64_t i = 0; i < batch; ++i) {
      for (int64_t y = 0; y < columns; ++y) {
        const size_t place = static_cast<size_t>(at(i, 0, y)) * size;
        copy(memory.data() + place, static_cast<const char*>(from) + place, column_bytes, 2,
             stream);
      }
    }
    return memory;
  }
};

}  // namespace

EXPORT int rocblas_create_handle(RocHandle** out) {
  record("create");
  *out = new RocHandle;
  return 0;
}
EXPORT int rocblas_set_stream(RocHandle* handle, void* stream) {
  handle->stream = stream;
  return 0;
}
EXPORT int rocblas_set_workspace(RocHandle* handle, void* memory, size_t bytes) {
  expect(memory != nullptr && bytes >= 32u << 20, "less workspace than rocBLAS has by itself");
  handle->workspace = memory;
  handle->bytes = bytes;
  return 0;
}
EXPORT int rocblas_set_atomics_mode(RocHandle* handle, int mode) {
  expect(mode == 0 || mode == 1, "an atomics mode");
  handle->atomics = mode;
  return 0;
}
EXPORT const char* rocblas_status_to_string(int status) {
  if (status == 77) return nullptr;  // like a status that only a newer library has
  return status == 2 ? "rocblas_status_not_implemented" : "rocblas_status_internal_error";
}
EXPORT int rocblas_gemm_strided_batched_ex(RocHandle* handle, int transpose_a, int transpose_b,
                                           int32_t m, int32_t n, int32_t k, const void* alpha,
                                           const void* a, int a_type, int32_t lda, int64_t stride_a,
                                           const void* b, int b_type, int32_t ldb, int64_t stride_b,
                                           const void* beta, const void* c, int c_type, int32_t ldc,
                                           int64_t stride_c, void* d, int d_type, int32_t ldd,
                                           int64_t stride_d, int32_t batch, int compute_type,
                                           int algo, int32_t solution, uint32_t flags) {
  record("gemm " + std::to_string(a_type) + " to " + std::to_string(d_type) + " atomics " +
         std::to_string(handle->atomics));
  if (const char* const status = std::getenv("FAKE_ROCBLAS"); status != nullptr && *status != 0)
    return std::atoi(status);
  expect((transpose_a == 111 || transpose_a == 112) && (transpose_b == 111 || transpose_b == 112),
         "an operation");
  expect(algo == 0 && solution == 0 && flags == 0 && c_type == d_type && a_type == b_type,
         "a type");
  const bool integers = a_type == 160;
  expect(compute_type == (integers ? 162 : 151), "the compute type");
  const bool flip_a = transpose_a == 112, flip_b = transpose_b == 112;
  void* const stream = handle->stream;
  const Matrix of_a{type_of(a_type), flip_a ? k : m, flip_a ? m : k, lda, stride_a};
  const Matrix of_b{type_of(b_type), flip_b ? n : k, flip_b ? k : n, ldb, stride_b};
  const Matrix of_c{type_of(c_type), m, n, ldc, stride_c},
      of_d{type_of(d_type), m, n, ldd, stride_d};
  double factors[2];
  const void* const given[2] = {alpha, beta};
  for (int i = 0; i < 2; ++i) {
    factors[i] = integers ? *static_cast<const int32_t*>(given[i])
                          : static_cast<double>(*static_cast<const float*>(given[i]));
  }
  const std::vector<char> left = of_a.read(a, batch, stream), right = of_b.read(b, batch, stream);
  std::vector<char> added;
  if (factors[1] != 0) added = of_c.read(c, batch, stream);
  std::vector<char> column(static_cast<size_t>(m) * bytes_of(of_d.type));
  for (int64_t i = 0; i < batch; ++i) {
    for (int64_t y = 0; y < n; ++y) {
      for (int64_t x = 0; x < m; ++x) {
        double sum = 0;
        for (int64_t j = 0; j < k; ++j)
          sum += get(left.data(), of_a.type, flip_a ? of_a.at(i, j, x) : of_a.at(i, x, j)) *
                 get(right.data(), of_b.type, flip_b ? of_b.at(i, y, j) : of_b.at(i, j, y));
        sum *= factors[0];
        if (factors[1] != 0) sum += factors[1] * get(added.data(), of_c.type, of_c.at(i, x, y));
        put(column.data(), of_d.type, x, sum);
      }
      copy(static_cast<char*>(d) + static_cast<size_t>(of_d.at(i, 0, y)) * bytes_of(of_d.type),
           column.data(), column.size(), 1, stream);
    }
  }
  return 0;
}
