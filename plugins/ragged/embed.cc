// Implements ragged_embed and gather_last_tokens.
// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "ragged.h"

namespace ragged {
namespace {

constexpr auto kEmbed = OPDOCK_KERNEL_FAMILY("ragged::embed", opdock::RowTypes);
constexpr auto kLast = OPDOCK_KERNEL_FAMILY("ragged::last", opdock::RowTypes);

void plan_embed(Plan& plan, Tensor table, Tensor ids, Tensor batch, Tensor sequences,
                Tensor token_sequences, OptionalTensor positions, int64_t) {
  check_element(table, "table");
  check(table, "table").ndim(2);
  check(ids, "ids").dtype(dtype_of<int64_t>(), dtype_of<int32_t>()).ndim(1);
  check_batch(batch, sequences);
  check_tokens(token_sequences, ids.size(0));
  if (positions) {
    check(*positions, "positions")
        .same_dtype_as(table, "table")
        .ndim(2)
        .size(1, table.size(1))
        .contiguous_last_dim()
        .aligned();
    if (positions->size(0) == 0)
      throw Error(OPDOCK_INVALID_ARGUMENT,
                  "argument 'positions': found no rows, wanted at least one; pass None without "
                  "positions");
  }
  plan.output(opdock::Layout(table.dtype(), {ids.size(0), table.size(1)}));
}

int64_t checked_tokens(const Batch& batch, int64_t most) {
  const int64_t tokens = batch.counts[0];
  if (tokens < 0 || tokens > most)
    throw Error(OPDOCK_INVALID_ARGUMENT,
                concat("argument 'batch': found ", tokens, " tokens, wanted at most the ", most,
                       " that there are; pass a batch's own description"));
  return tokens;
}

template <class T>
void embed_token(const EmbedParams& p, int64_t token, int64_t tokens) {
  T* const to = static_cast<T*>(p.out) + token * p.columns;
  if (token >= tokens) {
    std::fill_n(to, p.columns, T(0.0f));
    return;
  }
  const T* const word = static_cast<const T*>(p.table) + p.id(token) * p.table_row;
  if (!p.positions) {
    std::copy_n(word, p.columns, to);
    return;
  }
  const T* const place = static_cast<const T*>(p.positions) + p.place(token) * p.positions_row;
  for (int64_t i = 0; i < p.columns; ++i)
    to[i] = T(static_cast<float>(word[i]) + static_cast<float>(place[i]));
}

void run_embed(Call& call, Results results, Tensor table, Tensor ids, Tensor batch,
               Tensor sequences, Tensor token_sequences, OptionalTensor positions, int64_t offset) {
  const Tensor out = results[0];
  check(out, "output 0").contiguous().aligned();
  if (out.is_empty()) return;
  EmbedParams p = {};
  p.batch = batch_of(batch, sequences, &token_sequences);
  p.ids = ids.raw();
  p.table = table.raw();
  p.out = out.raw();
  p.tokens = out.size(0);
  p.columns = out.size(1);
  p.words = table.size(0);
  p.table_row = row_stride(table);
  p.offset = offset;
  p.wide_ids = ids.dtype().bytes() == 8;
  Vectors vectors = Vectors(table).row(table).address(p.out).elements(p.columns);
  if (positions) {
    p.positions = positions->raw();
    p.places = positions->size(0);
    p.positions_row = row_stride(*positions);
    vectors.row(*positions);
  }
  p.by_vectors = vectors.fit();
  if (!call.is_cpu())
    return launch_blocks(call, kEmbed(table.dtype()), p.tokens, kThreads, p, "tokens");
  const int64_t tokens = checked_tokens(p.batch, p.tokens);
  for (int64_t token = 0; token < tokens; ++token) {
    if (p.has_word(p.id(token))) continue;
    throw Error(OPDOCK_INVALID_ARGUMENT,
                concat("argument 'ids': found ", p.id(token), " for token ", token,
                       ", wanted 0 to ", p.words - 1, ", the rows of 'table'; pass its own ids"));
  }
  for_type(table, "table", [&](auto tag) {
    using T = typename decltype(tag)::type;
    call.parallel_for(p.tokens, std::max<int64_t>(1, kGrain / p.columns),
                      [&](int64_t begin, int64_t end) {
                        for (int64_t t = begin; t < end; ++t) embed_token<T>(p, t, tokens);
                      });
  });
}

void plan_last(Plan& plan, Tensor x, Tensor batch, Tensor sequences) {
  check_element(x, "x");
  check(x, "x").ndim(2);
  check_batch(batch, sequences);
  plan.output(opdock::Layout(x.dtype(), {sequences.size(0), x.size(1)}));
}

void run_last(Call& call, Results results, Tensor x, Tensor batch, Tensor sequences) {
  const Tensor out = results[0];
  check(out, "output 0").contiguous().aligned();
  if (out.is_empty()) return;
  LastParams p = {};
  p.batch = batch_of(batch, sequences);
  p.x = x.raw();
  p.out = out.raw();
  p.sequences = out.size(0);
  p.columns = out.size(1);
  p.tokens = x.size(0);
  p.x_row = row_stride(x);
  p.by_vectors = Vectors(x).row(x).address(p.out).elements(p.columns).fit();
  if (!call.is_cpu())
    return launch_blocks(call, kLast(x.dtype()), p.sequences, kThreads, p, "sequences");
  const int64_t bytes = x.dtype().bytes();
  for (int64_t s = 0; s < p.sequences; ++s) {
    char* const to = static_cast<char*>(p.out) + s * p.columns * bytes;
    const int64_t row = p.last(s);
    const size_t length = static_cast<size_t>(p.columns * bytes);
    if (row < 0)
      std::memset(to, 0, length);
    else
      std::memcpy(to, static_cast<const char*>(p.x) + row * p.x_row * bytes, length);
  }
}

}  // namespace
}  // namespace ragged

OPDOCK_OP(ragged_embed, ragged::plan_embed, nullptr, ragged::run_embed)
OPDOCK_OP(gather_last_tokens, ragged::plan_last, nullptr, ragged::run_last)
