// SPDX-License-Identifier: Apache-2.0
#include "attention_launch.h"

#include <algorithm>

namespace attention {
namespace {

using opdock::Call;
using opdock::Plan;
using opdock::Tensor;
using Halves = opdock::KernelTypes<opdock::half, opdock::bfloat16>;

constexpr auto kDecode =
    OPDOCK_KERNEL_FAMILY("attention::decode", Halves, HeadSizes, opdock::KernelNumbers<0, 1, 2>);
constexpr auto kPrompt = OPDOCK_KERNEL_FAMILY("attention::prompt", opdock::RowTypes, HeadSizes);
constexpr auto kPromptByColumns =
    OPDOCK_KERNEL_FAMILY("attention::prompt_by_columns", Halves, HeadSizes);
constexpr auto kPlain = OPDOCK_KERNEL_FAMILY("attention::plain", opdock::RowTypes, HeadSizes,
                                             opdock::KernelNumbers<1, 2, 4, 8>);
constexpr auto kSequencePrompt =
    OPDOCK_KERNEL_FAMILY("attention::sequences::prompt", HeadSizes, opdock::RowTypes);
constexpr auto kSequencePlain =
    OPDOCK_KERNEL_FAMILY("attention::sequences::plain", HeadSizes, opdock::RowTypes);
constexpr auto kDroppedPrompt =
    OPDOCK_KERNEL_FAMILY("attention::dropped::prompt", HeadSizes, opdock::RowTypes);
constexpr auto kDroppedPlain =
    OPDOCK_KERNEL_FAMILY("attention::dropped::plain", HeadSizes, opdock::RowTypes);
constexpr auto kColumns = OPDOCK_KERNEL_FAMILY("attention::columns", opdock::RowTypes, HeadSizes);
constexpr auto kMerge = OPDOCK_KERNEL_FAMILY("attention::merge", opdock::RowTypes);

// Up to this many rows, or queries, each block of eight rows reads the keys once.
constexpr int64_t kMaxDecodeRows = 16, kMaxDecodeQueries = 4;
// The keys are split into parts so that all blocks run at once, this many on a multiprocessor. A
// part has at least kMinPart keys.
constexpr int64_t kBlocksEach = 2;
constexpr int64_t kMinPart = 256;
// With slightly more blocks than fit at once, most of the GPU would wait for the last ones. Parts
// are then made short enough for kTurns rounds of blocks, but not shorter than kMinTurnPart keys.
// With many rounds unsplit keys were faster. This is done for one tile of rows only, since the
// partial results of each part take memory.
constexpr int64_t kTurns = 4;
constexpr int64_t kMinTurnPart = 1024;

// Returns what fits_vectors() does, for keys that lie by columns.
bool columns_fit_vectors(Tensor k, const Params& p) {
  const int64_t numbers[] = {k.size(1), p.k.batch, p.k.head, p.key_element};
  uint64_t low = reinterpret_cast<uintptr_t>(k.raw());
  for (const int64_t number : numbers) low |= static_cast<uint64_t>(number * k.dtype().bytes());
  return low % 16 == 0;
}

// Returns the bytes of shared memory: two stages of keys and values.
int64_t prompt_bytes(int size, opdock::Dtype dtype, const Params& p) {
  const int bytes = static_cast<int>(dtype.bytes());
  return int64_t{2} * prompt_stage(size, bytes, p.key_element != 1) * bytes;
}

}  // namespace

bool fits_vectors(std::initializer_list<Tensor> tensors) {
  uint64_t low = 0;
  for (const Tensor& x : tensors) {
    const int64_t bytes = x.dtype().bytes();
    low |= reinterpret_cast<uintptr_t>(x.raw()) | static_cast<uint64_t>(x.size(3) * bytes);
    for (int32_t dim = 0; dim < 3; ++dim)
      if (x.size(dim) != 1) low |= static_cast<uint64_t>(x.stride(dim) * bytes);
  }
  return low % 16 == 0;
}

Choice choose(const Plan& plan, Tensor q, Tensor k, Tensor v, const Params& p) {
  Choice choice = {};
  const bool by_columns = p.key_element != 1;
  choice.by_vectors =
      by_columns ? fits_vectors({v}) && columns_fit_vectors(k, p) : fits_vectors({q, k, v});
  const bool has_matrices = plan.is_cuda() && plan.facts().arch_major >= 8 && choice.by_vectors;
  const bool is_float = q.dtype().bytes() == 4;
  const int64_t rows = int64_t{p.queries} * p.group;
  choice.size = p.size <= 64 ? 64 : p.size <= 128 ? 128 : 256;
  // Sequences and dropout have kernels for prompts alone, with and without tensor cores.
  const bool as_prompt = p.sequences > 0 || p.drop.is_on;
  const bool is_prompt =
      has_matrices && p.cache == kSame &&
      (as_prompt || (rows > kMaxDecodeRows && p.queries > kMaxDecodeQueries)) &&
      (by_columns ? !is_float && fits_vectors({q}) : !is_float || p.size <= 128) &&
      prompt_bytes(choice.size, q.dtype(), p) <= plan.facts().max_shared_bytes;
  if (is_prompt) {
    choice.kernel = by_columns ? Kernel::kPromptByColumns : Kernel::kPrompt;
    choice.rows = prompt_threads(static_cast<int>(q.dtype().bytes())) / 2;
  } else if (by_columns) {
    choice.kernel = choice.by_vectors ? Kernel::kColumns : Kernel::kPlain;
    choice.rows = choice.by_vectors || rows == 1 ? 1 : plain_rows(choice.size);
  } else if (as_prompt) {
    choice.kernel = Kernel::kPlain;
    choice.rows = plain_rows(choice.size);
  } else if (has_matrices && !is_float && (p.cache == kSame || p.size <= 128)) {
    choice.kernel = Kernel::kDecode;
    choice.rows = kDecodeRows;
    if (p.cache != kSame) choice.size = 128;  // 16 bytes of the cache hold more elements
  } else {
    choice.kernel = Kernel::kPlain;
    choice.rows = rows == 1 ? 1 : plain_rows(choice.size);
  }
  choice.row_tiles = static_cast<int>(tiles_of(p, rows, choice.rows));
  choice.splits = 1;
  if (!is_prompt && !as_prompt) {
    const int64_t blocks = q.size(0) * (p.heads / p.group) * choice.row_tiles;
    const int64_t seen = std::max<int64_t>(
        1, p.window > 0 ? std::min<int64_t>(p.keys, int64_t{p.window} + p.queries) : p.keys);
    const int64_t room = plan.facts().multiprocessors * kBlocksEach;
    const bool in_turns = blocks > room && choice.row_tiles == 1;
    const int64_t wanted = in_turns ? divide_up(kTurns * room, blocks) : room / blocks;
    const int64_t most = divide_up(seen, in_turns ? kMinTurnPart : kMinPart);
    const int64_t part =
        divide_up(divide_up(seen, std::max<int64_t>(1, std::min(wanted, most))), 64) * 64;
    choice.part = static_cast<int>(part);
    choice.splits = static_cast<int>(divide_up(seen, part));
  }
  return choice;
}

uint64_t workspace_bytes(const Choice& choice, const Params& p, int64_t batch) {
  if (choice.splits == 1) return 0;
  const int64_t rows = batch * (p.heads / p.group) * choice.row_tiles * choice.splits * choice.rows;
  return static_cast<uint64_t>(rows * (choice.size + 2)) * sizeof(float);
}

void launch(Call& call, const Choice& choice, Tensor q, void* workspace, Params* p) {
  const opdock::Dtype dtype = q.dtype();
  const int64_t batch = q.size(0), kv_heads = p->heads / p->group;
  p->scale *= 1.44269504f;
  p->row_tiles = choice.row_tiles;
  p->splits = choice.splits;
  p->part = choice.part;
  p->by_vectors = choice.by_vectors;
  if (choice.splits > 1) {
    const int64_t rows = batch * kv_heads * choice.row_tiles * choice.splits * choice.rows;
    p->partial = static_cast<float*>(workspace);
    p->stats = p->partial + rows * choice.size;
  }
  const auto start = [&](uint32_t kernel, int64_t x, int threads, int64_t shared_bytes,
                         auto... args) {
    opdock::Launch how = {opdock::Dim3(x, kv_heads, batch), threads,
                          static_cast<uint32_t>(shared_bytes)};
    how.flags = opdock::detail::pdl_launch_flags(call, x * kv_heads * batch, threads);
    call.launch(kernel, how, args...);
  };
  const int64_t blocks = int64_t{choice.row_tiles} * choice.splits;
  if (choice.kernel == Kernel::kPlain) {
    start(p->drop.is_on      ? kDroppedPlain(choice.size, dtype)
          : p->sequences > 0 ? kSequencePlain(choice.size, dtype)
                             : kPlain(dtype, choice.size, choice.rows),
          blocks, kPlainThreads, 0, *p);
  } else if (choice.kernel == Kernel::kColumns) {
    start(kColumns(dtype, choice.size), blocks, kColumnThreads, 0, *p);
  } else if (choice.kernel == Kernel::kDecode) {
    constexpr int kWarps = kDecodeThreads / 32;
    const int rows = std::min(choice.rows, p->queries * p->group);
    const int64_t floats = kWarps * (2 * kDecodeRows + rows * choice.size);
    start(kDecode(dtype, choice.size, p->cache), blocks, kDecodeThreads, 4 * floats, *p);
  } else {
    const uint32_t kernel = choice.kernel == Kernel::kPromptByColumns
                                ? kPromptByColumns(dtype, choice.size)
                            : p->drop.is_on    ? kDroppedPrompt(choice.size, dtype)
                            : p->sequences > 0 ? kSequencePrompt(choice.size, dtype)
                                               : kPrompt(dtype, choice.size);
    start(kernel, blocks, prompt_threads(static_cast<int>(dtype.bytes())),
          prompt_bytes(choice.size, dtype, *p), *p);
  }
  if (choice.splits == 1) return;
  start(kMerge(dtype), int64_t{p->queries} * p->group, kMergeThreads, 0, *p, choice.size,
        choice.rows);
}

}  // namespace attention
