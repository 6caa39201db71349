// A stand-in for libcublasLt over the software GPU's driver: it checks its arguments, computes in
// double on the host, and refuses what the real library refuses. Numbers are typed in from NVIDIA's
// reference, not taken from the code that is tested.
//
// FAKE_CUBLASLT has words separated by spaces: create=N, heuristic=N and matmul=N return that
// status; workspace=N is what algorithms need, if they are offered at least that much; greedy=N is
// what they need whatever they are offered.
// FAKE_CUBLASLT_RECORD: a file that gets a line for each create, heuristic and matmul.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "fake_numbers.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using namespace stand_in;

long setting(const char* name, long otherwise) {
  const char* const all = std::getenv("FAKE_CUBLASLT");
  const char* const at = all == nullptr ? nullptr : std::strstr(all, name);
  return at == nullptr ? otherwise : std::strtol(at + std::strlen(name) + 1, nullptr, 10);
}

void record(const std::string& line) {
  const char* const path = std::getenv("FAKE_CUBLASLT_RECORD");
  if (path == nullptr) return;
  FILE* const file = std::fopen(path, "a");
  std::fprintf(file, "%s\n", line.c_str());
  std::fclose(file);
}

template <class F>
F driver(const char* name) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  void* const found = library == nullptr ? nullptr : dlsym(library, name);
  expect(found != nullptr, name);
  return reinterpret_cast<F>(found);
}

struct Matrix {  // column-major
  int type;
  int64_t rows, columns, ld;
  int32_t batch = 1;
  int64_t offset = 0;

  int64_t at(int64_t i, int64_t row, int64_t column) const {
    return i * offset + column * ld + row;
  }
  size_t bytes() const {
    if (rows == 0 || columns == 0) return 0;
    return static_cast<size_t>(at(batch - 1, rows - 1, columns - 1) + 1) * bytes_of(type);
  }
};
struct Desc {
  int compute, scale;
  std::map<int, int32_t> numbers;
  std::map<int, const void*> pointers;
  int32_t number(int attribute, int32_t otherwise) const {
    const auto found = numbers.find(attribute);
    return found == numbers.end() ? otherwise : found->second;
  }
  const void* pointer(int attribute) const {
    const auto found = pointers.find(attribute);
    return found == pointers.end() ? nullptr : found->second;
  }
};
struct Preference {
  uint64_t workspace = 0;
  std::map<int, uint32_t> numbers;
};
struct Algo {
  uint64_t magic, workspace;
  uint64_t alignments[4];  // of A, B, C, D
  uint64_t unused[2];
};
struct Found {
  Algo algo;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};
struct Handle {
  uint64_t magic = 0x1234;
  void* context = nullptr;
};
constexpr uint64_t kMagic = 0x5eed;

using Copy = int (*)(uint64_t, const void*, size_t, void*);
using CopyBack = int (*)(void*, uint64_t, size_t, void*);

// Copies device memory to the host in the stream's order and waits for the copy.
void read_to(void* to, const void* from, size_t bytes, void* stream) {
  if (bytes == 0) return;
  const auto copy = driver<CopyBack>("cuMemcpyDtoHAsync_v2");
  expect(copy(to, reinterpret_cast<uint64_t>(from), bytes, stream) == 0, "an operand is not read");
}
std::vector<char> read(const void* from, size_t bytes, void* stream) {
  std::vector<char> memory(bytes);
  read_to(memory.data(), from, bytes, stream);
  return memory;
}
// Reads the matrix without the gaps between its columns.
std::vector<char> read(const void* from, const Matrix& matrix, void* stream) {
  std::vector<char> memory(matrix.bytes() + 1);
  const size_t size = bytes_of(matrix.type);
  for (int64_t i = 0; i < matrix.batch; ++i) {
    for (int64_t column = 0; column < matrix.columns; ++column) {
      const size_t at = static_cast<size_t>(matrix.at(i, 0, column)) * size;
      read_to(memory.data() + at, static_cast<const char*>(from) + at,
              static_cast<size_t>(matrix.rows) * size, stream);
    }
  }
  return memory;
}
float read_float(const void* from, void* stream) {
  if (from == nullptr) return 1.0f;
  float value;
  std::memcpy(&value, read(from, 4, stream).data(), 4);
  return value;
}

// Returns false for the arguments that real algorithms do not support.
bool suits(const Desc& desc, const Matrix& a, const Matrix& b, const Matrix& c, const Matrix& d) {
  const bool fp8 = a.type == kE4m3 || a.type == kE5m2;
  const uint32_t epilogue = static_cast<uint32_t>(desc.number(7, 1));
  if (fp8 || a.type == kI8) {
    if (desc.number(3, 0) != 1 || desc.number(4, 0) != 0) return false;
    const int64_t step = fp8 ? 16 : 4;
    for (const Matrix* x : {&a, &b, &d})
      if (x->ld % step != 0 || x->rows % step != 0) return false;
  }
  if (a.type == kE5m2 && b.type == kE5m2) return false;
  if (a.type == kI8 && (d.type != kI32 || epilogue != 1)) return false;
  if (fp8 && (d.type == kE4m3 || d.type == kE5m2) && c.type != kBf16) return false;
  if (!fp8 && (desc.pointer(17) || desc.pointer(18) || desc.pointer(20))) return false;
  return true;
}

}  // namespace

EXPORT int cublasLtCreate(Handle** out) {
  record("create");
  if (const long status = setting("create", 0)) return static_cast<int>(status);
  *out = new Handle;
  driver<int (*)(void**)>("cuCtxGetCurrent")(&(*out)->context);
  expect((*out)->context != nullptr, "a handle is made where no context is current");
  return 0;
}
EXPORT size_t cublasLtGetVersion() {
  return 130000;
}
EXPORT const char* cublasLtGetStatusName(int status) {
  return status == 15  ? "CUBLAS_STATUS_NOT_SUPPORTED"
         : status == 1 ? "CUBLAS_STATUS_NOT_INITIALIZED"
                       : "CUBLAS_STATUS_EXECUTION_FAILED";
}
EXPORT int cublasLtMatmulDescCreate(Desc** out, int compute, int scale) {
  expect(compute == 68 || compute == 72 || compute == 77, "a compute type that does not exist");
  expect(scale == (compute == 72 ? kI32 : kF32), "another scale type than the compute type's");
  *out = new Desc{compute, scale, {}, {}};
  return 0;
}
EXPORT int cublasLtMatmulDescDestroy(Desc* desc) {
  delete desc;
  return 0;
}
EXPORT int cublasLtMatmulDescSetAttribute(Desc* desc, int attribute, const void* value,
                                          size_t bytes) {
  const bool is_pointer = attribute == 8 || (attribute >= 17 && attribute <= 21);
  expect(is_pointer || attribute == 3 || attribute == 4 || attribute == 7, "an attribute");
  expect(bytes == (is_pointer ? 8 : 4), "an attribute of the wrong size");
  if (is_pointer) {
    std::memcpy(&desc->pointers[attribute], value, 8);
  } else {
    std::memcpy(&desc->numbers[attribute], value, 4);
  }
  return 0;
}
EXPORT int cublasLtMatrixLayoutCreate(Matrix** out, int type, uint64_t rows, uint64_t columns,
                                      int64_t ld) {
  expect(ld >= static_cast<int64_t>(rows), "a leading dimension below the rows");
  *out = new Matrix{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), ld};
  return 0;
}
EXPORT int cublasLtMatrixLayoutDestroy(Matrix* matrix) {
  delete matrix;
  return 0;
}
EXPORT int cublasLtMatrixLayoutSetAttribute(Matrix* matrix, int attribute, const void* value,
                                            size_t bytes) {
  expect((attribute == 5 && bytes == 4) || (attribute == 6 && bytes == 8), "a layout's attribute");
  if (attribute == 5) std::memcpy(&matrix->batch, value, 4);
  if (attribute == 6) std::memcpy(&matrix->offset, value, 8);
  return 0;
}
EXPORT int cublasLtMatmulPreferenceCreate(Preference** out) {
  *out = new Preference;
  return 0;
}
EXPORT int cublasLtMatmulPreferenceDestroy(Preference* preference) {
  delete preference;
  return 0;
}
EXPORT int cublasLtMatmulPreferenceSetAttribute(Preference* preference, int attribute,
                                                const void* value, size_t bytes) {
  expect(attribute == 1 ? bytes == 8
                        : bytes == 4 && (attribute == 3 || (attribute >= 5 && attribute <= 8)),
         "a preference's attribute");
  if (attribute == 1) std::memcpy(&preference->workspace, value, 8);
  if (attribute != 1) std::memcpy(&preference->numbers[attribute], value, 4);
  return 0;
}

EXPORT int cublasLtMatmulAlgoGetHeuristic(Handle* handle, Desc* desc, Matrix* a, Matrix* b,
                                          Matrix* c, Matrix* d, Preference* preference, int wanted,
                                          Found* found, int* count) {
  const auto mask = preference->numbers.find(3);
  record("heuristic" + std::string(mask == preference->numbers.end()
                                       ? ""
                                       : " schemes " + std::to_string(mask->second)));
  if (const long status = setting("heuristic", 0)) return static_cast<int>(status);
  expect(handle->magic == 0x1234 && wanted >= 1, "the handle");
  *count = 0;
  if (!suits(*desc, *a, *b, *c, *d)) return 15;
  *found = {};
  found->algo.magic = kMagic;
  const auto needs = static_cast<uint64_t>(setting("workspace", 0));
  found->algo.workspace = found->workspace = needs <= preference->workspace ? needs : 0;
  if (const auto greedy = static_cast<uint64_t>(setting("greedy", 0)); greedy != 0)
    found->algo.workspace = found->workspace = greedy;
  for (int i = 0; i < 4; ++i) {
    const auto alignment = preference->numbers.find(5 + i);
    found->algo.alignments[i] = alignment == preference->numbers.end() ? 256 : alignment->second;
  }
  *count = 1;
  return 0;
}

EXPORT int cublasLtMatmul(Handle* handle, Desc* desc, const void* alpha, const void* a,
                          Matrix* of_a, const void* b, Matrix* of_b, const void* beta,
                          const void* c, Matrix* of_c, void* d, Matrix* of_d, const Algo* algo,
                          void* workspace, size_t workspace_bytes, void* stream) {
  const int32_t flip_a = desc->number(3, 0), flip_b = desc->number(4, 0);
  const uint32_t epilogue = static_cast<uint32_t>(desc->number(7, 1));
  int capturing = 0;
  driver<int (*)(void*, int*)>("cuStreamIsCapturing")(stream, &capturing);
  record("matmul compute " + std::to_string(desc->compute) + " epilogue " +
         std::to_string(epilogue) + " d " + std::to_string(of_d->type) + " workspace " +
         std::to_string(workspace_bytes) + (capturing != 0 ? " captured" : ""));
  if (capturing != 0) return 0;  // computing would copy and wait for the device
  if (const long status = setting("matmul", 0)) return static_cast<int>(status);
  expect(handle->magic == 0x1234 && algo != nullptr && algo->magic == kMagic, "handle, algorithm");
  void* context = nullptr;
  driver<int (*)(void**)>("cuCtxGetCurrent")(&context);
  expect(context == handle->context, "another context than the handle's");
  expect(workspace_bytes >= algo->workspace, "less workspace than the algorithm needs");
  expect(algo->workspace == 0 || reinterpret_cast<uintptr_t>(workspace) % 256 == 0, "workspace");
  const void* const addresses[4] = {a, b, c, d};
  for (int i = 0; i < 4; ++i)
    expect(reinterpret_cast<uintptr_t>(addresses[i]) % algo->alignments[i] == 0, "an alignment");
  const int64_t m = of_d->rows, n = of_d->columns, k = flip_a ? of_a->rows : of_a->columns;
  expect((flip_a ? of_a->columns : of_a->rows) == m && (flip_b ? of_b->rows : of_b->columns) == n &&
             (flip_b ? of_b->columns : of_b->rows) == k && of_c->rows == m && of_c->columns == n,
         "sizes that do not fit each other");
  for (const Matrix* x : {of_a, of_b, of_c}) expect(x->batch == of_d->batch, "a batch");
  const bool integers = desc->compute == 72;
  double alphas[2];
  const void* const factors[2] = {alpha, beta};
  for (int i = 0; i < 2; ++i) {
    alphas[i] = integers ? *static_cast<const int32_t*>(factors[i])
                         : static_cast<double>(*static_cast<const float*>(factors[i]));
  }
  alphas[0] *= read_float(desc->pointer(17), stream);
  alphas[0] *= read_float(desc->pointer(18), stream);
  const float d_scale = read_float(desc->pointer(20), stream);
  const std::vector<char> left = read(a, *of_a, stream), right = read(b, *of_b, stream);
  std::vector<char> added;
  if (alphas[1] != 0) added = read(c, *of_c, stream);
  std::vector<char> bias;
  if ((epilogue & 4) != 0) {
    expect(desc->pointer(8) != nullptr, "no bias");
    bias = read(desc->pointer(8), static_cast<size_t>(m) * bytes_of(of_d->type), stream);
  }
  std::vector<char> column(static_cast<size_t>(m) * bytes_of(of_d->type));
  for (int64_t i = 0; i < of_d->batch; ++i) {
    for (int64_t y = 0; y < n; ++y) {
      for (int64_t x = 0; x < m; ++x) {
        double sum = 0;
        for (int64_t j = 0; j < k; ++j)
          sum += get(left.data(), of_a->type, flip_a ? of_a->at(i, j, x) : of_a->at(i, x, j)) *
                 get(right.data(), of_b->type, flip_b ? of_b->at(i, y, j) : of_b->at(i, j, y));
        sum *= alphas[0];
        if (alphas[1] != 0) sum += alphas[1] * get(added.data(), of_c->type, of_c->at(i, x, y));
        if ((epilogue & 4) != 0) sum += get(bias.data(), of_d->type, x);
        if ((epilogue & 2) != 0) sum = std::fmax(sum, 0);
        if ((epilogue & 32) != 0)
          sum = sum / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (sum + 0.044715 * sum * sum * sum)));
        put(column.data(), of_d->type, x, sum * d_scale);
      }
      const uint64_t to = reinterpret_cast<uint64_t>(d) +
                          static_cast<uint64_t>(of_d->at(i, 0, y)) * bytes_of(of_d->type);
      const int result =
          driver<Copy>("cuMemcpyHtoDAsync_v2")(to, column.data(), column.size(), stream);
      expect(result == 0, "a result cannot be written");
    }
  }
  return 0;
}
