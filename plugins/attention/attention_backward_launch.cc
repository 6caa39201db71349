// SPDX-License-Identifier: Apache-2.0
#include "attention_backward_launch.h"

namespace attention {
namespace {

constexpr auto kRowSums = OPDOCK_KERNEL_FAMILY("attention::backward_row_sums", opdock::RowTypes);
constexpr auto kQueries =
    OPDOCK_KERNEL_FAMILY("attention::backward_queries", opdock::RowTypes, HeadSizes);
constexpr auto kKeys =
    OPDOCK_KERNEL_FAMILY("attention::backward_keys", opdock::RowTypes, HeadSizes);
// Heads of 256 elements would leave tensor cores no room for their sums.
using Halves = opdock::KernelTypes<opdock::half, opdock::bfloat16>;
using TileSizes = opdock::KernelNumbers<64, 128>;
constexpr auto kQueryTiles =
    OPDOCK_KERNEL_FAMILY("attention::backward_query_tiles", Halves, TileSizes);
constexpr auto kKeyTiles = OPDOCK_KERNEL_FAMILY("attention::backward_key_tiles", Halves, TileSizes);
constexpr auto kDroppedQueries =
    OPDOCK_KERNEL_FAMILY("attention::dropped::query_gradients", HeadSizes, opdock::RowTypes);
constexpr auto kDroppedKeys =
    OPDOCK_KERNEL_FAMILY("attention::dropped::key_gradients", HeadSizes, opdock::RowTypes);
constexpr auto kDroppedQueryTiles =
    OPDOCK_KERNEL_FAMILY("attention::dropped::query_tiles", TileSizes, Halves);
constexpr auto kDroppedKeyTiles =
    OPDOCK_KERNEL_FAMILY("attention::dropped::key_tiles", TileSizes, Halves);
constexpr auto kSequenceRowSums =
    OPDOCK_KERNEL_FAMILY("attention::sequences::row_sums", HeadSizes, opdock::RowTypes);
constexpr auto kSequenceQueries =
    OPDOCK_KERNEL_FAMILY("attention::sequences::query_gradients", HeadSizes, opdock::RowTypes);
constexpr auto kSequenceKeys =
    OPDOCK_KERNEL_FAMILY("attention::sequences::key_gradients", HeadSizes, opdock::RowTypes);
constexpr auto kSequenceQueryTiles =
    OPDOCK_KERNEL_FAMILY("attention::sequences::query_tiles", TileSizes, Halves);
constexpr auto kSequenceKeyTiles =
    OPDOCK_KERNEL_FAMILY("attention::sequences::key_tiles", TileSizes, Halves);

// The parts of the workspace, in bytes from its beginning, each aligned to 256. Without logarithms
// of sums attention runs once more, for the logarithms; its result is thrown away.
struct Places {
  uint64_t rows = 0, lse, result, forward, end;

  Places(const BackwardChoice& choice, Tensor q) {
    const uint64_t elements = static_cast<uint64_t>(q.numel());
    const uint64_t numbers = elements / static_cast<uint64_t>(q.size(3));
    const auto after = [](uint64_t begin, uint64_t bytes) {
      return (begin + bytes + 255) / 256 * 256;
    };
    lse = after(rows, numbers * 2 * sizeof(float));
    const bool twice = !choice.has_lse;
    result = after(lse, twice ? numbers * sizeof(float) : 0);
    forward = after(result, twice ? elements * static_cast<uint64_t>(q.dtype().bytes()) : 0);
    end = forward + (twice ? choice.forward_bytes : 0);
  }
};

// Launches x blocks for each batch and head of keys.
void start(Call& call, const Arguments& of, uint32_t kernel, int64_t x, int threads,
           int shared_bytes, const BackwardParams& b) {
  const int64_t batch = of.q.size(0), kv_heads = of.k.size(2);
  if (x * kv_heads * batch == 0) return;
  opdock::Launch how = {opdock::Dim3(x, kv_heads, batch), threads,
                        static_cast<uint32_t>(shared_bytes)};
  how.flags = opdock::detail::pdl_launch_flags(call, x * kv_heads * batch, threads);
  call.launch(kernel, how, b);
}

}  // namespace

BackwardChoice choose_backward(const Plan& plan, const Arguments& of, Tensor grad, Tensor result,
                               const BackwardParams& b) {
  BackwardChoice choice = {};
  choice.has_lse = b.lse.data != nullptr;
  choice.by_vectors =
      b.p.key_element == 1 && b.grad_element == 1 && fits_vectors({of.q, of.k, of.v, grad, result});
  choice.size = b.p.size <= 64 ? 64 : b.p.size <= 128 ? 128 : 256;
  choice.by_tiles = plan.is_cuda() && plan.facts().arch_major >= 8 && choice.by_vectors &&
                    of.q.dtype().bytes() == 2 && choice.size <= 128 &&
                    int64_t{backward_tile_bytes(choice.size)} <= plan.facts().max_shared_bytes;
  if (!choice.has_lse && of.q.numel() > 0) {
    choice.forward = choose(plan, of.q, of.k, of.v, b.p);
    choice.forward_bytes = workspace_bytes(choice.forward, b.p, of.q.size(0));
  }
  return choice;
}

uint64_t backward_workspace_bytes(const BackwardChoice& choice, Tensor q) {
  return Places(choice, q).end;
}

void launch_row_sums(Call& call, const BackwardChoice& choice, const Arguments& of,
                     BackwardParams* b) {
  const int64_t heads = of.q.size(2);
  const int64_t rows = int64_t{b->p.queries} * b->p.group;
  const opdock::Dtype dtype = of.q.dtype();
  char* const workspace = static_cast<char*>(call.workspace());
  const Places places(choice, of.q);
  if (rows > 0 && !choice.has_lse) {
    const int64_t queries = b->p.queries;
    b->lse = {workspace + places.lse, heads * queries, queries, 1, 0};
    Params p = b->p;
    p.lse = b->lse;
    p.out = {workspace + places.result, queries * heads * p.size, heads * p.size, p.size};
    p.out_by_vectors = p.size * dtype.bytes() % 16 == 0;
    launch(call, choice.forward, of.q, workspace + places.forward, &p);
  }
  b->rows = workspace + places.rows;
  b->p.scale *= 1.44269504f;
  b->p.splits = 1;
  b->p.by_vectors = choice.by_vectors;
  start(call, of, b->p.sequences > 0 ? kSequenceRowSums(choice.size, dtype) : kRowSums(dtype),
        tiles_of(b->p, rows, kRowThreads / 8), kRowThreads, 0, *b);
}

void launch_backward(Call& call, const BackwardChoice& choice, const Arguments& of,
                     BackwardParams* b) {
  launch_row_sums(call, choice, of, b);
  const int64_t rows = int64_t{b->p.queries} * b->p.group;
  const opdock::Dtype dtype = of.q.dtype();
  const bool of_sequences = b->p.sequences > 0, drops = b->p.drop.is_on != 0;
  const int size = choice.size;
  const int each = choice.by_tiles ? kTileVectors : backward_rows(size);
  const int64_t row_tiles = tiles_of(b->p, rows, each), key_tiles = tiles_of(b->p, b->p.keys, each);
  if (choice.by_tiles) {
    const int bytes = backward_tile_bytes(size);
    start(call, of,
          drops          ? kDroppedQueryTiles(size, dtype)
          : of_sequences ? kSequenceQueryTiles(size, dtype)
                         : kQueryTiles(dtype, size),
          row_tiles, kTileThreads, bytes, *b);
    start(call, of,
          drops          ? kDroppedKeyTiles(size, dtype)
          : of_sequences ? kSequenceKeyTiles(size, dtype)
                         : kKeyTiles(dtype, size),
          key_tiles, kTileThreads, bytes, *b);
    return;
  }
  start(call, of,
        drops          ? kDroppedQueries(size, dtype)
        : of_sequences ? kSequenceQueries(size, dtype)
                       : kQueries(dtype, size),
        row_tiles, kPlainThreads, 0, *b);
  start(call, of,
        drops          ? kDroppedKeys(size, dtype)
        : of_sequences ? kSequenceKeys(size, dtype)
                       : kKeys(dtype, size),
        key_tiles, kPlainThreads, 0, *b);
}

}  // namespace attention
