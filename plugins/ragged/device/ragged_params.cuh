// Parameters of the kernels, on the GPU and on the CPU, filled in by the host code.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "opdock/host_device.cuh"

namespace ragged {

inline constexpr int kThreads = 128;       // threads of a block that handles one row
inline constexpr int kRouteThreads = 256;  // of the gating and scattering kernels

// Where the tokens of the sequences lie in a batch. Row s of `sequences` has the first token of
// sequence s, its tokens in this batch, and those before this batch; the fourth number is unused.
struct Batch {
  const int* counts;     // the tokens, and the sequences, that are not padding
  const int* sequences;  // [rows, 4]
  const int* of_token;   // for each token its sequence
  long long rows;        // of `sequences`

  // Returns the number of tokens that the sequence has before `token`; -1: there is no such
  // sequence.
  OPDOCK_HOST_DEVICE long long position(long long token, int sequence) const {
    if (sequence < 0 || sequence >= rows) return -1;
    const int* const of = sequences + 4LL * sequence;
    return of[2] + (token - of[0]);
  }
};

struct EmbedParams {
  Batch batch;
  const void* ids;
  const void* table;
  const void* positions;  // NULL: none
  void* out;
  long long tokens, columns;  // of `out`
  long long words, places;    // rows of the tables
  long long table_row, positions_row;
  long long offset;
  int wide_ids;    // ids are int64, else int32
  int by_vectors;  // rows consist of aligned 16-byte pieces

  OPDOCK_HOST_DEVICE long long id(long long token) const {
    return wide_ids ? static_cast<const long long*>(ids)[token]
                    : static_cast<const int*>(ids)[token];
  }
  OPDOCK_HOST_DEVICE bool has_word(long long id) const { return id >= 0 && id < words; }
  // Returns the row of `positions` for a token.
  OPDOCK_HOST_DEVICE long long place(long long token) const {
    const long long at = batch.position(token, batch.of_token[token]) + offset;
    return at < 0 ? 0 : at >= places ? places - 1 : at;
  }
};

struct LastParams {
  Batch batch;
  const void* x;
  void* out;
  long long sequences, columns;  // of `out`
  long long tokens, x_row;
  int by_vectors;

  // Returns the row of a sequence's last token; -1: it has none in this batch.
  OPDOCK_HOST_DEVICE long long last(long long sequence) const {
    if (sequence >= batch.counts[1]) return -1;
    const int* const of = batch.sequences + 4 * sequence;
    const long long row = static_cast<long long>(of[0]) + of[1] - 1;
    return of[1] > 0 && of[0] >= 0 && row < tokens ? row : -1;
  }
};

// Numbers of the blocks that have a sequence's keys and values.
struct BlockLists {
  const void* lists;  // addresses of lists of int, one per sequence; or the rows of a table of int
  long long row;      // stride of the table's rows; 0: addresses
  long long columns;  // of the table

  OPDOCK_HOST_DEVICE const int* of(long long sequence) const {
    if (row == 0) {
      const long long address = static_cast<const long long*>(lists)[sequence];
      return reinterpret_cast<const int*>(address);
    }
    return static_cast<const int*>(lists) + sequence * row;
  }
  // Returns whether a list has an entry `at`; the length of a list that has an address is unknown.
  OPDOCK_HOST_DEVICE bool has(long long at) const { return row == 0 || at < columns; }
};

inline constexpr int kMaxPairs = 128;  // pairs of a head that are rotated

struct AppendParams {
  Batch batch;
  BlockLists blocks;
  void* q;  // NULL: nothing is rotated
  const void *k, *v;
  long long q_row, k_row, v_row;
  void* cache;
  // Strides of the cache, in elements, from one block, place, keys to values, head to the next.
  long long cache_block, cache_place, cache_kind, cache_head;
  const float* frequencies;
  long long tokens, count, block_size;  // count: blocks of the cache
  int heads, kv_heads, size;            // size: elements of a head
  int pairs;                            // pairs that are rotated
  int by_vectors;

  // Returns where the keys of the first head go for a sequence's token at this position; -1: the
  // cache has no place for it.
  OPDOCK_HOST_DEVICE long long place(int sequence, long long position) const {
    if (position < 0) return -1;
    const long long number = position / block_size;
    if (!blocks.has(number)) return -1;
    const int block = blocks.of(sequence)[number];
    if (block < 0 || block >= count) return -1;
    return block * cache_block + (position - number * block_size) * cache_place;
  }
};

struct GateParams {
  const void* logits;
  long long row;
  const int* counts;  // of the batch: the tokens that are not padding
  float* scores;
  int *assignments, *offsets, *experts;  // experts: how many tokens each has
  long long tokens;
  int count, k;  // experts, and those of a token
};

struct ScatterParams {
  const void* x;
  long long x_row;
  const int *experts, *assignments, *offsets;
  void* out;
  long long* sums;
  int* slots;
  long long tokens, columns;
  int count, k;
  int by_vectors;
};

struct GatherParams {
  const void* x;
  long long x_row, x_rows;
  const float* scores;
  const int* slots;
  int* experts;  // set to 0; NULL: none
  void* out;
  long long tokens, columns;
  int count, k;
  int normalize;
  int by_vectors;
};

// An attention atom, in DeepSpeed's words: some queries of one sequence, and the keys that
// they see. An atom is eight ints; the first two are the address of the list of the keys' blocks,
// or the row of a table.
inline constexpr int kAtomInts = 8;
enum AtomInt : int { kFirstQuery = 2, kQueries, kBlocks, kKeys, kFirstPosition };

inline constexpr int kRows = 8;             // rows that a block handles at a time
inline constexpr int kTileRows = 64;        // the same on tensor cores
inline constexpr int kAttendThreads = 128;  // threads of such a block

struct AttendParams {
  const void *q, *k, *v;
  void* out;
  const int* atoms;
  const int* table;  // NULL: atoms have addresses
  long long table_row, table_columns;
  long long q_row, out_row, tokens;
  // Strides from one block, place and head to the next.
  long long k_block, k_place, k_head, v_block, v_place, v_head;
  long long count;         // of the cache's blocks
  int block_size;          // places of a block
  int heads, group, size;  // group: heads of queries that share keys
  int tiles;               // blocks of the grid that share an atom's rows
  int causal;
  float scale;  // on a GPU multiplied by log2(e)

  OPDOCK_HOST_DEVICE const int* list(const int* atom) const {
    const unsigned long long low = static_cast<unsigned>(atom[0]);
    const unsigned long long high = static_cast<unsigned>(atom[1]);
    const unsigned long long number = high << 32 | low;
    if (table) return table + static_cast<long long>(number) * table_row;
    return reinterpret_cast<const int*>(number);
  }
  // Returns the block that has the key; -1: the cache has no such block.
  OPDOCK_HOST_DEVICE int block(const int* list, int key) const {
    const int at = key / block_size;
    if (table && at >= table_columns) return -1;
    const int number = list[at];
    return number < 0 || number >= count ? -1 : number;
  }
  // Returns how many of an atom's keys query `row` sees.
  OPDOCK_HOST_DEVICE int visible(const int* atom, int row) const {
    const int keys = atom[kKeys];
    if (!causal) return keys;
    const int end = atom[kFirstPosition] + row + 1;
    return end < keys ? end : keys;
  }
};

}  // namespace ragged
