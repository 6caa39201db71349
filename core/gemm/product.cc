// SPDX-License-Identifier: Apache-2.0
#include "gemm/product.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "opdock/types.hpp"

namespace opdock::gemm {
namespace {

constexpr int64_t kMaxSize = INT32_MAX;

struct KnownElement {
  Dtype dtype;
  Element element;
};
constexpr KnownElement kElements[] = {
    {{OPDOCK_DTYPE_FLOAT, 32}, kFloat32},   {{OPDOCK_DTYPE_FLOAT, 16}, kFloat16},
    {{OPDOCK_DTYPE_BFLOAT, 16}, kBfloat16}, {{OPDOCK_DTYPE_INT, 8}, kInt8},
    {{OPDOCK_DTYPE_INT, 32}, kInt32},       {{OPDOCK_DTYPE_FLOAT8_E4M3FN, 8}, kE4m3},
    {{OPDOCK_DTYPE_FLOAT8_E5M2, 8}, kE5m2},
};

Element element_of(opdock_dtype dtype) {
  for (const KnownElement& known : kElements)
    if (known.dtype == Dtype(dtype)) return known.element;
  return kNoElement;
}

bool is_eight(int element) {
  return element == kE4m3 || element == kE5m2;
}
bool is_float(int element) {
  return element <= kBfloat16;
}

Status refuse(opdock_status status, const char* member, const std::string& found,
              const std::string& wanted, const char* advice) {
  return {status,
          detail::concat("gemm: ", member, ": found ", found, ", wanted ", wanted, "; ", advice)};
}

Status check_size(const char* name, int64_t size) {
  if (size >= 0 && size <= kMaxSize) return {};
  return refuse(size < 0 ? OPDOCK_INVALID_ARGUMENT : OPDOCK_UNSUPPORTED, name, std::to_string(size),
                "0 to 2^31 - 1", "divide the product");
}

// rows, columns: of the matrix in the product; a transposed matrix is stored with the two swapped.
Status read_matrix(const char* name, const opdock_gemm_matrix& matrix, int64_t rows,
                   int64_t columns, int64_t batch, Operand* out) {
  const bool transposed = (matrix.flags & OPDOCK_GEMM_TRANSPOSED) != 0;
  if (transposed) std::swap(rows, columns);
  const int64_t least = rows > 1 ? columns : 0;
  if (matrix.stride < least) {
    return refuse(OPDOCK_INVALID_ARGUMENT, name, "stride " + std::to_string(matrix.stride),
                  "at least its " + std::to_string(least) + " columns", "correct it");
  }
  if (matrix.batch_stride < 0) {
    return refuse(OPDOCK_INVALID_ARGUMENT, name,
                  "batch_stride " + std::to_string(matrix.batch_stride), "0 or more", "correct it");
  }
  // The stride of a single row does not matter, but libraries refuse one that is too small.
  const int64_t stride = std::max<int64_t>({matrix.stride, columns, 1});
  *out = {matrix.data,
          matrix.scale,
          transposed ? 1 : stride,
          transposed ? stride : 1,
          batch > 1 ? matrix.batch_stride : 0,
          element_of(matrix.dtype),
          (matrix.flags & OPDOCK_GEMM_SCALES) != 0,
          transposed};
  return {};
}

Status check_dtypes(const opdock_gemm& what, const Product& p) {
  const int a = p.a.element, b = p.b.element, d = p.d.element;
  const auto name = [](const opdock_gemm_matrix& matrix) { return Dtype(matrix.dtype).name(); };
  const bool same = is_float(a) ? a == b : a == kInt8 ? b == kInt8 : is_eight(a) && is_eight(b);
  if (!same) {
    return refuse(OPDOCK_UNSUPPORTED, "a, b", name(what.a) + ", " + name(what.b),
                  "float32, float16, bfloat16 or int8 of both, or float8_e4m3fn and float8_e5m2",
                  "convert them");
  }
  bool fits = d == kFloat32;
  if (a == kFloat16 || a == kBfloat16) fits |= d == a;
  if (a == kInt8) fits |= is_float(d) || d == kInt32;
  if (is_eight(a)) fits |= is_float(d) || is_eight(d);
  if (!fits) {
    return refuse(OPDOCK_UNSUPPORTED, "d", name(what.d) + " of " + name(what.a),
                  "a dtype of opdock/gemm.h's table", "ask for another");
  }
  const int c = p.finish.c.element;
  if (has_c(p) && !(is_eight(d) ? is_float(c) : c == d)) {
    return refuse(OPDOCK_UNSUPPORTED, "c", name(what.c) + " with d of " + name(what.d),
                  is_eight(d) ? "float32, float16 or bfloat16" : "the same", "convert it");
  }
  if (p.finish.bias_element != kNoElement && !is_float(p.finish.bias_element)) {
    return refuse(OPDOCK_UNSUPPORTED, "bias_dtype", Dtype(what.bias_dtype).name(),
                  "float32, float16 or bfloat16", "convert it");
  }
  return {};
}

}  // namespace

Status check_product(const opdock_gemm& what, Product* out) {
  Product p{};
  for (const auto& [name, size] : {std::pair{"m", what.m}, std::pair{"n", what.n},
                                   std::pair{"k", what.k}, std::pair{"batch", what.batch}}) {
    if (Status bad = check_size(name, size); !bad.ok()) return bad;
  }
  p.m = what.m;
  p.n = what.n;
  p.k = what.k;
  p.batch = what.batch;
  if (what.activation > OPDOCK_GEMM_SILU) {
    return refuse(OPDOCK_UNSUPPORTED, "activation", std::to_string(what.activation),
                  "OPDOCK_GEMM_NONE to OPDOCK_GEMM_SILU", "use a newer Opdock, or another one");
  }
  p.finish.alpha = what.alpha;
  p.finish.beta = what.beta;
  p.finish.activation = static_cast<int>(what.activation);
  p.finish.residual = (what.flags & OPDOCK_GEMM_RESIDUAL) != 0 && p.finish.activation != kNone;
  p.finish.bias = what.bias;
  p.finish.bias_element = kNoElement;
  if (what.bias_dtype.bits != 0) {
    p.finish.bias_element = element_of(what.bias_dtype);
    // An unknown dtype: check_dtypes() refuses kInt8.
    if (p.finish.bias_element == kNoElement) p.finish.bias_element = kInt8;
  }
  Status bad = read_matrix("a", what.a, p.m, p.k, p.batch, &p.a);
  if (bad.ok()) bad = read_matrix("b", what.b, p.k, p.n, p.batch, &p.b);
  if (bad.ok() && has_c(p)) bad = read_matrix("c", what.c, p.m, p.n, p.batch, &p.finish.c);
  if (bad.ok()) bad = read_matrix("d", what.d, p.m, p.n, p.batch, &p.d);
  if (!bad.ok()) return bad;
  if (((what.c.flags & (has_c(p) ? ~0u : 0u)) | what.d.flags) != 0) {
    return refuse(OPDOCK_INVALID_ARGUMENT, "c, d", "flags", "none", "use flags for a and b alone");
  }
  if (bad = check_dtypes(what, p); !bad.ok()) return bad;
  if (p.d.element == kInt32 &&
      (p.finish.alpha != 1.0f || has_c(p) || !is_plain(p) || p.a.scale != nullptr ||
       p.b.scale != nullptr || p.d.scale != nullptr)) {
    return refuse(OPDOCK_UNSUPPORTED, "d",
                  "int32 with a factor, C, a bias, an activation or scales",
                  "alpha 1 and nothing else", "ask for a float dtype");
  }
  // The rows that results are written to must not overlap.
  if (p.batch > 1 && !is_empty(p) && p.d.batch_stride < (p.m - 1) * p.d.row_stride + p.n &&
      !(p.d.batch_stride >= p.n && p.d.row_stride >= p.batch * p.d.batch_stride)) {
    return refuse(OPDOCK_INVALID_ARGUMENT, "d",
                  "batch_stride " + std::to_string(p.d.batch_stride) + " and stride " +
                      std::to_string(p.d.row_stride),
                  "matrices that share no element", "correct them");
  }
  *out = p;
  return {};
}

const opdock_gemm* read_gemm(const opdock_gemm* what, opdock_gemm* room, Status* problem) {
  if (what == nullptr || !OPDOCK_HAS(what, opdock_gemm, activation)) {
    *problem = refuse(OPDOCK_INTERNAL, "struct_size",
                      what == nullptr ? "no struct" : std::to_string(what->struct_size),
                      "at least " + std::to_string(sizeof *room), "set it to sizeof(opdock_gemm)");
    return nullptr;
  }
  if (what->struct_size == sizeof *room) return what;
  std::memcpy(room, what, sizeof *room);
  room->struct_size = sizeof *room;
  return room;
}

const char* missing_address(const opdock_gemm& what) {
  const bool any = what.m != 0 && what.n != 0 && what.batch != 0;
  if (!any) return nullptr;
  if (what.k != 0 && what.a.data == nullptr) return "a.data";
  if (what.k != 0 && what.b.data == nullptr) return "b.data";
  if (what.beta != 0.0f && what.c.data == nullptr) return "c.data";
  if (what.bias_dtype.bits != 0 && what.bias == nullptr) return "bias";
  return what.d.data == nullptr ? "d.data" : nullptr;
}

}  // namespace opdock::gemm
