// The interpreter's kernels: each applies one operation to a block of values. The folder is
// compiled once per instruction set level, in the level's namespace, so this header includes little
// (opdock/simd.hpp says why).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "opdock/simd_level.hpp"

namespace opdock::formula {

// The kinds in which values are held while they are computed. A bool is an int32_t, 0 or -1, so
// that it is a mask of float's width; all integers are int64_t, and are wrapped to their type after
// each operation.
enum class CpuKind : uint8_t { kFloat, kDouble, kInteger, kBool };
inline constexpr int kNumKinds = 4;

// The operations of operations.def, in its order.
enum class Code : uint8_t {
#define OPDOCK_OPERATION(identifier, name, arguments, rule, derivatives) identifier,
#include "formula/operations.def"
#undef OPDOCK_OPERATION
  kNumCodes
};
inline constexpr int kNumCodes = static_cast<int>(Code::kNumCodes);

// Blocks have a multiple of this many elements: kernels work on whole vectors.
inline constexpr int64_t kStride = 16;

// An argument of a kernel: a block, or kStride copies of a value that is the same in the whole row.
struct Source {
  const void* data = nullptr;
  bool is_uniform = false;
};

// Writes n values, n a multiple of kStride. `out` may be the data of an argument.
using Kernel = void (*)(void* out, const Source* args, int64_t n);

// Converts n elements, which are contiguous and of one type, to values, or the other way round.
using Convert = void (*)(void* to, const void* from, int64_t n);

// The reduction of the part of a row that has been read.
struct Total {
  double real = 0;
  int64_t integer = 0;
  int64_t index = 0;  // of argmax and argmin: the column of the best value; else unused
};
// Adds n values, of the columns from `column` on. Any n.
using Reduce = void (*)(Total* total, const void* block, int64_t n, int64_t column);

// A step of a chain: a float operation on the value before it, which stays in vector registers, and
// on `args`.
struct Link {
  enum class Op : uint8_t {
    kLoad,  // args[0]
    kStore,
    kNegative,
    kAbs,
    kRelu,
    kSqrt,
    kReciprocal,
    kExp,
    kCall,  // `kernel`
    kAdd,
    kSub,        // value - args[0]
    kSubFrom,    // args[0] - value
    kMul,        // value * args[0]
    kDiv,        // value / args[0]
    kDivFrom,    // args[0] / value
    kMaximum,    // of the value and args[0]
    kMinimum,    // of the value and args[0]
    kFma,        // value * args[0] + args[1]
    kFmaAddend,  // args[0] * args[1] + value
    kSquare,     // value * value
  };
  Op op = Op::kLoad;
  bool is_uniform[2] = {};
  const void* data[2] = {};
  void* out = nullptr;      // of kStore
  Kernel kernel = nullptr;  // of kCall: of one argument
};
// Computes n values by a chain, n a multiple of kStride.
using Chain = void (*)(const Link* links, size_t count, int64_t n);

// A pointer is NULL where an operation does not exist. Types are indexed by Type (formula/type.h).
struct Kernels {
  Kernel operations[kNumCodes][kNumKinds];  // by the kind of the last argument
  Kernel convert[kNumKinds][kNumKinds];     // from, to
  Kernel wrap[10];                          // of integers to the type
  Kernel round[10];                         // of floats to the type
  Convert load[10], store[10];
  Reduce reduce[kNumCodes][kNumKinds];
  Chain chain;            // of floats
  bool chain_rounds_fma;  // whether Link::Op::kFma rounds once
};

OPDOCK_SIMD_DECLARE(const Kernels& kernels())

}  // namespace opdock::formula
