// opdock/row_launch.hpp: decides how kernels that OPDOCK_ROW_KERNELS makes (row_team.cuh) are
// launched: which kernel serves the rows, with how many threads and blocks, and whether the launch
// may begin early. Everything that decides it is here, the same for all ops.
// docs/concepts/performance.md says why; docs/guide/tuning.md says how a launch that was measured
// to be faster replaces this choice.
// SPDX-License-Identifier: Apache-2.0
#ifndef OPDOCK_ROW_LAUNCH_HPP_
#define OPDOCK_ROW_LAUNCH_HPP_

#include <algorithm>
#include <opdock/rows.cuh>

#include "opdock/kernel_names.hpp"
#include "opdock/plugin.hpp"

namespace opdock {

// The layout of the rows of a launch's tensors, and of the tensors that are read next to each row.
enum class RowFit {
  kPlain,             // evenly spaced, whole vectors of 16 bytes, all aligned
  kSameMisalignment,  // row r of each tensor has the same misalignment
  kAny,
};

// A way to launch rows of at most `most` vectors of 16 bytes. Each thread holds `vectors` of them
// in registers; 0: the row is not held, but read again in each pass. The last way that an op has
// kernels for serves all longer rows that clusters can hold.
struct RowStrategy {
  int vectors;
  int64_t most;
};
// These tables were measured on an H200 (docs/concepts/performance.md). Kernels that need few
// registers do well with few vectors per thread and many threads. All limits are powers of two, so
// that the rows of one question (below) have one way.
constexpr RowStrategy kLightRows[] = {{2, 512}, {8, 1024}, {4, 2048}, {8, 0}};
// For ops that read only a part of each row.
constexpr RowStrategy kPartRows[] = {{4, 2048}, {8, 0}};
constexpr RowStrategy kHeavyRows[] = {{2, 256}, {4, 4096}, {8, 0}};
// In place of kHeavyRows for 16-bit elements, if other tensors of 16-bit elements are read next to
// the row.
constexpr RowStrategy kWideRows[] = {{2, 256}, {4, 1024}, {8, 0}};
// In place of kWideRows if the rows are not aligned, so that each vector next to them is made of
// two.
constexpr RowStrategy kMisalignedRows[] = {{4, 1024}, {8, 0}};
// For ops that read a row only once in any case.
constexpr RowStrategy kReadRows[] = {{2, 128}, {8, 4096}, {0, 0}};
// For ops that hold the rows of two tensors.
constexpr RowStrategy kLightPairs[] = {{2, 1024}, {4, 4096}, {8, 8192}, {4, 0}};
// In place of kLightPairs for 16-bit elements, if other tensors are read next to the rows.
constexpr RowStrategy kWidePairs[] = {{2, 128}, {4, 0}};

// One of these tables, or one of an op's own.
struct RowStrategies {
  const RowStrategy* first;
  size_t count;

  template <size_t Count>
  constexpr RowStrategies(const RowStrategy (&table)[Count]) : first(table), count(Count) {}
  constexpr const RowStrategy* begin() const { return first; }
  constexpr const RowStrategy* end() const { return first + count; }
};

// The last template argument of narrow_rows and block_rows (row_team.cuh).
using RowEdges = KernelNumbers<0, 1>;

// The element types of kernels over rows on a GPU.
using RowTypes = KernelTypes<float, half, bfloat16>;

// Stands in for a family of which an op has no kernels.
struct NoKernels {
  template <class... Values>
  constexpr uint32_t find(const Values&...) const {
    return detail::kNoKernel;
  }
};

// The kernels that OPDOCK_ROW_KERNELS (row_team.cuh) makes of one op, as far as plugin.toml lists
// them: narrow_rows and block_rows of all vectors per thread that a strategy may ask for, with and
// without edges, and long_rows. Kernels with edges serve also the rows for which kernels without
// edges are not listed. OPDOCK_ROW_FAMILY finds them.
template <class Narrow, class Block, class Long>
struct RowKernels {
  int tiles;                 // tiles that the op holds at once: its kTiles
  RowStrategies strategies;  // in ascending order
  Narrow narrow_rows;
  Block block_rows;
  Long long_rows;

  // Returns the same kernels, chosen by another table.
  template <size_t Strategies>
  constexpr RowKernels with(const RowStrategy (&others)[Strategies]) const {
    return {tiles, others, narrow_rows, block_rows, long_rows};
  }
};
template <size_t Strategies, class Narrow, class Block, class Long>
RowKernels(int, const RowStrategy (&)[Strategies], Narrow, Block, Long)
    -> RowKernels<Narrow, Block, Long>;

// Finds an op's kernels by the namespace that they are in, a literal:
//   constexpr auto kKernels = OPDOCK_ROW_FAMILY("softmax", 1, opdock::kLightRows);
// TILES, STRATEGIES: as in RowKernels. Does not compile if plugin.toml lists no block_rows there.
#define OPDOCK_ROW_FAMILY(NAMESPACE, TILES, STRATEGIES)                                   \
  [] {                                                                                    \
    constexpr auto opdock_block =                                                         \
        OPDOCK_LISTED_FAMILY(NAMESPACE "::block_rows", ::opdock::RowTypes,                \
                             ::opdock::KernelNumbers<2, 4, 8>, ::opdock::RowEdges);       \
    static_assert(opdock_block.has_any(), "plugin.toml lists no kernel " NAMESPACE        \
                                          "::block_rows<...>; name one in [device] "      \
                                          "\"kernels\"");                                 \
    return ::opdock::RowKernels{                                                          \
        TILES, STRATEGIES,                                                                \
        OPDOCK_LISTED_FAMILY(NAMESPACE "::narrow_rows", ::opdock::RowTypes,               \
                             ::opdock::KernelNumbers<2, 4>, ::opdock::RowEdges),          \
        opdock_block, OPDOCK_LISTED_FAMILY(NAMESPACE "::long_rows", ::opdock::RowTypes)}; \
  }()

// The most vectors of a row that shares its block with other rows; for a longer row, a block of its
// own is faster.
constexpr int64_t kMaxNarrowVectors = 64;
// spread() gives a row more blocks as long as its blocks have more threads than this: its only
// block, and each block of several.
constexpr int64_t kMaxOwnThreads = 512;
constexpr int64_t kMaxClusterThreads = 256;

namespace detail {

// Returns the exponent of the smallest power of two that is not below `number`.
inline int log2_of(int64_t number) {
  return number <= 1 ? 0 : 64 - __builtin_clzll(static_cast<uint64_t>(number - 1));
}
inline int64_t power_of_two(int64_t least) {
  return int64_t{1} << log2_of(least);
}

// Whether the GPU is at least an sm_90, the first with clusters and programmatic launches.
inline bool has_sm_90(const CallBase& call) {
  return call.is_cuda() && call.facts().arch_major >= 9;
}

// Returns the flags of a launch of `blocks` blocks, in one dimension, whose kernel begins with
// pdl_wait_and_trigger() (launch.cuh). A small launch, which leaves room for others, may begin
// while the launch before it ends: all its blocks run at once, with up to 64 registers a thread.
// For larger launches that hides too little time to matter.
inline uint32_t pdl_launch_flags(const Call& call, int64_t blocks, int64_t threads) {
  const int64_t room = int64_t{call.facts().multiprocessors} * 1024;
  const bool is_small = blocks <= kMaxEarlyBlocks && blocks * threads <= room;
  return has_sm_90(call) && is_small ? OPDOCK_LAUNCH_PROGRAMMATIC : 0;
}

// A launch over rows. If `kernel` is kNoKernel, the rows cannot be launched in this way.
struct RowLaunch {
  uint32_t kernel = kNoKernel;
  int64_t blocks = 0, threads = 0, cluster = 1;
  int lane_bits = 0;  // RowShape::lane_bits

  // Returns the launch; its grid has two dimensions if one cannot have all blocks.
  Launch how(const Call& call) const {
    constexpr int64_t kMax = int64_t{1} << 30;
    Launch launch = {Dim3(std::min(blocks, kMax), (blocks + kMax - 1) / kMax), threads};
    if (cluster > 1) launch.cluster = Dim3(cluster);
    launch.flags = pdl_launch_flags(call, blocks, threads);
    return launch;
  }
};

// The ways to launch rows among which tuning chooses. A number must mean the same way in every
// build: when the table changes, change kRowWaysVersion too.
enum class RowStrategyKind { kNarrow, kBlock, kLong };
struct NumberedRowStrategy {
  RowStrategyKind kind;
  int vectors;  // per thread
  int times;    // narrow: lanes per row, block: blocks per row, both as multiples of the least;
                // long: the largest block's threads, divided by the threads of this way's block
};
constexpr uint64_t kRowWaysVersion = 3;
constexpr NumberedRowStrategy kRowStrategies[] = {
    {RowStrategyKind::kNarrow, 2, 1}, {RowStrategyKind::kNarrow, 2, 2},
    {RowStrategyKind::kBlock, 2, 1},  {RowStrategyKind::kBlock, 4, 1},
    {RowStrategyKind::kBlock, 8, 1},  {RowStrategyKind::kBlock, 4, 2},
    {RowStrategyKind::kBlock, 8, 2},  {RowStrategyKind::kBlock, 4, 4},
    {RowStrategyKind::kBlock, 8, 4},  {RowStrategyKind::kLong, 0, 1},
    {RowStrategyKind::kLong, 0, 2},   {RowStrategyKind::kNarrow, 4, 1},
    {RowStrategyKind::kNarrow, 4, 2}};
constexpr uint32_t kNumRowStrategies = std::size(kRowStrategies);

// Finds the launch of an op's kernels over `rows` rows.
template <class Kernels>
class RowLaunches {
 public:
  RowLaunches(const Call& call, const Kernels& kernels, Dtype dtype, RowFit fit, int64_t length,
              int64_t rows)
      : call_(call),
        kernels_(kernels),
        dtype_(dtype),
        fit_(fit),
        length_(length),
        rows_(rows),
        warp_(call.facts().warp_size),
        // Except for long rows, only this rounded length matters.
        vectors_(power_of_two(length * dtype.bytes() / 16)) {}

  // Returns the op's own choice, by its table.
  RowLaunch own() const {
    for (const int vectors : {2, 4}) {
      const RowLaunch shared = narrow(vectors, 1);
      if (shared.kernel != kNoKernel && vectors_ <= kMaxNarrowVectors) return shared;
    }
    RowLaunch last;
    for (const RowStrategy& strategy : kernels_.strategies) {
      if (strategy.vectors == 0) {
        last = {};
        break;
      }
      const RowLaunch found = spread(strategy.vectors);
      if (found.kernel == kNoKernel) continue;
      last = found;
      // If there are few rows, each should have many threads.
      if (vectors_ <= strategy.most || (is_few() && found.cluster == 1)) break;
    }
    if (last.kernel != kNoKernel) return last;
    // If there are rows enough for all multiprocessors, several small blocks on each are faster;
    // for short rows there are no smaller blocks.
    if (rows_ >= 2 * int64_t{call_.facts().multiprocessors}) last = long_rows(2);
    return last.kernel != kNoKernel ? last : long_rows(1);
  }
  RowLaunch numbered(int32_t number) const {
    const NumberedRowStrategy& strategy = kRowStrategies[number];
    if (strategy.kind == RowStrategyKind::kNarrow) return narrow(strategy.vectors, strategy.times);
    return strategy.kind == RowStrategyKind::kBlock ? block(strategy.vectors, strategy.times)
                                                    : long_rows(strategy.times);
  }
  // Returns a number for the rows for which one way may be the best. Two kernels identify the op
  // and the dtype, because ops may share one kernel; these, the fit and the length decide which
  // ways there are. Whether the rows are few is part of it because each of few rows should have
  // many threads.
  uint64_t question(const RowLaunch& own) const {
    uint32_t other = kNoKernel;
    for (const RowStrategy& strategy : kernels_.strategies)
      if (other == kNoKernel) other = find(kernels_.block_rows, strategy.vectors);
    return kRowWaysVersion << 56 | uint64_t{own.kernel & 0xffff} << 40 |
           uint64_t{other & 0xffff} << 24 | static_cast<uint64_t>(fit_) << 16 |
           static_cast<uint64_t>(log2_of(vectors_)) << 8 | uint64_t{is_few()};
  }

 private:
  bool is_few() const { return rows_ <= int64_t{call_.facts().multiprocessors}; }

  // Returns family.find() of these values, with edges only where they are needed.
  template <class Family, class... Values>
  uint32_t find(const Family& family, const Values&... values) const {
    const uint32_t kernel = fit_ == RowFit::kPlain ? family.find(dtype_, values..., 0) : kNoKernel;
    return kernel == kNoKernel ? family.find(dtype_, values..., 1) : kernel;
  }

  RowLaunch narrow(int vectors, int64_t times) const {
    int64_t lanes = std::max<int64_t>(1, vectors_ / vectors);
    if (fit_ != RowFit::kPlain)  // one for each element at an edge
      lanes = std::max<int64_t>(lanes, 32 / dtype_.bytes());
    if (times > 1 && lanes * times > vectors_) return {};  // some lanes would have no vector
    lanes *= times;
    if (fit_ == RowFit::kAny || lanes > warp_) return {};
    const int64_t in_block = kNarrowThreads / lanes;
    return {find(kernels_.narrow_rows, vectors), (rows_ + in_block - 1) / in_block, kNarrowThreads,
            1, log2_of(lanes)};
  }

  // Returns the least number of blocks of a row whose threads hold `vectors` vectors each.
  int64_t least_cluster(int vectors) const {
    const int held = vectors * kernels_.tiles;
    if (!has_clusters(held) || !has_sm_90(call_)) return 1;
    return std::max<int64_t>(1, vectors_ / vectors / row_threads(held));
  }
  // Returns block() with the number of blocks per row that is the fastest.
  RowLaunch spread(int vectors) const {
    RowLaunch best = block(vectors, 1);
    for (int64_t times = 2; times <= kMaxCluster; times *= 2) {
      if (best.threads <= (best.cluster == 1 ? kMaxOwnThreads : kMaxClusterThreads)) break;
      const RowLaunch next = block(vectors, times);
      if (next.kernel == kNoKernel) break;
      best = next;
    }
    return best;
  }
  RowLaunch block(int vectors, int64_t times) const {
    const int held = vectors * kernels_.tiles;
    const int64_t most = row_threads(held), cluster = times * least_cluster(vectors);
    const bool clusters = has_clusters(held) && has_sm_90(call_);
    const int64_t threads = std::max<int64_t>(1, vectors_ / vectors) / cluster;
    if (fit_ == RowFit::kAny || threads > most || cluster > kMaxCluster) return {};
    if (times > 1 && (!clusters || threads < kNarrowThreads)) return {};
    return {find(kernels_.block_rows, vectors), rows_ * cluster, std::max(threads, warp_), cluster};
  }

  RowLaunch long_rows(int64_t times) const {
    const int64_t threads = power_of_two(std::min<int64_t>(length_, kLongThreads)) / times;
    // This way exists for all rows of one question or for none: each row has more than half as many
    // elements as the rounded length.
    if (times > 1 && vectors_ * 16 / dtype_.bytes() < 2 * kLongThreads) return {};
    return {kernels_.long_rows.find(dtype_), rows_, std::max(threads, warp_)};
  }

  const Call& call_;
  const Kernels& kernels_;
  const Dtype dtype_;
  const RowFit fit_;
  const int64_t length_, rows_, warp_;
  const int64_t vectors_;  // of a row, rounded up to a power of two
};

}  // namespace detail

// Launches the kernel that suits the rows, of at least one element, on the call's stream: in the
// way that was measured to be the fastest on this device, or in the op's own. Returns false if none
// of these kernels suits. Sets params->shape; the other members of Params are set as row_team.cuh
// describes.
template <class Kernels, class Params>
[[nodiscard]] bool try_launch_rows(const Call& call, const Kernels& kernels, Dtype dtype,
                                   RowFit fit, Params* params) {
  const detail::RowLaunches launches(call, kernels, dtype, fit, params->length, params->rows.count);
  detail::RowLaunch found = launches.own();
  if (found.kernel == detail::kNoKernel) return false;
  const int32_t strategy = call.tuned(launches.question(found), detail::kNumRowStrategies);
  if (strategy >= 0) found = launches.numbered(strategy);
  if (found.kernel == detail::kNoKernel)
    throw Error(
        OPDOCK_UNSUPPORTED,
        detail::concat("found no kernel for way ", strategy, " to launch rows of ", params->length,
                       " elements, wanted a way that has one; if none is "
                       "being measured, `opdock bench --forget` brings back the op's own"));
  params->shape.by_vectors = fit != RowFit::kAny;
  params->shape.lane_bits = found.lane_bits;
  call.launch(found.kernel, found.how(call), *params);
  return true;
}
// Does the same with kernels that serve all rows, as they do if their long_rows are listed. Throws
// an Error if none serves these.
template <class Kernels, class Params>
void launch_rows(const Call& call, const Kernels& kernels, Dtype dtype, RowFit fit,
                 Params* params) {
  if (try_launch_rows(call, kernels, dtype, fit, params)) return;
  throw Error(OPDOCK_INTERNAL,
              detail::concat("found no kernel for ", params->rows.count, " rows of ",
                             params->length, " elements of ", dtype.name(),
                             ", wanted one for all; report it to the plugin's authors"));
}

}  // namespace opdock
#endif  // OPDOCK_ROW_LAUNCH_HPP_
