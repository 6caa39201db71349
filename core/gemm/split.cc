// SPDX-License-Identifier: Apache-2.0
#include "gemm/split.h"

namespace opdock::gemm {
namespace {

bool has_eight_bits(const Operand& x) {
  return x.element == kE4m3 || x.element == kE5m2;
}
bool has_vector(const Operand& x) {
  return x.scale != nullptr && x.scales;
}

// Libraries accept different biases for products of eight-bit floats.
bool takes_bias(const Product& p) {
  return p.finish.bias_element == p.d.element && !(has_eight_bits(p.a) && p.d.element == kFloat32);
}

// Returns whether the library can compute the whole product, including everything after the sums.
bool is_whole(const Product& p, const LibraryFeatures& features) {
  const Finish& how = p.finish;
  const bool activates = how.activation != kNone, has_bias = how.bias_element != kNoElement;
  if (how.residual || has_vector(p.a) || has_vector(p.b)) return false;
  if (activates || has_bias) {
    if (!features.epilogues) return false;
    // The library's GELU is approximate, which is accurate enough only for 16 bits.
    if (activates && (how.activation != kGeluTanh || p.d.element == kFloat32)) return false;
    if (has_bias && !takes_bias(p)) return false;
  }
  if (has_eight_bits(p.d)) return !activates && !has_bias && !has_c(p);
  return p.d.scale == nullptr;
}

void drop_finish(Product* p) {
  p->finish = {};
  p->finish.alpha = 1.0f;
  p->finish.bias_element = kNoElement;
}

}  // namespace

void split_product(const Product& p, const LibraryFeatures& features, Split* out) {
  out->by_library = p.k > 0;
  out->in_workspace = out->finishes = false;
  out->library = p;
  const bool fp8 = has_eight_bits(p.a);
  if (!fp8 && !is_integer(p) && (p.a.scale != nullptr || p.b.scale != nullptr))
    out->by_library = false;  // libraries scale only quantised products
  if (fp8 && !features.fp8) out->by_library = false;
  if (!out->by_library || p.d.element == kInt32) return;
  if (!is_integer(p) && is_whole(p, features)) return;

  out->finishes = true;
  out->rest = p;
  Product& library = out->library;
  drop_finish(&library);
  // The library's sums go to the workspace if D cannot hold them (sums of integers, results of
  // eight bits), if scales per row or column follow, or if they would overwrite a residual C that
  // is D itself.
  out->in_workspace = is_integer(p) || has_eight_bits(p.d) || has_vector(p.a) || has_vector(p.b) ||
                      (p.finish.residual && is_in_place(p));
  if (out->in_workspace) {
    library.a.scale = library.b.scale = nullptr;
    library.d = {nullptr, nullptr, p.n, 1, p.m * p.n, is_integer(p) ? kInt32 : kFloat32, 0, 0};
    out->sums = library.d;
    return;
  }
  library.finish.alpha = p.finish.alpha;
  library.d.scale = nullptr;
  out->rest.finish.alpha = 1.0f;
  out->rest.a.scale = out->rest.b.scale = nullptr;
  if (features.epilogues && takes_bias(p)) {
    library.finish.bias = p.finish.bias;
    library.finish.bias_element = p.finish.bias_element;
    out->rest.finish.bias_element = kNoElement;
  }
  if (has_c(p) && !p.finish.residual) {
    library.finish.c = p.finish.c;
    library.finish.beta = p.finish.beta;
    out->rest.finish.c = {};
    out->rest.finish.beta = 0.0f;
  }
  out->sums = p.d;
}

uint64_t bytes_of_sums(const Split& split) {
  if (!split.in_workspace) return 0;
  const Product& p = split.library;
  const uint64_t count =
      static_cast<uint64_t>(p.m) * static_cast<uint64_t>(p.n) * static_cast<uint64_t>(p.batch);
  return (count * 4 + 255) / 256 * 256;
}

}  // namespace opdock::gemm
