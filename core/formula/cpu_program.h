// A graph as a list of instructions over blocks of values, which cpu_block_runner.cc runs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "formula/graph.h"
#include "formula/kernels/kernels.h"

namespace opdock::formula {

// A number that a program computes: like a Node, but made of kernels. Arguments come before their
// users.
struct Number {
  enum class What : uint8_t {
    kInput,
    kScalar,
    kConstant,
    kRow,
    kColumn,
    kColumns,
    kCompute,
    kReduce
  };
  What what = What::kCompute;
  CpuKind kind = CpuKind::kFloat;
  uint8_t extent = kOnce;
  Code code = Code::kNumCodes;  // of an operation that may be a link of a chain, or a reduction
  std::array<int32_t, 3> args = {-1, -1, -1};
  uint32_t index = 0;          // kInput, kScalar
  Type type = Type::kFloat32;  // kInput, kScalar
  Value value;                 // kConstant
  Kernel kernel = nullptr;
  Reduce reduce = nullptr;
  // After how many passes over the row the number is known; a pass is a reduction of the row.
  int stage = 0;
};

struct Numbers {
  std::vector<Number> all;
  std::vector<int32_t> results;
  std::vector<Type> result_types;
  std::vector<Output> outputs;    // of the results
  std::vector<bool> has_columns;  // Graph::has_columns() of the results
  bool has_reductions = false;
};

// Translates the graph's nodes to kernels.
Numbers lower(const Graph& graph, const Kernels& kernels);

// A link of a chain, with numbers instead of memory.
struct LinkPlan {
  Link::Op op = Link::Op::kLoad;
  int32_t args[2] = {-1, -1};
  int32_t out = -1;
  Kernel kernel = nullptr;
};

struct Instruction {
  enum class What : uint8_t { kInput, kRow, kColumn, kCompute, kChain, kReduce };
  What what = What::kCompute;
  int32_t out = -1;  // the number; of kReduce, the reduction
  std::array<int32_t, 3> args = {-1, -1, -1};
  Kernel kernel = nullptr;
  Reduce reduce = nullptr;
  std::vector<LinkPlan> links;
  // Where the links have numbers whose place differs from block to block; arg 2 is what is stored.
  struct Place {
    uint32_t link, arg;
    int32_t number;
  };
  std::vector<Place> places;
  size_t first_link = 0;  // among those of the program
  // The result to whose memory `out` may be written at once, or -1.
  int32_t direct = -1;
};

// One pass over the row.
struct Pass {
  std::vector<int32_t> before;  // numbers that are the same in the row, computed before the pass
  std::vector<Instruction> block;
  std::vector<int32_t> reductions;
  // Where numbers are: registers of 4 and of 8 bytes an element. {number, register}.
  std::vector<std::pair<int32_t, int32_t>> small, large;
  std::vector<int32_t> kept;  // numbers that this pass computes or finds in the row's buffer
};

struct CpuProgram {
  Numbers numbers;
  std::vector<bool> is_uniform;  // the same in the whole row: kept as kStride copies
  std::vector<int32_t> once;     // numbers that are the same in the whole call
  std::vector<Pass> passes;
  std::vector<int32_t> after;  // numbers that are the same in the row, after the last pass
  std::vector<int32_t> kept;   // numbers in the row's buffer
  std::vector<size_t> stores, row_stores;  // results: by column, in the last pass; one a row
  size_t num_small = 0, num_large = 0;     // registers
  size_t num_links = 0;
  bool is_flat = false;
};

enum class Layout : uint8_t {
  kLong,  // each pass computes what it needs
  kKept,  // a pass keeps what later passes need in a buffer of the row's length
  kFlat,  // blocks have several rows: only what is the same in the whole call is uniform
};
CpuProgram compile(const Numbers& numbers, const Kernels& kernels, Layout layout);

inline int size_of(CpuKind kind) {
  return kind == CpuKind::kDouble || kind == CpuKind::kInteger ? 8 : 4;
}

}  // namespace opdock::formula
