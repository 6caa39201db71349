// Quantises and decodes groups on the CPU, one element after the other.
// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "groups.h"

namespace fp_quantizer {
namespace {

using opdock::Dtype;
using opdock::dtype_of;
using opdock::Error;
using opdock::detail::bit_cast;
using opdock::detail::concat;

// Writes codes of `bits` bits one after the other.
class CodeWriter {
 public:
  CodeWriter(unsigned char* to, int bits) : to_(to), bits_(bits) {}
  void put(unsigned int code) {
    waiting_ |= code << count_;
    for (count_ += bits_; count_ >= 8; count_ -= 8) {
      *to_++ = static_cast<unsigned char>(waiting_);
      waiting_ >>= 8;
    }
  }

 private:
  unsigned char* to_;
  int bits_;
  unsigned int waiting_ = 0;
  int count_ = 0;  // bits that wait for their byte to be full
};

class CodeReader {
 public:
  CodeReader(const unsigned char* from, int bits) : from_(from), bits_(bits) {}
  unsigned int get() {
    for (; count_ < bits_; count_ += 8) waiting_ |= static_cast<unsigned int>(*from_++) << count_;
    const unsigned int code = waiting_ & ((1u << bits_) - 1);
    waiting_ >>= bits_;
    count_ -= bits_;
    return code;
  }

 private:
  const unsigned char* from_;
  int bits_;
  unsigned int waiting_ = 0;
  int count_ = 0;
};

template <class T>
void quantize_group(const T* x, unsigned char* q, int64_t group_number, int bits,
                    const QuantizeParams& p) {
  // The magnitudes of 16-bit floats are in the order of their bits, with NaN above all.
  uint16_t most = 0;
  for (int64_t i = 0; i < p.group; ++i) {
    const uint16_t magnitude = x[i].bits & 0x7fff;
    if (magnitude > most) most = magnitude;
  }
  T largest = {};
  largest.bits = most;
  const Factors factors = factors_of(p.codes, static_cast<float>(largest));
  const unsigned long long seed = p.is_stochastic ? p.random.current_seed() : 0;
  unsigned int number[kElements];
  CodeWriter codes(q, bits);
  for (int64_t i = 0; i < p.group; ++i) {
    unsigned int addend = half_of(p.codes);
    if (p.is_stochastic) {
      const int64_t place = i % kElements;
      if (place == 0) {
        const int64_t first = group_number * p.group + i;
        opdock::random_numbers(seed, p.random.offset + static_cast<unsigned long long>(first),
                               number);
      }
      addend = random_of(p.codes, number[place]);
    }
    const float scaled = static_cast<float>(x[i]) * factors.before * factors.factor;
    const unsigned int magnitude = bit_cast<uint32_t>(scaled) & 0x7fffffffu;
    const unsigned int sign = x[i].bits >> 15;
    codes.put(encode(p.codes, magnitude, addend) | sign << (bits - 1));
  }
  std::memcpy(q + p.row - kScaleBytes, &factors.scale, kScaleBytes);
}

// Rounded: the type to which the numbers are rounded.
template <class Rounded, class Out>
void dequantize_groups(int bits, const DequantizeParams& p, int64_t begin, int64_t end) {
  for (int64_t group = begin; group < end; ++group) {
    int64_t source = group;
    if (p.index != nullptr) {
      const int64_t row = group / p.of_index, chosen = p.index[row];
      if (chosen < 0 || chosen >= p.indexed)
        throw Error(OPDOCK_INVALID_ARGUMENT,
                    concat("argument 'index': found ", chosen, " as element ", row,
                           ", wanted a number from 0 to ", p.indexed - 1,
                           "; pass indexes into the first dimension of 'q'"));
      source = chosen * p.of_index + group % p.of_index;
    }
    float scale;
    std::memcpy(&scale, p.scales_at + source * p.scale_stride, kScaleBytes);
    CodeReader codes(p.codes_at + source * p.code_stride, bits);
    Out* const out = static_cast<Out*>(p.out) + group * p.group;
    for (int64_t i = 0; i < p.group; ++i) {
      const Rounded rounded(bit_cast<float>(decode(p.codes, codes.get(), bits)) * scale);
      out[i] = static_cast<Out>(rounded);
    }
  }
}

}  // namespace

void quantize_on_cpu(Dtype dtype, int bits, const QuantizeParams& params, int64_t begin,
                     int64_t end) {
  const auto all = [&](auto zero) {
    const auto* const x = static_cast<const decltype(zero)*>(params.x);
    for (int64_t group = begin; group < end; ++group)
      quantize_group(x + group * params.group, params.q + group * params.row, group, bits, params);
  };
  if (dtype == dtype_of<opdock::half>()) {
    all(opdock::half());
  } else {
    all(opdock::bfloat16());
  }
}

void dequantize_on_cpu(Dtype dtype, bool is_float, int bits, const DequantizeParams& params,
                       int64_t begin, int64_t end) {
  using opdock::bfloat16;
  using opdock::half;
  const auto decode_groups =
      dtype == dtype_of<half>()
          ? (is_float ? &dequantize_groups<half, float> : &dequantize_groups<half, half>)
          : (is_float ? &dequantize_groups<bfloat16, float>
                      : &dequantize_groups<bfloat16, bfloat16>);
  decode_groups(bits, params, begin, end);
}

}  // namespace fp_quantizer
