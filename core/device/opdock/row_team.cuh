// Passes over rows by teams of threads. An op defines what happens to the elements of one row. The
// team decides which threads have which elements, how often they are read, and how results are
// combined:
//
//   NarrowTeam  some lanes of a warp: rows that a warp can hold in registers
//   BlockTeam   a block, or the blocks of a cluster: rows held in registers, read once
//   LongTeam    a block: rows of any length, read again in each pass
//
// A team divides a row into pieces: 16-byte vectors between the row's first and last 16-byte
// boundary, and up to two edges of fewer elements, one element a thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/cluster_gather.cuh"
#include "opdock/launch.cuh"
#include "opdock/packed.cuh"
#include "opdock/reduce.cuh"
#include "opdock/rows.cuh"

namespace opdock {

// Index of this thread in its warp, in one-dimensional blocks.
OPDOCK_DEVICE int lane_index() {
  return thread_index() & (warp_width() - 1);
}

// The part of a row that one thread of a team holds.
template <typename T, int Vectors>
struct Tile {
  Packed<T> body[Vectors];
  Single<T> edge;
};
// A row that is not held: each pass reads it. The columns from `end` on count as `fill`.
template <typename T>
struct Stream {
  const T* row;
  T fill;
  int64_t end;
};

// Linear block index in a two-dimensional grid, which has more blocks than one dimension allows.
OPDOCK_DEVICE int64_t block_number() {
  return block_index_y() * grid_blocks() + block_index();
}
// Linear index of the block's cluster. Divisions of 32 bits are faster.
OPDOCK_DEVICE int64_t cluster_number() {
  const uint32_t blocks = static_cast<uint32_t>(cluster_blocks());
  const int64_t before = block_index_y() * (static_cast<uint32_t>(grid_blocks()) / blocks);
  return before + static_cast<uint32_t>(block_index()) / blocks;
}

// Replaces the elements from column `end` on with `fill`, in a piece that begins at `column`.
template <typename T, typename Piece>
OPDOCK_DEVICE void mask_tail(int64_t column, int64_t end, T fill, Piece* piece) {
  OPDOCK_UNROLL
  for (int j = 0; j < piece_size<Piece>; ++j)
    if (column + j >= end) piece->set(j, fill);
}

// Tensors of a row's length that are read next to it (load_operand()), and the pieces of them that
// are next to a thread's first vectors, which are loaded before they are needed.
template <typename T, int Count, int Ahead>
struct RowOperands {
  const T* from[Count];
  int bytes[Count];
  Packed<T> first[Ahead][Count];
};

// The positions of a row's vectors and edges. All tensors of a row that are read and written by
// vectors have the same misalignment.
struct RowSpan {
  int64_t vectors = 0;
  int head = 0, tail = 0;  // elements before and behind the vectors

  template <typename T>
  OPDOCK_DEVICE void set(const T* row, int64_t length) {
    constexpr int kSize = vector_size<T>;
    const int bytes = misalignment(row);
    head = bytes == 0 ? 0 : (16 - bytes) / static_cast<int>(sizeof(T));
    if (head > length) head = static_cast<int>(length);
    vectors = (length - head) / kSize;
    tail = static_cast<int>(length - head - vectors * kSize);
  }
};

// Base of narrow and block teams: a tile of at most Vectors vectors in each thread, with a stride
// of Step vectors or, if Step is 0, of step_ vectors. A constant stride makes addresses cheap, and
// so does knowing that rows have no edges. Rows are shorter than 2^31.
template <int Vectors, int Step, bool Edges>
class TileTeam {
 public:
  static constexpr bool kHolds = true;  // a row is read once, and tiles can be changed
  // Rows are evenly spaced and made of whole, aligned vectors, and so are the tensors that are read
  // next to them.
  static constexpr bool kPlain = !Edges;
  // With many vectors per thread, few threads run at once: each must load early what is next to its
  // vectors, and no branch may delay the next vector.
  static constexpr bool kEarly = Vectors >= 8;

  OPDOCK_DEVICE int64_t row() const { return row_; }

  // Sets where the row's elements are. Call it first. length: of the row, in elements.
  template <typename T>
  OPDOCK_DEVICE void take(const T* row, int64_t length) {
    constexpr int kSize = vector_size<T>;
    length_ = has_row_ ? static_cast<int>(length) : 0;
    if constexpr (Edges) {
      RowSpan span;
      span.set(row, length_);
      vectors_ = static_cast<int>(span.vectors);
      head_ = span.head;
      if (rank_ < span.head) edge_ = rank_;
      if (rank_ >= kSize && rank_ - kSize < span.tail) {
        edge_ = rank_ - kSize + span.head + vectors_ * kSize;
      }
      has_edges_ = span.head + span.tail != 0;
    } else {
      vectors_ = length_ / kSize;
    }
  }

  // Returns whether this is the thread of the team that does the work that is done once for a row.
  OPDOCK_DEVICE bool is_leader() const { return has_row_ && rank_ == 0; }
  // Returns the row's first element, the same in all threads.
  template <typename T>
  OPDOCK_DEVICE T first(const T* row) const {
    return has_row_ ? row[0] : T{};
  }
  // Loads this thread's part of a row; `fill` stands where there is no element.
  template <typename T>
  OPDOCK_DEVICE Tile<T, Vectors> load(const T* row, T fill) const {
    return load(row, fill, length_, vectors_);
  }
  // Does the same with `fill` in the columns from `end` on, whose vectors are not read.
  template <typename T>
  OPDOCK_DEVICE Tile<T, Vectors> load(const T* row, T fill, int64_t end) const {
    if (end >= length_) return load(row, fill, length_, vectors_);
    const int before = static_cast<int>(end) - head_;
    int open = before <= 0 ? 0 : (before + vector_size<T> - 1) / vector_size<T>;
    if (Edges && open > vectors_) open = vectors_;  // `end` is behind the last vector
    Tile<T, Vectors> tile = load(row, fill, static_cast<int>(end), open);
    OPDOCK_UNROLL
    for (int k = 0; k < Vectors; ++k) {
      const int column = column_of<T>(k);
      if (column < end && column + vector_size<T> > end)
        mask_tail(column, end, fill, &tile.body[k]);
    }
    return tile;
  }
  // Puts `fill` where the tile has no element.
  template <typename T>
  OPDOCK_DEVICE void fill(T fill, Tile<T, Vectors>* tile) const {
    // Most threads have all vectors: one branch for all of them saves a selection for each.
    if (!has(Vectors - 1)) {
      OPDOCK_UNROLL
      for (int k = 0; k < Vectors; ++k)
        if (!has(k)) fill_piece(fill, &tile->body[k]);
    }
    if (Edges && edge_ < 0) tile->edge.value = fill;
  }
  // Returns the tile for another pass, after map() has stored it in `row`. A held tile is as map()
  // left it.
  template <typename T>
  OPDOCK_DEVICE Tile<T, Vectors> reload(const Tile<T, Vectors>& tile, const T*) const {
    return tile;
  }

  // Calls f(column, here, piece, pieces…) for every piece. If `here` is false, the piece has no
  // elements, and f must not read anything at its column. Changes that f makes to the first piece
  // are kept.
  template <typename F, typename T, typename... Tiles>
  OPDOCK_DEVICE void each(F f, Tile<T, Vectors>& tile, const Tiles&... others) const {
    OPDOCK_UNROLL
    for (int k = 0; k < Vectors; ++k) f(column_of<T>(k), has(k), tile.body[k], others.body[k]...);
    if constexpr (Edges)
      if (has_edges_) f(edge_, edge_ >= 0, tile.edge, others.edge...);
  }
  // Does the same, and stores the first piece in `out`.
  template <typename O, typename F, typename T, typename... Tiles>
  OPDOCK_DEVICE void map(O* out, F f, Tile<T, Vectors>& tile, const Tiles&... others) const {
    O* const mine = out + column_of<T>(0);
    OPDOCK_UNROLL
    for (int k = 0; k < Vectors; ++k) {
      f(column_of<T>(k), has(k), tile.body[k], others.body[k]...);
      write(mine, k, tile.body[k]);
    }
    if constexpr (Edges) {
      if (!has_edges_) return;
      f(edge_, edge_ >= 0, tile.edge, others.edge...);
      if (edge_ >= 0) store_piece(out + edge_, tile.edge);
    }
  }

  // Prepares tensors for map_with_operands(), and loads their first pieces. from: the element of
  // the tensor that is next to column 0.
  template <typename T, typename... Rest>
  OPDOCK_DEVICE auto prefetch_operands(const T* from, Rest... rest) const {
    constexpr int kCount = 1 + static_cast<int>(sizeof...(Rest));
    // For one tensor, loading two vectors ahead fits the registers.
    constexpr int kAhead = kEarly && kCount == 1 ? 2 : 1;
    RowOperands<T, kCount, kAhead> operands = {{from, rest...}, {}, {}};
    OPDOCK_UNROLL
    for (int i = 0; i < kCount; ++i)
      operands.bytes[i] = Edges ? misalignment(operands.from[i] + head_) : 0;
    OPDOCK_UNROLL
    for (int k = 0; k < kAhead; ++k) read_operands(operands, k, &operands.first[k]);
    return operands;
  }
  // Does what map() does with one tile, where f(column, here, piece, pieces) also gets the pieces
  // next to it.
  template <typename F, typename T, int Count, int Ahead>
  OPDOCK_DEVICE void map_with_operands(T* out, F f, Tile<T, Vectors>& tile,
                                       RowOperands<T, Count, Ahead> operands) const {
    T* const mine = out + column_of<T>(0);
    OPDOCK_UNROLL
    for (int k = 0; k < Vectors; ++k) {
      Packed<T> now[Count];
      OPDOCK_UNROLL
      for (int i = 0; i < Count; ++i) now[i] = operands.first[k % Ahead][i];
      const int next = k + Ahead;
      if (kEarly && next < Vectors) read_operands(operands, next, &operands.first[k % Ahead]);
      f(column_of<T>(k), has(k), tile.body[k], now);
      write(mine, k, tile.body[k]);
      if (!kEarly && next < Vectors) read_operands(operands, next, &operands.first[k % Ahead]);
    }
    if constexpr (Edges) {
      if (edge_ < 0) return;
      Single<T> pieces[Count];
      OPDOCK_UNROLL
      for (int i = 0; i < Count; ++i) pieces[i].value = operands.from[i][edge_];
      f(edge_, true, tile.edge, pieces);
      store_piece(out + edge_, tile.edge);
    }
  }

 protected:
  OPDOCK_DEVICE int step() const { return Step > 0 ? Step : step_; }
  OPDOCK_DEVICE bool has(int k) const { return first_ + k * step() < vectors_; }
  template <typename T>
  OPDOCK_DEVICE int column_of(int k) const {
    return head_ + first_ * vector_size<T> + k * step() * vector_size<T>;
  }

  int64_t row_ = 0;
  bool has_row_ = true;
  int rank_ = 0;              // index of this thread in the team
  int first_ = 0, step_ = 1;  // its vectors: first_, first_ + step(), …

 private:
  // mine: where this thread's vectors begin.
  template <typename T>
  OPDOCK_DEVICE void write(T* mine, int k, const Packed<T>& piece) const {
    T* const to = mine + k * step() * vector_size<T>;
    if constexpr (kEarly)
      store16_if(has(k), to, piece.bytes);
    else if (has(k))
      store_piece(to, piece);
  }
  template <typename T, int Count, int Ahead>
  OPDOCK_DEVICE void read_operands(const RowOperands<T, Count, Ahead>& operands, int k,
                                   Packed<T> (*out)[Count]) const {
    if (!has(k)) return;
    OPDOCK_UNROLL
    for (int i = 0; i < Count; ++i)
      load_operand(operands.from[i], column_of<T>(k), length_, operands.bytes[i], &(*out)[i]);
  }
  // Loads the columns before `end`; of the vectors, only the first `open` ones.
  template <typename T>
  OPDOCK_DEVICE Tile<T, Vectors> load(const T* row, T fill, int end, int open) const {
    Tile<T, Vectors> tile;
    const T* const mine = row + column_of<T>(0);
    OPDOCK_UNROLL
    for (int k = 0; k < Vectors; ++k) {
      fill_piece(fill, &tile.body[k]);
      if (first_ + k * step() < open) load_piece(mine + k * step() * vector_size<T>, &tile.body[k]);
    }
    if constexpr (Edges) {
      tile.edge.value = fill;
      if (edge_ >= 0 && edge_ < end) tile.edge.value = row[edge_];
    }
    return tile;
  }

  int length_ = 0, vectors_ = 0, head_ = 0;
  int edge_ = -1;  // this thread's column outside of the vectors, or -1
  bool has_edges_ = false;
};

// Two numbers of a part of a row, which are reduced together.
struct Partial {
  float a, b;
};
// The `count` lanes of a warp, a power of two, that have a part each; the other lanes have the same
// parts again. sum() and most() combine a number of all parts, and return the same in all lanes.
struct Lanes {
  int count;

  OPDOCK_DEVICE float sum(float value) const {
    for (int mask = 1; mask < count; mask *= 2) value += shuffle_xor(value, mask);
    return value;
  }
  OPDOCK_DEVICE float most(float value) const {
    for (int mask = 1; mask < count; mask *= 2) value = max(value, shuffle_xor(value, mask));
    return value;
  }
};
// Merges the parts in several lanes into that of the whole: two sums.
struct AddPartials {
  OPDOCK_DEVICE Partial operator()(const Partial& part, const Lanes& of) const {
    return {of.sum(part.a), of.sum(part.b)};
  }
};

// A team of some lanes of one warp, a power of two of them, which exchange values only inside the
// warp.
template <int Vectors, bool Edges>
class NarrowTeam : public TileTeam<Vectors, 0, Edges> {
 public:
  // Makes teams of 2^lane_bits lanes. A team without a row computes nothing.
  OPDOCK_DEVICE NarrowTeam(int64_t rows, int lane_bits) : lanes_(1 << lane_bits) {
    this->row_ = block_number() * (block_threads() >> lane_bits) + (thread_index() >> lane_bits);
    this->has_row_ = this->row_ < rows;
    if (!this->has_row_) this->row_ = 0;
    this->rank_ = thread_index() & (lanes_ - 1);
    this->first_ = this->rank_;
    this->step_ = lanes_;
  }
  // Reduces over the threads of the team that exchange registers, those in one warp.
  template <typename Op>
  OPDOCK_DEVICE float warp_reduce(float value) const {
    OPDOCK_UNROLL
    for (int mask = warp_width() / 2; mask > 0; mask /= 2) {
      const float other = shuffle_xor(value, mask);
      if (mask < lanes_) value = Op::combine(value, other);
    }
    return value;
  }
  // Reduces over the whole team. The parts are equal in the threads that exchange registers.
  template <int Use, typename Merge>
  OPDOCK_DEVICE Partial team_reduce(const Partial& part, Merge) const {
    return part;
  }
  // Waits until all threads of the team are here: only then may one write what others have read
  // before.
  OPDOCK_DEVICE void sync() const { warp_barrier(); }
  OPDOCK_DEVICE void finish() const {}

 private:
  int lanes_;
};

// Shared memory for one of a block's reductions; each use has its own.
struct RowScratch {
  Partial warp[kMaxRowThreads / 32];
};

// Reductions over a block of a power of two of whole warps, and over a cluster of such blocks.
template <bool Clusters>
class BlockReducer {
 public:
  // gathers: one for each reduction; null without clusters.
  OPDOCK_DEVICE BlockReducer(RowScratch* scratch, ClusterGather<Partial>* gathers)
      : scratch_(scratch), gathers_(gathers) {}
  // Call it first, in blocks that have a row.
  OPDOCK_DEVICE void begin() const {
    if constexpr (Clusters) {
      if (cluster_blocks() == 1) return;
      if (thread_index() == 0) cluster_open(gathers_, kRowReductions);
      cluster_opening();
    }
  }
  template <typename Op>
  OPDOCK_DEVICE float warp_reduce(float value) const {
    return opdock::warp_reduce<Op>(value);
  }
  template <int Use, typename Merge>
  OPDOCK_DEVICE Partial team_reduce(Partial part, Merge merge) {
    static_assert(Use < kRowReductions, "each reduction has memory of its own");
    const int warps = block_threads() / warp_width(), lane = lane_index();
    RowScratch& scratch = scratch_[Use];
    if (warps > 1) {
      if (lane == 0) scratch.warp[thread_index() / warp_width()] = part;
      block_barrier();
      part = merge(scratch.warp[lane & (warps - 1)], Lanes{warps});
    }
    if constexpr (Clusters) {
      const int blocks = cluster_blocks();
      if (blocks > 1) {
        wait_for_cluster();
        gathers_[Use].gather(part);
        part = merge(gathers_[Use].from[lane & (blocks - 1)], Lanes{blocks});
      }
    }
    return part;
  }
  OPDOCK_DEVICE void sync() const {
    if constexpr (Clusters) {
      if (cluster_blocks() > 1) {
        cluster_barrier();
        return;
      }
    }
    block_barrier();
  }
  // Call it last.
  OPDOCK_DEVICE void finish() {
    if constexpr (Clusters)
      if (cluster_blocks() > 1) wait_for_cluster();
  }

 private:
  // Waits, once, until the other blocks have begun: nothing may be written to them before.
  OPDOCK_DEVICE void wait_for_cluster() {
    if (!cluster_ready_) cluster_opened();
    cluster_ready_ = true;
  }

  RowScratch* scratch_;
  ClusterGather<Partial>* gathers_;
  bool cluster_ready_ = false;
};

// A team of a block, or of a cluster of blocks, for each row. Each warp has a contiguous run of the
// vectors.
template <int Vectors, bool Clusters, bool Edges>
class BlockTeam : public TileTeam<Vectors, warp_width(), Edges>, public BlockReducer<Clusters> {
 public:
  OPDOCK_DEVICE BlockTeam(RowScratch* scratch, ClusterGather<Partial>* gathers)
      : BlockReducer<Clusters>(scratch, gathers) {
    this->row_ = block_number();
    this->rank_ = thread_index();
    const int lane = lane_index();
    this->first_ = (thread_index() - lane) * Vectors + lane;
    if constexpr (Clusters) {
      if (cluster_blocks() > 1) {
        this->row_ = cluster_number();
        this->rank_ = thread_index() + cluster_rank() * block_threads();
        this->first_ += cluster_rank() * block_threads() * Vectors;
      }
    }
  }
};

// A team of a block for each row, which it reads again in each pass: by vectors or, if the tensors
// do not have the same misalignment, by elements.
class LongTeam : public BlockReducer<false> {
 public:
  static constexpr bool kHolds = false, kPlain = false;

  OPDOCK_DEVICE LongTeam(RowScratch* scratch, bool vectors)
      : BlockReducer<false>(scratch, nullptr), by_vectors_(vectors) {}
  OPDOCK_DEVICE int64_t row() const { return block_number(); }
  OPDOCK_DEVICE bool is_leader() const { return thread_index() == 0; }

  template <typename T>
  OPDOCK_DEVICE void take(const T* row, int64_t length) {
    length_ = length;
    if (by_vectors_) span_.set(row, length);
  }
  template <typename T>
  OPDOCK_DEVICE T first(const T* row) const {
    return row[0];
  }
  template <typename T>
  OPDOCK_DEVICE Stream<T> load(const T* row, T fill) const {
    return {row, fill, length_};
  }
  template <typename T>
  OPDOCK_DEVICE Stream<T> load(const T* row, T fill, int64_t end) const {
    return {row, fill, end};
  }
  template <typename T>
  OPDOCK_DEVICE void fill(T, const Stream<T>*) const {}
  template <typename T>
  OPDOCK_DEVICE Stream<T> reload(const Stream<T>& stream, const T* row) const {
    return {row, stream.fill, stream.end};
  }

  template <typename F, typename T, typename... Streams>
  OPDOCK_DEVICE void each(F f, const Stream<T>& stream, const Streams&... others) const {
    visit(stream, [&](int64_t column, auto piece) {
      f(column, true, piece, part(others, column, &piece)...);
    });
  }
  template <typename T, typename... Rest>
  OPDOCK_DEVICE auto prefetch_operands(const T* from, Rest... rest) const {
    return RowOperands<T, 1 + sizeof...(Rest), 1>{{from, rest...}, {}, {}};
  }
  template <typename F, typename T, int Count, int Ahead>
  OPDOCK_DEVICE void map_with_operands(T* out, F f, const Stream<T>& stream,
                                       const RowOperands<T, Count, Ahead>& operands) const {
    visit(stream, [&](int64_t column, auto piece) {
      decltype(piece) pieces[Count];
      for (int i = 0; i < Count; ++i) {
        const int bytes = misalignment(operands.from[i] + column);
        load_operand(operands.from[i], column, length_, bytes, &pieces[i]);
      }
      f(column, true, piece, pieces);
      store_piece(out + column, piece);
    });
  }
  template <typename O, typename F, typename T, typename... Streams>
  OPDOCK_DEVICE void map(O* out, F f, const Stream<T>& stream, const Streams&... others) const {
    visit(stream, [&](int64_t column, auto piece) {
      f(column, true, piece, part(others, column, &piece)...);
      store_piece(out + column, piece);
    });
  }

 private:
  template <typename T, typename Piece>
  static OPDOCK_DEVICE Piece part(const Stream<T>& stream, int64_t column, const Piece*) {
    Piece piece;
    fill_piece(stream.fill, &piece);
    if (column < stream.end) load_piece(stream.row + column, &piece);
    if (column + piece_size<Piece> > stream.end) mask_tail(column, stream.end, stream.fill, &piece);
    return piece;
  }
  template <typename T, typename F>
  OPDOCK_DEVICE void visit(const Stream<T>& stream, F f) const {
    const Packed<T>* const vector = nullptr;
    const Single<T>* const single = nullptr;
    if (!by_vectors_) {
      for (int64_t i = thread_index(); i < length_; i += block_threads())
        f(i, part(stream, i, single));
      return;
    }
    // Two vectors are loaded before the first one is needed.
    const int64_t step = block_threads();
    int64_t v = thread_index();
    for (; v + step < span_.vectors; v += 2 * step) {
      const int64_t column = span_.head + v * vector_size<T>;
      const int64_t other = column + step * vector_size<T>;
      const auto piece = part(stream, column, vector), next = part(stream, other, vector);
      f(column, piece);
      f(other, next);
    }
    if (v < span_.vectors) {
      const int64_t column = span_.head + v * vector_size<T>;
      f(column, part(stream, column, vector));
    }
    const int i = thread_index();
    if (i < span_.head) f(i, part(stream, i, single));
    const int64_t behind = span_.head + span_.vectors * vector_size<T> + i;
    if (i < span_.tail) f(behind, part(stream, behind, single));
  }

  bool by_vectors_;
  int64_t length_ = 0;
  RowSpan span_;
};

// These functions run Op on the row of one team. OPDOCK_ROW_KERNELS makes an op's kernels from
// them.
template <typename Op, typename T, int Vectors, bool Edges>
OPDOCK_DEVICE void run_narrow_rows(const typename Op::Params& p) {
  pdl_wait_and_trigger();
  NarrowTeam<Vectors, Edges> team(p.rows.count, p.shape.lane_bits);
  Op::template run<T>(p, team);
}
template <typename Op, typename T, int Vectors, bool Edges>
OPDOCK_DEVICE void run_block_rows(const typename Op::Params& p) {
  pdl_wait_and_trigger();
  OPDOCK_SHARED(RowScratch, scratch, kRowReductions);
  OPDOCK_SHARED(ClusterGather<Partial>, gathers, kRowReductions);
  BlockTeam<Vectors, has_clusters(Vectors * Op::kTiles), Edges> team(scratch, gathers);
  if (team.row() >= p.rows.count) return;
  team.begin();
  Op::template run<T>(p, team);
  team.finish();
}
template <typename Op, typename T>
OPDOCK_DEVICE void run_long_rows(const typename Op::Params& p) {
  pdl_wait_and_trigger();
  OPDOCK_SHARED(RowScratch, scratch, kRowReductions);
  LongTeam team(scratch, p.shape.by_vectors != 0);
  if (team.row() >= p.rows.count) return;
  Op::template run<T>(p, team);
}

// Defines the kernels of Op, in the namespace where the macro is used. plugin.toml lists those that
// are wanted; opdock/row_launch.hpp launches them. Op is a struct with
//   Params        a kernel parameter with the members length, shape (RowShape) and rows (Rows<N>)
//   kTiles        how many tiles of a row it holds at once
//   kHasOperands  whether it reads tensors of a row's length next to them (map_with_operands())
//   run<T>(const Params&, Team&)
// Edges: 0 if the rows of each tensor are evenly spaced and made of whole, aligned vectors, and the
// tensors that are read next to them are aligned too.
#define OPDOCK_ROW_KERNELS(Op)                                                    \
  template <typename T, int Vectors, int Edges>                                   \
  OPDOCK_KERNEL(opdock::kNarrowThreads)                                           \
  narrow_rows(Op::Params p) {                                                     \
    opdock::run_narrow_rows<Op, T, Vectors, Edges != 0>(p);                       \
  }                                                                               \
  template <typename T, int Vectors, int Edges>                                   \
  OPDOCK_KERNEL_BLOCKS(opdock::row_threads(Vectors* Op::kTiles),                  \
                       opdock::row_blocks(Vectors* Op::kTiles, Op::kHasOperands)) \
  block_rows(Op::Params p) {                                                      \
    opdock::run_block_rows<Op, T, Vectors, Edges != 0>(p);                        \
  }                                                                               \
  template <typename T>                                                           \
  OPDOCK_KERNEL_BLOCKS(opdock::kLongThreads, 3)                                   \
  long_rows(Op::Params p) {                                                       \
    opdock::run_long_rows<Op, T>(p);                                              \
  }

}  // namespace opdock
