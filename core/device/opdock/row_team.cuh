// Passes over rows by teams of threads. An op says what happens to the elements of one row; which
// threads have which of them, how often they are read, and how results are combined says the team:
//
//   NarrowTeam  some lanes of a warp: rows that a warp can hold in registers
//   BlockTeam   a block, or the blocks of a cluster: rows held in registers, read once
//   LongTeam    a block: rows of any length, read again in each pass
//
// A team hands out a row in pieces: 16-byte vectors between the row's first and last 16-byte
// boundary, and up to two edges of fewer elements, one element a thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/cluster_gather.cuh"
#include "opdock/launch.cuh"
#include "opdock/packed.cuh"
#include "opdock/reduce.cuh"
#include "opdock/rows.cuh"

namespace opdock {

// Of this thread in its warp, in one-dimensional blocks.
OPDOCK_DEVICE int lane_index() {
  return thread_index() & (warp_width() - 1);
}

// A row's part that one thread of a team holds.
template <typename T, int Vectors>
struct Tile {
  Packed<T> body[Vectors];
  Single<T> edge;
};
// A row that is not held: each pass reads it. `fill` stands in the columns from `end` on.
template <typename T>
struct Stream {
  const T* row;
  T fill;
  int64_t end;
};

// Of this block, in grids with more blocks than one dimension takes.
OPDOCK_DEVICE int64_t block_number() {
  return block_index_y() * grid_blocks() + block_index();
}
// Of its cluster. Divisions of 32 bits are the quicker ones.
OPDOCK_DEVICE int64_t cluster_number() {
  const uint32_t blocks = static_cast<uint32_t>(cluster_blocks());
  const int64_t before = block_index_y() * (static_cast<uint32_t>(grid_blocks()) / blocks);
  return before + static_cast<uint32_t>(block_index()) / blocks;
}

// `fill` in place of the elements from column `end` on, of a piece that begins at `column`.
template <typename T, typename Piece>
OPDOCK_DEVICE void hide(int64_t column, int64_t end, T fill, Piece* piece) {
  OPDOCK_UNROLL
  for (int j = 0; j < piece_size<Piece>; ++j)
    if (column + j >= end) piece->set(j, fill);
}

// Tensors of a row's length that are read beside it (load_side()), and what of them is beside a
// thread's first vectors, asked for before it is needed.
template <typename T, int Count, int Ahead>
struct Sides {
  const T* from[Count];
  int bytes[Count];
  Packed<T> first[Ahead][Count];
};

// Where the row's vectors and edges are. All tensors of a row that are read and written by vectors
// are misaligned alike.
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

// What narrow and block teams share: a tile of at most Vectors vectors in each thread, Step vectors
// from one to the next, or 0: as many as step_ says. A constant makes addresses cheap, and so does
// it to know that rows have no edges. Rows are shorter than 2^31.
template <int Vectors, int Step, bool Edges>
class TileTeam {
 public:
  static constexpr bool kHolds = true;  // a row is read once, and tiles can be changed
  // Rows are evenly spaced, made of whole, aligned vectors, and so is what is read beside them.
  static constexpr bool kPlain = !Edges;
  // With many vectors few threads run at once: each must ask ahead for what is beside them, and no
  // branch may keep the next vector waiting.
  static constexpr bool kEarly = Vectors >= 8;

  OPDOCK_DEVICE int64_t row() const { return row_; }

  // Where the row's elements are: comes first. length: of the row.
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

  // Whether this is the one thread of the team that does what is done once for a row.
  OPDOCK_DEVICE bool leads() const { return has_row_ && rank_ == 0; }
  // The row's first element, the same in all threads.
  template <typename T>
  OPDOCK_DEVICE T first(const T* row) const {
    return has_row_ ? row[0] : T{};
  }
  // This thread's part of a row; `fill` stands where there is no element.
  template <typename T>
  OPDOCK_DEVICE Tile<T, Vectors> load(const T* row, T fill) const {
    return load(row, fill, length_, vectors_);
  }
  // The same, with `fill` in the columns from `end` on, whose vectors are not read.
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
      if (column < end && column + vector_size<T> > end) hide(column, end, fill, &tile.body[k]);
    }
    return tile;
  }
  // From now on `fill` stands where there is no element.
  template <typename T>
  OPDOCK_DEVICE void fill(T fill, Tile<T, Vectors>* tile) const {
    // Most rows have all: one branch for all vectors spares each a choice.
    if (!has(Vectors - 1)) {
      OPDOCK_UNROLL
      for (int k = 0; k < Vectors; ++k)
        if (!has(k)) fill_piece(fill, &tile->body[k]);
    }
    if (Edges && edge_ < 0) tile->edge.value = fill;
  }
  // What the tile has become, now that `row` has it too.
  template <typename T>
  OPDOCK_DEVICE Tile<T, Vectors> again(const Tile<T, Vectors>& tile, const T*) const {
    return tile;
  }

  // f(column, here, piece, pieces…) for every piece, also those that are not here: they stand for
  // no elements, and nothing must be read at their columns. What f does to the first is kept.
  template <typename F, typename T, typename... Tiles>
  OPDOCK_DEVICE void each(F f, Tile<T, Vectors>& tile, const Tiles&... others) const {
    OPDOCK_UNROLL
    for (int k = 0; k < Vectors; ++k) f(column_of<T>(k), has(k), tile.body[k], others.body[k]...);
    if constexpr (Edges)
      if (has_edges_) f(edge_, edge_ >= 0, tile.edge, others.edge...);
  }
  // The same, and stores the first one in `out`.
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

  // `from`: what is beside column 0.
  template <typename T, typename... Rest>
  OPDOCK_DEVICE auto ask(const T* from, Rest... rest) const {
    constexpr int kCount = 1 + static_cast<int>(sizeof...(Rest));
    // Of one tensor two vectors ahead fit the registers.
    constexpr int kAhead = kEarly && kCount == 1 ? 2 : 1;
    Sides<T, kCount, kAhead> sides = {{from, rest...}, {}, {}};
    OPDOCK_UNROLL
    for (int i = 0; i < kCount; ++i)
      sides.bytes[i] = Edges ? misalignment(sides.from[i] + head_) : 0;
    OPDOCK_UNROLL
    for (int k = 0; k < kAhead; ++k) read_beside(sides, k, &sides.first[k]);
    return sides;
  }
  // map() of one tile, where f(column, here, piece, beside) also gets the pieces beside it.
  template <typename F, typename T, int Count, int Ahead>
  OPDOCK_DEVICE void map_beside(T* out, F f, Tile<T, Vectors>& tile,
                                Sides<T, Count, Ahead> sides) const {
    T* const mine = out + column_of<T>(0);
    OPDOCK_UNROLL
    for (int k = 0; k < Vectors; ++k) {
      Packed<T> now[Count];
      OPDOCK_UNROLL
      for (int i = 0; i < Count; ++i) now[i] = sides.first[k % Ahead][i];
      const int next = k + Ahead;
      if (kEarly && next < Vectors) read_beside(sides, next, &sides.first[k % Ahead]);
      f(column_of<T>(k), has(k), tile.body[k], now);
      write(mine, k, tile.body[k]);
      if (!kEarly && next < Vectors) read_beside(sides, next, &sides.first[k % Ahead]);
    }
    if constexpr (Edges) {
      if (edge_ < 0) return;
      Single<T> beside[Count];
      OPDOCK_UNROLL
      for (int i = 0; i < Count; ++i) beside[i].value = sides.from[i][edge_];
      f(edge_, true, tile.edge, beside);
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
  int rank_ = 0;              // of this thread in the team
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
  OPDOCK_DEVICE void read_beside(const Sides<T, Count, Ahead>& sides, int k,
                                 Packed<T> (*out)[Count]) const {
    if (!has(k)) return;
    OPDOCK_UNROLL
    for (int i = 0; i < Count; ++i)
      load_side(sides.from[i], column_of<T>(k), length_, sides.bytes[i], &(*out)[i]);
  }
  // The columns before `end`, and of the vectors the first `open` ones.
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
  int edge_ = -1;  // this thread's column outside of the vectors
  bool has_edges_ = false;
};

// Numbers of a part of a row that are reduced together.
struct Partial {
  float a, b;
};
// The lanes of a warp that have a part each, `count` of them, a power of two; the others have the
// same parts again. What all have of a number of each part is the same in all lanes.
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
// How the parts in lanes become that of the whole: two sums.
struct AddPartials {
  OPDOCK_DEVICE Partial operator()(const Partial& part, const Lanes& of) const {
    return {of.sum(part.a), of.sum(part.b)};
  }
};

// Some lanes of a warp, a power of two of them: what they exchange stays in the warp.
template <int Vectors, bool Edges>
class NarrowTeam : public TileTeam<Vectors, 0, Edges> {
 public:
  // Teams of 2^lane_bits lanes; with a row that is not there a team computes nothing.
  OPDOCK_DEVICE NarrowTeam(int64_t rows, int lane_bits) : lanes_(1 << lane_bits) {
    this->row_ = block_number() * (block_threads() >> lane_bits) + (thread_index() >> lane_bits);
    this->has_row_ = this->row_ < rows;
    if (!this->has_row_) this->row_ = 0;
    this->rank_ = thread_index() & (lanes_ - 1);
    this->first_ = this->rank_;
    this->step_ = lanes_;
  }
  // Over the threads that exchange registers.
  template <typename Op>
  OPDOCK_DEVICE float near(float value) const {
    OPDOCK_UNROLL
    for (int mask = warp_width() / 2; mask > 0; mask /= 2) {
      const float other = shuffle_xor(value, mask);
      if (mask < lanes_) value = Op::combine(value, other);
    }
    return value;
  }
  // Over the whole team, of parts that are equal in the threads that exchange registers.
  template <int Use, typename Merge>
  OPDOCK_DEVICE Partial far(const Partial& part, Merge) const {
    return part;
  }
  // Until then no thread of the team writes what others read before.
  OPDOCK_DEVICE void sync() const { warp_barrier(); }
  OPDOCK_DEVICE void finish() const {}

 private:
  int lanes_;
};

// Shared memory for a block's reductions, one for each use.
struct RowScratch {
  Partial warp[kMaxRowThreads / 32];
};

// Reductions over a block of a power of two of whole warps, and over a cluster of such blocks.
template <bool Clusters>
class BlockReach {
 public:
  // gathers: one for each reduction; null without clusters.
  OPDOCK_DEVICE BlockReach(RowScratch* scratch, ClusterGather<Partial>* gathers)
      : scratch_(scratch), gathers_(gathers) {}
  // Comes first, in blocks that have a row.
  OPDOCK_DEVICE void begin() const {
    if constexpr (Clusters) {
      if (cluster_blocks() == 1) return;
      if (thread_index() == 0) cluster_open(gathers_, kRowReductions);
      cluster_opening();
    }
  }
  template <typename Op>
  OPDOCK_DEVICE float near(float value) const {
    return warp_reduce<Op>(value);
  }
  template <int Use, typename Merge>
  OPDOCK_DEVICE Partial far(Partial part, Merge merge) {
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
        see_others();
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
  // Comes last.
  OPDOCK_DEVICE void finish() {
    if constexpr (Clusters)
      if (cluster_blocks() > 1) see_others();
  }

 private:
  // Nothing is written to other blocks before they are known to have begun.
  OPDOCK_DEVICE void see_others() {
    if (!sees_others_) cluster_opened();
    sees_others_ = true;
  }

  RowScratch* scratch_;
  ClusterGather<Partial>* gathers_;
  bool sees_others_ = false;
};

// A block a row, or a cluster of blocks. Each warp has a contiguous run of the vectors.
template <int Vectors, bool Clusters, bool Edges>
class BlockTeam : public TileTeam<Vectors, warp_width(), Edges>, public BlockReach<Clusters> {
 public:
  OPDOCK_DEVICE BlockTeam(RowScratch* scratch, ClusterGather<Partial>* gathers)
      : BlockReach<Clusters>(scratch, gathers) {
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

// A block a row that it reads again in each pass, by vectors or, where tensors are not misaligned
// alike, by elements.
class LongTeam : public BlockReach<false> {
 public:
  static constexpr bool kHolds = false, kPlain = false;

  OPDOCK_DEVICE LongTeam(RowScratch* scratch, bool vectors)
      : BlockReach<false>(scratch, nullptr), by_vectors_(vectors) {}
  OPDOCK_DEVICE int64_t row() const { return block_number(); }
  OPDOCK_DEVICE bool leads() const { return thread_index() == 0; }

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
  OPDOCK_DEVICE Stream<T> again(const Stream<T>& stream, const T* row) const {
    return {row, stream.fill, stream.end};
  }

  template <typename F, typename T, typename... Streams>
  OPDOCK_DEVICE void each(F f, const Stream<T>& stream, const Streams&... others) const {
    visit(stream, [&](int64_t column, auto piece) {
      f(column, true, piece, part(others, column, &piece)...);
    });
  }
  template <typename T, typename... Rest>
  OPDOCK_DEVICE auto ask(const T* from, Rest... rest) const {
    return Sides<T, 1 + sizeof...(Rest), 1>{{from, rest...}, {}, {}};
  }
  template <typename F, typename T, int Count, int Ahead>
  OPDOCK_DEVICE void map_beside(T* out, F f, const Stream<T>& stream,
                                const Sides<T, Count, Ahead>& sides) const {
    visit(stream, [&](int64_t column, auto piece) {
      decltype(piece) beside[Count];
      for (int i = 0; i < Count; ++i) {
        const int bytes = misalignment(sides.from[i] + column);
        load_side(sides.from[i], column, length_, bytes, &beside[i]);
      }
      f(column, true, piece, beside);
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
    if (column + piece_size<Piece> > stream.end) hide(column, stream.end, stream.fill, &piece);
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
    // Two are asked for before the first one is needed.
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

// Runs Op on the row of one team; the kernels of an op are made of these.
template <typename Op, typename T, int Vectors, bool Edges>
OPDOCK_DEVICE void run_narrow_rows(const typename Op::Params& p) {
  launch_turn();
  NarrowTeam<Vectors, Edges> team(p.rows.count, p.shape.lane_bits);
  Op::template run<T>(p, team);
}
template <typename Op, typename T, int Vectors, bool Edges>
OPDOCK_DEVICE void run_block_rows(const typename Op::Params& p) {
  launch_turn();
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
  launch_turn();
  OPDOCK_SHARED(RowScratch, scratch, kRowReductions);
  LongTeam team(scratch, p.shape.by_vectors != 0);
  if (team.row() >= p.rows.count) return;
  Op::template run<T>(p, team);
}

// The kernels of Op, in the namespace where this stands; plugin.toml lists those that are wanted,
// opdock/row_op.hpp launches them. Op is a struct with
//   Params        a kernel parameter with the members length, shape (RowShape) and rows (Rows<N>)
//   kTiles        how many tiles of a row it holds at once
//   kBeside       whether it reads tensors of a row's length beside them (map_beside())
//   run<T>(const Params&, Team&)
// Edges: 0 where the rows of each tensor are evenly spaced and made of whole, aligned vectors, and
// what is read beside them is aligned too.
#define OPDOCK_ROW_KERNELS(Op)                                               \
  template <typename T, int Vectors, int Edges>                              \
  OPDOCK_KERNEL(opdock::kNarrowThreads)                                      \
  narrow_rows(Op::Params p) {                                                \
    opdock::run_narrow_rows<Op, T, Vectors, Edges != 0>(p);                  \
  }                                                                          \
  template <typename T, int Vectors, int Edges>                              \
  OPDOCK_KERNEL_BLOCKS(opdock::row_threads(Vectors* Op::kTiles),             \
                       opdock::row_blocks(Vectors* Op::kTiles, Op::kBeside)) \
  block_rows(Op::Params p) {                                                 \
    opdock::run_block_rows<Op, T, Vectors, Edges != 0>(p);                   \
  }                                                                          \
  template <typename T>                                                      \
  OPDOCK_KERNEL_BLOCKS(opdock::kLongThreads, 3)                              \
  long_rows(Op::Params p) {                                                  \
    opdock::run_long_rows<Op, T>(p);                                         \
  }

}  // namespace opdock
