// The blocks of a cluster that share a row of a formula with reductions: rows that are longer than
// one block holds well. core/formula/device_row_kernels.cc writes the kernels.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/cluster_gather.cuh"
#include "opdock/formula.cuh"

namespace opdock::formula {

// A number of at most eight bytes as blocks exchange it, and back.
template <class T>
OPDOCK_DEVICE uint64_t word_of(T value) {
  union {
    uint64_t word;
    T value;
  } both;
  both.word = 0;
  both.value = value;
  return both.word;
}
template <class T>
OPDOCK_DEVICE T number_of(uint64_t word) {
  union {
    uint64_t word;
    T value;
  } both;
  both.word = word;
  return both.value;
}

// Threads: of each block; 0 if they are known only at run time. Blocks: of the cluster.
template <int Threads, int Blocks>
struct ClusterTeam {
  RowTeam<true, Threads> block;

  OPDOCK_DEVICE int rank() const { return cluster_rank() * block.size() + thread_index(); }
  // Returns the first column of this thread's vector i. Each block has adjacent vectors.
  template <class Column, int Vector, int Held>
  OPDOCK_DEVICE Column column(int i) const {
    const int before = cluster_rank() * block.size() * Held;
    return static_cast<Column>(before) * Vector + block.template column<Column, Vector, Held>(i);
  }

  // Makes the memory of `count` exchanges ready, at the same place in each block. Between this and
  // the first exchange all threads call cluster_opened().
  OPDOCK_DEVICE void open(ClusterGather<uint64_t>* gathers, int count) const {
    if (thread_index() == 0) cluster_open(gathers, count);
    cluster_opening();
  }

  // Combines a number of each thread, as RowTeam does. gather: used once.
  template <class Op, class T>
  OPDOCK_DEVICE T reduce(T value, long long* scratch, ClusterGather<uint64_t>* gather) const {
    gather->gather(word_of(block.template reduce<Op>(value, scratch)));
    value = number_of<T>(gather->from[0]);
    OPDOCK_UNROLL
    for (int i = 1; i < Blocks; ++i) value = Op::combine(value, number_of<T>(gather->from[i]));
    return value;
  }
};

// gathers: two.
template <int Threads, int Blocks, class T, int Sign>
OPDOCK_DEVICE int64_t best_column(const ClusterTeam<Threads, Blocks>& team, Best<T, Sign> best,
                                  void* scratch, ClusterGather<uint64_t>* gathers) {
  best = best_of(team.block, best, scratch);
  gathers[0].gather(word_of(best.value));
  gathers[1].gather(word_of(best.column));
  best = {number_of<T>(gathers[0].from[0]), number_of<int64_t>(gathers[1].from[0])};
  OPDOCK_UNROLL
  for (int i = 1; i < Blocks; ++i) {
    const int64_t column = number_of<int64_t>(gathers[1].from[i]);
    if (column >= 0) best.add(number_of<T>(gathers[0].from[i]), column);
  }
  return best.column;
}

}  // namespace opdock::formula
