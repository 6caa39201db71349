// All gradients of the norms in one pass over grad and x. Blocks, or clusters of blocks, take rows
// in turn, and keep the sums over their rows in registers, because each thread has the same columns
// of all of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "moments.cuh"
#include "opdock/cluster_gather.cuh"

namespace layernorm::backward {

// The warps of a team share a row, and a block handles as many rows at once as it has teams.
// Meanwhile copies of the following rows are in flight: each thread copies what it will read
// itself, so that it waits for no other thread. A thread has Vectors vectors of a row, and copies
// of Stages rows. In a cluster each block is one team and has a slice of the cluster's row; its
// warps send their sums to all other warps.
template <class T, int Threads, int Vectors, int Stages, bool Clusters>
class RowLoop {
  static constexpr int kSize = vector_size<T>, kWarp = warp_width();
  static constexpr int kWarps = Threads / kWarp;  // upper bound per block
  // Number of floats that each warp has in shared memory, before the copies, for its part of a row,
  // in two buffers used alternately: the sums of deviations from a number near their mean, of their
  // squares, of g = grad * weight and of g times the deviations; and that number. In a cluster the
  // relay's memory takes this place.
  static constexpr int kSums = 8;
  static constexpr int kWeights =
      sizeof(float) / sizeof(T);  // size of a row's weights, relative to that of the row
  static_assert(2 * kWarps * kSums * sizeof(float) <= kLoopScratch, "as the host part takes it");
  static constexpr int kWarpElements = kWarp * Vectors * kSize;

 public:
  OPDOCK_DEVICE explicit RowLoop(const LoopParams& p)
      : p_(p),
        lane_(lane_index()),
        warp_(thread_index() / kWarp),
        relay_(dynamic_shared<Bytes16>()) {
    const int teams = block_threads() / (p.team_warps * kWarp), team = warp_ / p.team_warps;
    before_ = team * p.team_warps;
    ring_ =
        scratch() + warp_ * ((p.grad_sum ? 3 : 2) * Stages + kWeights) * Vectors * kWarp + lane_;
    const int part = warp_ - before_, first = part * Vectors * kWarp + lane_;
    left_ = length() / kSize - first;
    const int elements = elements_of(length(), part), other = lane_ % kWarps;
    share_ = share_of(elements < kWarp * kSize ? elements : kWarp * kSize);
    if (other < p.team_warps)
      elements_ = static_cast<float>(elements_of(Clusters ? p.slice : length(), other));
    int64_t begin = block_index() * teams, step = grid_blocks() * teams;
    if constexpr (Clusters) {
      if (thread_index() == 0) relay_.open();
      cluster_opening();
      begin = number();
      step = static_cast<uint32_t>(grid_blocks()) / static_cast<uint32_t>(cluster_blocks());
      warp_share_ = share_of(elements);
      if (other < p.team_warps)
        last_elements_ = static_cast<float>(elements_of(length_of(cluster_blocks() - 1), other));
    }
    if (!has(Vectors - 1)) clear_absent();
    rows_ = rows_from(begin, step);
    mine_ = rows_from(begin + team, step);
    step_ = static_cast<uint32_t>(step * sizeof(T));
    long long offset[4];
    p.rows.template locate<true>(begin + team, offset);
    const int column = before() + first * kSize;
    x_ = static_cast<const T*>(p.x) + offset[0] + column;
    grad_ = static_cast<const T*>(p.grad) + offset[1] + column;
    out_ = static_cast<T*>(p.out) + offset[2] + column;
    more_ = static_cast<const T*>(p.grad_sum) + offset[3] + column;
  }

  OPDOCK_DEVICE void run() {
    OPDOCK_UNROLL
    for (int i = 0; i < Stages; ++i) {
      fetch(i, i);
      fetch_more(i, i);
    }
    keep_weight();
    if constexpr (Clusters) cluster_opened();
    int stage = 0;
    for (int i = 0; i < rows_; ++i) {
      copy_async_wait<Stages - 1>();
      const bool here = i < mine_;  // the same for all threads of the team
      Part part;
      if (here) part = add_up(stage, i & 1);
      // x and grad are in registers now: the next copies may take their slots while the team
      // synchronises.
      fetch(i + Stages, stage);
      if constexpr (Clusters) {
        write(stage, gather_cluster(part.shift), part);
      } else {
        sync_team();
        if (here) write(stage, gather(i & 1, part.shift), part);
      }
      fetch_more(i + Stages, stage);
      stage = stage == Stages - 1 ? 0 : stage + 1;
    }
    copy_async_wait<0>();
    finish();
  }

 private:
  // A thread's part of a row: deviations from a number near its warp's mean, and gradients.
  struct Part {
    float shift;
    float deviation[Vectors][kSize], grad[Vectors][kSize], g[Vectors][kSize];
  };
  // y is deviation * factor + rest; the gradient of x is g * factor + deviation * slope + constant.
  struct Slopes {
    float factor, rest, slope, constant;
  };

  OPDOCK_DEVICE bool has(int k) const { return k * kWarp < left_; }
  // length_of() returns how many elements of a row a block of the cluster has, length() how many
  // this block has, and before() where its slice begins.
  OPDOCK_DEVICE int length_of(int rank) const {
    const int left = static_cast<int>(p_.length) - rank * p_.slice;
    return left < p_.slice ? left : p_.slice;
  }
  OPDOCK_DEVICE int length() const {
    return Clusters ? length_of(cluster_rank()) : static_cast<int>(p_.length);
  }
  OPDOCK_DEVICE int before() const { return Clusters ? cluster_rank() * p_.slice : 0; }
  // Returns the number of the block, or of its cluster.
  OPDOCK_DEVICE int64_t number() const { return Clusters ? cluster_number() : block_index(); }
  // Returns how many of so many elements a warp has; in a cluster's last block it may be none.
  static OPDOCK_DEVICE int elements_of(int length, int warp) {
    const int left = length - warp * kWarpElements;
    return left < 0 ? 0 : left < kWarpElements ? left : kWarpElements;
  }
  static OPDOCK_DEVICE float share_of(int elements) {
    return elements == 0 ? 0.0f : 1.0f / static_cast<float>(elements);
  }
  // Returns the size of the shared memory before the copies, in vectors.
  static OPDOCK_DEVICE int scratch() {
    return (Clusters ? cluster_relay_bytes(cluster_blocks(), kWarps) : kLoopScratch) / 16;
  }
  OPDOCK_DEVICE int rows_from(int64_t begin, int64_t step) const {
    return begin >= p_.rows.count ? 0 : static_cast<int>((p_.rows.count - 1 - begin) / step) + 1;
  }
  // Returns the address of the sums of the team's warp `warp`.
  OPDOCK_DEVICE float* sums_of(int buffer, int warp) const {
    return dynamic_shared<float>() + (buffer * kWarps + before_ + warp) * kSums;
  }
  // Returns the slot of the thread's first vector of x. The next slot has that of grad; those of
  // grad_sum lie behind all stages.
  OPDOCK_DEVICE Bytes16* slot(int stage) const {
    return weights() + (stage * 2 + kWeights) * Vectors * kWarp;
  }
  OPDOCK_DEVICE Bytes16* slot_of_more(int stage) const {
    return slot(Stages) + stage * Vectors * kWarp;
  }
  // Returns the address of the thread's weights, as floats; they lie before all slots.
  OPDOCK_DEVICE Bytes16* weights() const { return dynamic_shared<Bytes16>() + ring_; }
  // Advances a pointer to the team's next row.
  OPDOCK_DEVICE void advance(int tensor, const T** at) const {
    *at = reinterpret_cast<const T*>(reinterpret_cast<const char*>(*at) +
                                     static_cast<uint64_t>(p_.rows.stride[tensor][0]) * step_);
  }
  OPDOCK_DEVICE void advance(int tensor, T** at) const {
    *at = reinterpret_cast<T*>(reinterpret_cast<char*>(*at) +
                               static_cast<uint64_t>(p_.rows.stride[tensor][0]) * step_);
  }

  OPDOCK_DEVICE void keep_weight() const {
    const int column = before() + (length() / kSize - left_) * kSize;
    OPDOCK_UNROLL
    for (int k = 0; k < Vectors; ++k) {
      Packed<T> piece;
      fill_piece(from_float<T>(1.0f), &piece);
      if (p_.weight && has(k))
        load_piece(static_cast<const T*>(p_.weight) + column + k * kWarp * kSize, &piece);
      float weight[kSize];
      to_floats(piece, weight);
      OPDOCK_UNROLL
      for (int j = 0; j < kSize; j += 4) {
        Packed<float> four;
        OPDOCK_UNROLL
        for (int i = 0; i < 4; ++i) four.set(i, weight[j + i]);
        store16(weights() + (k * kSize + j) / 4 * kWarp, four.bytes);
      }
    }
  }

  // Clears the slots of vectors beyond the row's end. They are never copied, so they stay 0.
  OPDOCK_DEVICE void clear_absent() const {
    OPDOCK_NO_UNROLL
    for (int stage = 0; stage < Stages; ++stage) {
      OPDOCK_UNROLL
      for (int k = 0; k < Vectors; ++k) {
        if (has(k)) continue;
        store16(slot(stage) + 2 * k * kWarp, Bytes16{});
        store16(slot(stage) + (2 * k + 1) * kWarp, Bytes16{});
        if (p_.grad_sum) store16(slot_of_more(stage) + k * kWarp, Bytes16{});
      }
    }
  }

  // Begins copying x and grad of the team's row i. Called for one row after the other.
  OPDOCK_DEVICE void fetch(int i, int stage) {
    if (i >= mine_) return;
    Bytes16* const to = slot(stage);
    OPDOCK_UNROLL
    for (int k = 0; k < Vectors; ++k) {
      if (!has(k)) continue;
      copy_async16(to + 2 * k * kWarp, x_ + k * kWarp * kSize);
      copy_async16(to + (2 * k + 1) * kWarp, grad_ + k * kWarp * kSize);
    }
    advance(0, &x_);
    advance(1, &grad_);
  }
  // Begins copying grad_sum of row i, and ends the row's group of copies.
  OPDOCK_DEVICE void fetch_more(int i, int stage) {
    if (p_.grad_sum && i < mine_) {
      OPDOCK_UNROLL
      for (int k = 0; k < Vectors; ++k)
        if (has(k)) copy_async16(slot_of_more(stage) + k * kWarp, more_ + k * kWarp * kSize);
      advance(3, &more_);
    }
    copy_async_commit();
  }

  // Returns a number near the mean of the warp's elements; for rms norms, 0. For 32-bit elements it
  // is the mean of at least a quarter of them, about which the sum of squares is less than four
  // times the sum about the mean.
  OPDOCK_DEVICE float approximate_mean(const float (&first)[kSize]) const {
    if constexpr (sizeof(T) != sizeof(float)) {
      const float any = shuffle(first[0], 0);
      return p_.centred ? any : 0.0f;
    }
    if (!p_.centred) return 0.0f;
    float sum = 0.0f;
    OPDOCK_UNROLL
    for (float each : first) sum += each;
    return warp_reduce<Sum>(sum) * share_;
  }

  OPDOCK_DEVICE Part add_up(int stage, int buffer) const {
    Packed<T> x[Vectors], grad[Vectors];
    OPDOCK_UNROLL
    for (int k = 0; k < Vectors; ++k) {
      x[k] = {load16(slot(stage) + 2 * k * kWarp)};
      grad[k] = {load16(slot(stage) + (2 * k + 1) * kWarp)};
    }
    Part part;
    OPDOCK_UNROLL
    for (int k = 0; k < Vectors; ++k) {
      to_floats(x[k], part.deviation[k]);
      to_floats(grad[k], part.grad[k]);
    }
    part.shift = approximate_mean(part.deviation[0]);
    OPDOCK_UNROLL
    for (auto& vector : part.deviation) {
      OPDOCK_UNROLL
      for (float& each : vector) each -= part.shift;
    }
    // Most threads have all their vectors: one branch for all of them spares a choice for each.
    if (!has(Vectors - 1)) {
      OPDOCK_UNROLL
      for (int k = 0; k < Vectors; ++k) {
        OPDOCK_UNROLL
        for (float& each : part.deviation[k])
          if (!has(k)) each = 0.0f;
      }
    }
    float sums[4] = {};
    OPDOCK_UNROLL
    for (int k = 0; k < Vectors; ++k) {
      Packed<float> weight;
      OPDOCK_UNROLL
      for (int j = 0; j < kSize; ++j) {
        if (j % 4 == 0) weight = {load16(weights() + (k * kSize + j) / 4 * kWarp)};
        const float deviation = part.deviation[k][j], g = part.grad[k][j] * weight.get(j % 4);
        part.g[k][j] = g;
        sums[0] += deviation;
        sums[1] = fma(deviation, deviation, sums[1]);
        sums[2] += g;
        sums[3] = fma(g, deviation, sums[3]);
      }
    }
    const float sum = warp_reduce4(sums, lane_);
    if constexpr (Clusters)
      send_to_cluster({shuffle(sum, 0), shuffle(sum, 1), shuffle(sum, 2), shuffle(sum, 3)},
                      part.shift);
    else if (lane_ < 5)
      sums_of(buffer, warp_ - before_)[lane_] = lane_ < 4 ? sum : part.shift;
    return part;
  }

  // Sends the cluster's warps the mean (0 for rms norms) and the sums about it. These are four
  // numbers, because the number from which the deviations were taken is not needed.
  OPDOCK_DEVICE void send_to_cluster(const float (&sums)[4], float shift) const {
    const float left = p_.centred ? sums[0] * warp_share_ : 0.0f;
    Packed<float> all;
    all.set(0, shift + left);
    all.set(1, fma(-left, sums[0], sums[1]));
    all.set(2, sums[2]);
    all.set(3, fma(-left, sums[2], sums[3]));
    relay_.give(all.bytes);
  }

  // Waits until the sums of all warps that share a row are there.
  OPDOCK_DEVICE void sync_team() const {
    if (p_.team_warps > 1)
      block_barrier();
    else
      warp_barrier();
  }

  // Computes the slopes from the sums of the team's warps. mine: the number from which this warp's
  // deviations are taken.
  OPDOCK_DEVICE Slopes gather(int buffer, float mine) const {
    const float shift = sums_of(buffer, 0)[4];
    float sums[4] = {};
    if (const int warp = lane_ % kWarps; warp < p_.team_warps) {
      const Packed<float> of = {load16(sums_of(buffer, warp))};
      // Moves the sums from the warp's number to the team's.
      const float by = sums_of(buffer, warp)[4] - shift;
      sums[0] = fma(elements_, by, of.get(0));
      sums[1] = fma(by, sums[0] + of.get(0), of.get(1));
      sums[2] = of.get(2);
      sums[3] = fma(by, of.get(2), of.get(3));
    }
    return slopes(warp_reduce4<kWarps>(sums, lane_), shift, mine);
  }
  // Computes the slopes from the sums of all warps of the cluster.
  OPDOCK_DEVICE Slopes gather_cluster(float mine) {
    const Bytes16* const given = relay_.take();
    const float shift = Packed<float>{load16(given)}.get(0);
    const int last = (cluster_blocks() - 1) * kWarps;
    float sums[4] = {};
    if (lane_ % kWarps < p_.team_warps) {
      OPDOCK_NO_UNROLL
      for (int i = lane_; i < last + kWarps; i += kWarp) {
        const Packed<float> of = {load16(given + i)};
        const float by = of.get(0) - shift, sum = by * (i < last ? elements_ : last_elements_);
        sums[0] += sum;
        sums[1] += fma(by, sum, of.get(1));
        sums[2] += of.get(2);
        sums[3] += fma(by, of.get(2), of.get(3));
      }
    }
    return slopes(warp_reduce4(sums, lane_), shift, mine);
  }
  // sum: the four total sums, spread over lanes as warp_reduce4() leaves them.
  OPDOCK_DEVICE Slopes slopes(float sum, float shift, float mine) const {
    const Moments of = moments_of(p_, {shuffle(sum, 0), shuffle(sum, 1)}, shift);
    const float of_grad = shuffle(sum, 2), of_product = shuffle(sum, 3);
    const float mean = p_.centred ? of_grad * p_.share : 0.0f;
    const float slope = -of.factor * fma(of_product, of.factor, of_grad * of.rest) * p_.share;
    const float rest = fma(mine - shift, of.factor, of.rest);
    return {of.factor, rest, slope * of.factor, fma(slope, rest, -of.factor * mean)};
  }

  OPDOCK_DEVICE void write(int stage, const Slopes& by, const Part& part) {
    OPDOCK_UNROLL
    for (int k = 0; k < Vectors; ++k) {
      float value[kSize];
      OPDOCK_UNROLL
      for (int j = 0; j < kSize; ++j) {
        const float deviation = part.deviation[k][j], grad = part.grad[k][j];
        value[j] = fma(part.g[k][j], by.factor, fma(deviation, by.slope, by.constant));
        sums_[0][k][j] = fma(fma(deviation, by.factor, by.rest), grad, sums_[0][k][j]);
        sums_[1][k][j] += grad;
      }
      if (p_.grad_sum) {
        float added[kSize];
        to_floats(Packed<T>{load16(slot_of_more(stage) + k * kWarp)}, added);
        OPDOCK_UNROLL
        for (int j = 0; j < kSize; ++j) value[j] += added[j];
      }
      Packed<T> piece;
      from_floats(value, &piece);
      if (has(k)) store_piece(out_ + k * kWarp * kSize, piece);
    }
    advance(2, &out_);
  }

  // Writes the sums over the rows of all teams.
  OPDOCK_DEVICE void finish() const {
    float* const shared = dynamic_shared<float>() + 4 * scratch();
    const int in_team = p_.team_warps * kWarpElements, in_block = block_threads() * Vectors * kSize;
    OPDOCK_UNROLL
    for (int s = 0; s < 2; ++s) {
      if (!p_.sums[s]) continue;  // the same for all threads
      block_barrier();
      OPDOCK_UNROLL
      for (int k = 0; k < Vectors; ++k) {
        OPDOCK_UNROLL
        for (int j = 0; j < kSize; ++j)
          shared[warp_ * kWarpElements + (k * kWarp + lane_) * kSize + j] = sums_[s][k][j];
      }
      block_barrier();
      for (int i = thread_index(); i < length(); i += block_threads()) {
        float sum = shared[i];
        OPDOCK_NO_UNROLL
        for (int t = i + in_team; t < in_block; t += in_team) sum += shared[t];
        p_.sums[s][number() * p_.length + before() + i] = sum;
      }
    }
  }

  const LoopParams& p_;
  const int lane_, warp_;  // this thread's lane and warp
  int before_;             // warps of the teams before this thread's team
  int ring_;               // where the thread's first copies are, behind the sums
  int left_;               // vectors of the row from the thread's first one on
  int rows_,
      mine_;       // rows that the block's first team takes, and rows that this thread's team takes
  uint32_t step_;  // distance between two consecutive rows of a team, times an element's bytes
  float share_;    // 1 / elements in the first vectors of the warp
  float elements_ = 0.0f;       // elements of the team's warp whose number is the lane's
  float last_elements_ = 0.0f;  // the same for the cluster's last block
  float warp_share_ = 0.0f;     // in a cluster, 1 / elements of the warp
  ClusterRelay<kWarps> relay_;
  const T *x_, *grad_, *more_;  // positions in the next row to copy
  T* out_;                      // position in the next row to write
  float sums_[2][Vectors][kSize] = {};
};

template <class T, bool Clusters>
using Loop = RowLoop<T, kLoopThreads, kLoopElements / vector_size<T>,
                     loop_stages(sizeof(T), Clusters), Clusters>;

template <class T>
OPDOCK_KERNEL_BLOCKS(kLoopThreads, 1)
loop_rows(LoopParams p) {
  pdl_wait_and_trigger();
  Loop<T, false>(p).run();
}
// This kernel uses clusters, for rows that do not fit into one block.
template <class T>
OPDOCK_KERNEL_BLOCKS(kLoopThreads, 1)
loop_slices(LoopParams p) {
  pdl_wait_and_trigger();
  Loop<T, true>(p).run();
}

}  // namespace layernorm::backward
