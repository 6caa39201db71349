// Implements rope and rope_backward: checks their arguments and hands the heads to the kernels.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <opdock/op.hpp>

#include "device/rope_params.cuh"
#include "rope_cpu.h"

namespace rope {
namespace {

using namespace opdock::usual;

constexpr auto kRotate =
    OPDOCK_KERNEL_FAMILY("rope::rotate", RowTypes, KernelNumbers<1, kMaxHeads>);

struct Arguments {
  Tensor q, k, cos, sin;
  OptionalTensor positions;
  bool interleaved, inverse;
};

// ---------------------------------------------------------------------------------------- checks

void check_heads(const Plan& plan, Tensor q, const char* q_name, Tensor k, const char* k_name) {
  opdock::check_row_dtype(plan, q, q_name);
  check(q, q_name).ndim(3, 4);
  if (q.size(-1) % 2 != 0)
    throw Error(OPDOCK_INVALID_ARGUMENT,
                concat("argument '", q_name, "': found heads of ", q.size(-1), " elements, shape ",
                       q.shape_text(),
                       ", wanted an even number, so that each has a partner; pass "
                       "[..., heads, elements of a head]"));
  check(k, k_name).same_dtype_as(q, q_name).ndim(q.ndim());
  for (int32_t dim = 0; dim + 2 < q.ndim(); ++dim) check(k, k_name).size(dim, q.size(dim));
  check(k, k_name).size(-1, q.size(-1));
}

void check_tables(Tensor q, const char* q_name, Tensor cos) {
  check(cos, "cos").dtype(dtype_of<float>(), q.dtype()).ndim(2);
  if (2 * cos.size(1) > q.size(-1))
    throw Error(OPDOCK_INVALID_ARGUMENT,
                concat("argument 'cos': found ", cos.size(1), " angles in a row, wanted at most ",
                       q.size(-1) / 2, ", one for each pair of '", q_name,
                       "'; of a table that has each angle twice pass one of them"));
}

void check_positions(Tensor q, Tensor cos, const OptionalTensor& positions) {
  const int32_t ndim = q.ndim() - 2;  // dimensions of the tokens
  if (!positions) {
    if (q.size(ndim - 1) <= cos.size(0)) return;
    throw Error(OPDOCK_INVALID_ARGUMENT,
                concat("argument 'cos': found ", cos.size(0), " rows, wanted ", q.size(ndim - 1),
                       ", one for each token of a sequence; pass longer tables, or positions"));
  }
  check(*positions, "positions")
      .dtype(dtype_of<int64_t>(), dtype_of<int32_t>())
      .ndim(1, ndim)
      .aligned();
  for (int32_t dim = 1; dim <= positions->ndim(); ++dim)
    check(*positions, "positions").size(-dim, q.size(ndim - dim));
}

void plan_either(Plan* plan, const Arguments& of, const char* q_name, const char* k_name) {
  check_heads(*plan, of.q, q_name, of.k, k_name);
  check_tables(of.q, q_name, of.cos);
  check_positions(of.q, of.cos, of.positions);
  plan->output(of.q.like());
  plan->output(of.k.like());
}

// --------------------------------------------------------------------------------------- running

// Strides from one sequence, token or head to the next; 0 where the stride does not matter.
struct Steps {
  int64_t sequence, token, head;
};
Steps steps_of(Tensor x) {
  const auto step = [&](int32_t dim) { return x.size(dim) == 1 ? 0 : x.stride(dim); };
  const int64_t sequence = x.ndim() == 4 ? step(0) : 0;
  return {sequence, x.size(-3) == 1 ? sequence : x.stride(-3), step(-2)};
}

Heads heads_of(Tensor in, Tensor out) {
  if (in.numel() == 0) return {};
  const Steps from = steps_of(in), to = steps_of(out);
  return {in.raw(),  out.raw(),   in.size(-2), from.sequence, from.token,
          from.head, to.sequence, to.token,    to.head};
}

bool is_in_place(const Heads& heads) {
  return heads.in == heads.out && heads.in_sequence == heads.out_sequence &&
         heads.in_token == heads.out_token && heads.in_head == heads.out_head;
}

// Treats all sequences as one, if everything continues evenly from one to the next.
void join_sequences(Params* p) {
  const long long each = p->in_each;
  const auto goes_on = [each](const Heads& heads) {
    return heads.in_sequence == each * heads.in_token &&
           heads.out_sequence == each * heads.out_token;
  };
  const bool joins = p->positions && p->position_sequence == each * p->position_token;
  if (joins && goes_on(p->q) && goes_on(p->k)) p->in_each = p->tokens;
}

Params make_params(const Arguments& of, Tensor out_q, Tensor out_k) {
  Params p = {};
  p.q = heads_of(of.q, out_q);
  p.k = heads_of(of.k, out_k);
  p.cos = of.cos.raw();
  p.sin = of.sin.raw();
  p.length = of.cos.size(0);
  p.cos_row = of.cos.stride(0);
  p.sin_row = of.sin.stride(0);
  p.in_each = of.q.size(-3);
  p.tokens = of.q.ndim() == 4 ? of.q.size(0) * p.in_each : p.in_each;
  if (of.positions) {
    p.positions = of.positions->raw();
    if (of.positions->ndim() == 2) p.position_sequence = of.positions->stride(0);
    p.position_token = of.positions->size(-1) == 1 ? p.position_sequence : of.positions->stride(-1);
    p.wide_positions = of.positions->dtype().bytes() == 8;
  }
  p.rotated = 2 * of.cos.size(1);
  p.copied = of.q.size(-1) - p.rotated;
  p.narrow_tables = of.cos.dtype() == of.q.dtype();
  p.interleaved = of.interleaved;
  p.inverse = of.inverse;
  if (p.tokens > 0x7fffffff)
    throw Error(OPDOCK_UNSUPPORTED, concat("found ", p.tokens,
                                           " tokens, wanted at most 2^31 - 1; pass fewer at a "
                                           "time"));
  join_sequences(&p);
  return p;
}

// Checks all positions before anything is written, because heads may be rotated in place.
void check_rows_exist(const Params& p) {
  if (!p.positions) return;
  for (long long token = 0; token < p.tokens; ++token) {
    const long long position = p.position(p.place(token));
    if (p.has_row(position)) continue;
    throw Error(OPDOCK_INVALID_ARGUMENT,
                concat("argument 'positions': found ", position, " for token ", token,
                       ", wanted 0 to ", p.length - 1,
                       ", the rows of 'cos' and 'sin'; pass "
                       "longer tables"));
  }
}

// Returns whether everything that a GPU's threads access consists of aligned 16-byte pieces.
bool is_by_vectors(const Params& p, int64_t element, int64_t table_element) {
  uint64_t low = 0;
  const auto add = [&low](const void* data, int64_t bytes, std::initializer_list<int64_t> strides) {
    low |= reinterpret_cast<uintptr_t>(data);
    for (const int64_t stride : strides) low |= static_cast<uint64_t>(stride * bytes);
  };
  for (const Heads* heads : {&p.q, &p.k}) {
    if (heads->count == 0) continue;
    add(heads->in, element, {heads->in_sequence, heads->in_token, heads->in_head});
    add(heads->out, element, {heads->out_sequence, heads->out_token, heads->out_head});
  }
  add(p.cos, table_element, {p.cos_row});
  add(p.sin, table_element, {p.sin_row});
  add(nullptr, element, {p.rotated / 2, p.copied});
  return low % 16 == 0;
}

int64_t divide_up(int64_t number, int64_t by) {
  return (number + by - 1) / by;
}
// Returns a number of threads, at most `most`, that leaves as few as possible idle in the last
// block.
int64_t even_share(int64_t number, int64_t most) {
  return divide_up(number, divide_up(number, most));
}

// The kernel multiplies strides in 32 bits.
void check_strides(const Params& p) {
  for (const long long stride :
       {p.q.in_token, p.q.in_head, p.q.out_token, p.q.out_head, p.k.in_token, p.k.in_head,
        p.k.out_token, p.k.out_head, p.cos_row, p.sin_row}) {
    if (stride == static_cast<int32_t>(stride)) continue;
    throw Error(OPDOCK_UNSUPPORTED,
                concat("found a stride of ", stride,
                       " elements from one token, head or row of a "
                       "table to the next, wanted less than 2^31; make the tensor contiguous"));
  }
}

// Threads per multiprocessor: two launches with no more than this run at the same time.
constexpr int64_t kEarlyThreads = 512;

// A thread with more heads reads fewer angles. With one head each there are more threads. These are
// wanted if all of them run at once (is_few), and if most groups of four would have only one head.
int64_t heads_of_thread(const Params& p, bool is_few) {
  const int64_t fours = divide_up(p.q.count, kMaxHeads) + divide_up(p.k.count, kMaxHeads);
  return is_few || fours * kMaxHeads > 2 * (p.q.count + p.k.count) ? 1 : kMaxHeads;
}

void launch(const Call& call, opdock::Dtype dtype, int64_t table_element, Params* p) {
  check_strides(*p);
  if ((p->q.count == 0 || is_in_place(p->q)) && (p->k.count == 0 || is_in_place(p->k)))
    p->copied = 0;
  p->by_vectors = is_by_vectors(*p, dtype.bytes(), table_element);
  const int64_t piece = p->by_vectors ? 16 / dtype.bytes() : 1;
  const int64_t slots = p->rotated / (2 * piece) + divide_up(p->copied / piece, 2);
  if (slots == 0) return;
  const int64_t multiprocessors = call.facts().multiprocessors;
  const int64_t most = p->tokens * slots * (p->q.count + p->k.count);
  const int64_t heads = heads_of_thread(*p, most <= multiprocessors * kEarlyThreads);
  p->q_groups = divide_up(p->q.count, heads);
  p->groups = p->q_groups + divide_up(p->k.count, heads);
  // Blocks are small if there would not be enough large ones for all multiprocessors.
  const int64_t threads = most > multiprocessors * kThreads ? kThreads : kFewThreads;
  const int64_t x = even_share(slots, threads), y = even_share(p->groups, threads / x);
  // A block has at most 64 threads in its third dimension.
  const int64_t z = std::min<int64_t>({p->tokens, threads / (x * y), 64});
  const int64_t head_blocks = divide_up(p->groups, y), token_blocks = divide_up(p->tokens, z);
  const int64_t slot_blocks = divide_up(slots, x);
  if (head_blocks > 0x7fffffff / token_blocks || slot_blocks > 0xffff)
    throw Error(
        OPDOCK_UNSUPPORTED,
        concat("found ", p->tokens, " tokens with ", p->q.count + p->k.count, " heads of ",
               p->rotated + p->copied, " elements, wanted fewer; pass a part of them at a time"));
  p->head_blocks = static_cast<int>(head_blocks);
  p->is_simple = p->by_vectors && p->copied == 0 && p->in_each == p->tokens && slot_blocks == 1;
  const int64_t blocks = token_blocks * head_blocks;
  opdock::Launch how = {opdock::Dim3(blocks, 1, slot_blocks), opdock::Dim3(x, y, z)};
  // With more threads, the next launch's blocks do not all find room and gather on some of the
  // multiprocessors: a chain of such launches took a fifth longer.
  if (slot_blocks == 1 && blocks * x * y * z <= multiprocessors * kEarlyThreads)
    how.flags = opdock::detail::pdl_launch_flags(call, blocks, x * y * z);
  call.launch(kRotate(dtype, heads), how, *p);
}

// Refuses an output in the memory of the other argument. The host has already ensured that an
// output either shares no memory with an argument or is an argument itself.
void check_output(Tensor out, const char* name, Tensor other, const char* other_name) {
  if (out.numel() == 0 || other.numel() == 0 || out.raw() != other.raw()) return;
  throw Error(OPDOCK_INVALID_ARGUMENT,
              concat(name, ": found the memory of '", other_name,
                     "', wanted its own or that of the argument that it is made of; swap the "
                     "outputs"));
}

void run_either(Call& call, Results results, const Arguments& of, const char* q_name,
                const char* k_name) {
  check_output(results[0], "output 0", of.k, k_name);
  check_output(results[1], "output 1", of.q, q_name);
  if (of.q.numel() == 0 && of.k.numel() == 0) return;
  Params params = make_params(of, results[0], results[1]);
  if (!call.is_cpu()) return launch(call, of.q.dtype(), of.cos.dtype().bytes(), &params);
  check_rows_exist(params);
  const Job job = {of.q.dtype(), params};
  static const auto kernel = OPDOCK_SIMD_CHOOSE(rotate);
  // Waking a second thread pays off for about ten microseconds of work.
  const int64_t elements = (params.q.count + params.k.count) * of.q.size(-1);
  call.parallel_for(params.tokens, std::max<int64_t>(1, 16384 / elements),
                    [&](int64_t begin, int64_t end) { kernel(job, begin, end); });
}

void plan_rope(Plan& plan, Tensor q, Tensor k, Tensor cos, Tensor sin, OptionalTensor positions,
               bool) {
  plan_either(&plan, {q, k, cos, sin, positions, false, false}, "q", "k");
}
void run_rope(Call& call, Results results, Tensor q, Tensor k, Tensor cos, Tensor sin,
              OptionalTensor positions, bool interleaved) {
  run_either(call, results, {q, k, cos, sin, positions, interleaved, false}, "q", "k");
}
void plan_backward(Plan& plan, Tensor grad_q, Tensor grad_k, Tensor cos, Tensor sin,
                   OptionalTensor positions, bool) {
  plan_either(&plan, {grad_q, grad_k, cos, sin, positions, false, true}, "grad_q", "grad_k");
}
void run_backward(Call& call, Results results, Tensor grad_q, Tensor grad_k, Tensor cos, Tensor sin,
                  OptionalTensor positions, bool interleaved) {
  run_either(call, results, {grad_q, grad_k, cos, sin, positions, interleaved, true}, "grad_q",
             "grad_k");
}

}  // namespace
}  // namespace rope

OPDOCK_OP(rope, rope::plan_rope, nullptr, rope::run_rope)
OPDOCK_OP(rope_backward, rope::plan_backward, nullptr, rope::run_backward)
