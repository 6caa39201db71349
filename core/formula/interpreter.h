// Runs a graph on the CPU, in blocks of values that stay in the first-level cache, without a
// compiler.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "formula/graph.h"
#include "formula/space.h"

namespace opdock::formula {

struct CpuProgram;

// Floats are computed in float32 or float64. Each float32 function is accurate to 2 units in the
// last place, sigmoid and silu to 4, each float64 function to 4; to 64 if the result is below the
// normal numbers. Less exact are float64's logaddexp, which is accurate to 4 units of its larger
// argument; gelu of negative numbers, to 32 units, of float64 to 16; and gelu_tanh, which is the
// exponential of a rounded number where x is negative, so that it is off by up to
// 3 |x| (1.6 + 0.072 x²) more units: about a thousand at x = -16. 0.5 * x * (1 + tanh(…)) and
// 0.5 * x * (1 + erf(…)), as PyTorch has them, lose all digits there. Integers wrap; dividing one
// by 0 gives 0. Numbers that an integer type cannot hold become arbitrary integers. The rows of
// sums and products are added up in float64. An empty row has the sum 0, the product 1, the mean
// NaN, the largest number -infinity (of integers, the smallest of int64) and the index 0.
class Interpreter {
 public:
  explicit Interpreter(const Graph& graph);

  // Returns how many pieces of work a call has, and how many are worth waking a thread for: what
  // opdock::Call::parallel_for() takes. A row with reductions is one piece, a long row without them
  // is several.
  int64_t pieces(const Space& space) const;
  int64_t grain(const Space& space) const;

  // Computes pieces begin … end - 1 of a call. Several threads may do so at the same time.
  //
  // space: by make_space(), from this graph. inputs, results: where the tensors' elements begin; a
  // result may be the memory of an input, at the same positions. scalars: the numbers of the
  // graph's scalars, floats in `real`, integers and bools in `integer`. partial: memory for sums
  // over rows, of partial_bytes(), aligned for double; null for a graph without sums.
  void run(const Space& space, const void* const* inputs, void* const* results,
           const Value* scalars, int64_t begin, int64_t end, void* partial = nullptr) const;

  // Sums over rows are made in two stages: run() leaves sums of chunks of rows in `partial`, and
  // add_sums() adds them up and writes the results, when all pieces of run() are done. The order of
  // additions depends only on the shape.
  int64_t partial_bytes(const Space& space) const;
  // Where compiled code leaves what run() leaves in `partial`: the rows of a chunk, how many pieces
  // a chunk has, and for each result its first sum, or null for one that is not summed.
  struct Sums {
    int64_t chunk_rows = 0, parts = 0;
    std::vector<double*> partial;
  };
  Sums sums(const Space& space, void* partial) const;
  // Returns how many pieces of work add_sums() has: 0 for a graph without sums.
  int64_t sum_pieces(const Space& space) const;
  void add_sums(const Space& space, const void* partial, void* const* results, int64_t begin,
                int64_t end) const;

 private:
  bool has_reductions_ = false, has_sums_ = false;
  // For rows of any length; for those that fit a buffer, which keeps values from one pass to the
  // next; and for short rows without reductions, several of which are computed together.
  std::shared_ptr<const CpuProgram> long_, kept_, flat_;
};

}  // namespace opdock::formula
