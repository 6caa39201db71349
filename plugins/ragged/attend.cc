// Implements build_atoms and attention_by_atoms.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <vector>

#include "ragged.h"

namespace ragged {
namespace {

constexpr auto kAttend =
    OPDOCK_KERNEL_FAMILY("ragged::attend", opdock::RowTypes, opdock::KernelNumbers<128, 256>);

constexpr auto kAttendTiles = OPDOCK_KERNEL_FAMILY(
    "ragged::attend_tiles", KernelTypes<opdock::half, opdock::bfloat16>, KernelNumbers<128, 256>);

// ----------------------------------------------------------------------------------------- atoms

void plan_atoms(Plan& plan, Tensor atoms, Tensor batch, Tensor sequences, Tensor block_lists,
                int64_t q_block, int64_t kv_block) {
  check(atoms, "atoms").dtype(dtype_of<int32_t>()).ndim(2).size(1, kAtomInts);
  check_batch(batch, sequences);
  check(block_lists, "block_lists").dtype(dtype_of<int64_t>()).shape({sequences.size(0)});
  const auto check_block = [](int64_t block, const char* name) {
    opdock::check_number(static_cast<double>(block), name, block >= 1 && block <= 0x7fffffff,
                         "at least 1 and less than 2^31; 128 is usual");
  };
  check_block(q_block, "q_block");
  check_block(kv_block, "kv_block");
  plan.output(opdock::Layout(dtype_of<int32_t>(), {1}));
}

void run_atoms(Call&, Results results, Tensor atoms, Tensor batch, Tensor sequences,
               Tensor block_lists, int64_t q_block, int64_t kv_block) {
  const int32_t* const counts = batch.data<int32_t>();
  const int64_t* const lists = block_lists.data<int64_t>();
  const int64_t most = atoms.size(0);
  if (counts[1] < 0 || counts[1] > sequences.size(0))
    throw Error(OPDOCK_INVALID_ARGUMENT,
                concat("argument 'batch': found ", counts[1], " sequences, wanted at most the ",
                       sequences.size(0), " rows of 'sequences'; pass a batch's own description"));
  int64_t number = 0;
  for (int32_t s = 0; s < counts[1]; ++s) {
    const int32_t* const of = sequences.data<int32_t>() + 4 * int64_t{s};
    const int64_t needed = (std::max<int64_t>(0, of[1]) + q_block - 1) / q_block;
    if (needed > most - number)
      throw Error(OPDOCK_INVALID_ARGUMENT,
                  concat("argument 'atoms': found ", most, " rows, wanted at least ",
                         number + needed, " for the tokens of ", s + 1, " sequences, ", q_block,
                         " in an atom; pass more rows, or a larger 'q_block'"));
    const uint64_t address = static_cast<uint64_t>(lists[s]);
    for (int64_t done = 0; done < of[1]; done += q_block) {
      const int64_t queries = std::min<int64_t>(q_block, of[1] - done);
      const int64_t position = of[2] + done, keys = position + queries;
      int32_t* const atom = atoms.data<int32_t>() + number++ * kAtomInts;
      atom[0] = static_cast<int32_t>(static_cast<uint32_t>(address));
      atom[1] = static_cast<int32_t>(static_cast<uint32_t>(address >> 32));
      atom[kFirstQuery] = static_cast<int32_t>(of[0] + done);
      atom[kQueries] = static_cast<int32_t>(queries);
      atom[kBlocks] = static_cast<int32_t>((keys + kv_block - 1) / kv_block);
      atom[kKeys] = static_cast<int32_t>(keys);
      atom[kFirstPosition] = static_cast<int32_t>(position);
      atom[kAtomInts - 1] = 0;
    }
  }
  *results[0].data<int32_t>() = static_cast<int32_t>(number);
}

// ------------------------------------------------------------------------------------- attention

void check_blocks(Tensor out, Tensor x, const char* name) {
  check(x, name).same_dtype_as(out, "out").ndim(4).aligned(16);
  for (int32_t dim = 0; dim < 3; ++dim) {
    if (x.size(dim) == 1 || x.is_empty() || x.stride(dim) * out.dtype().bytes() % 16 == 0) continue;
    throw Error(OPDOCK_UNSUPPORTED, concat("argument '", name, "': found a stride of ",
                                           x.stride(dim), " elements in dimension ", dim,
                                           ", wanted a multiple of 16 bytes; make it contiguous"));
  }
}

void plan_attend(Plan&, Tensor out, Tensor q, Tensor k, Tensor v, Tensor atoms,
                 OptionalTensor block_table, std::optional<double> scale, bool) {
  check_element(out, "out");
  check(out, "out").ndim(2);
  check(q, "q").like(out, "out");
  check_blocks(out, k, "k");
  check_blocks(out, v, "v");
  check(v, "v").same_shape_as(k, "k");
  const int64_t size = k.size(3), kv = k.size(2) * size;
  if (size == 0 || size % 8 != 0 || size > kMaxHead)
    throw Error(OPDOCK_UNSUPPORTED, concat("argument 'k': found heads of ", size,
                                           " elements, wanted a multiple of 8 up to ", kMaxHead,
                                           "; pass [blocks, block size, heads, elements]"));
  if (k.size(1) > 0x3fffffff)
    throw Error(OPDOCK_UNSUPPORTED, concat("argument 'k': found blocks of ", k.size(1),
                                           " places, wanted less than 2^30; pass smaller ones"));
  if (kv == 0 || k.size(1) == 0 || out.size(1) % kv != 0)
    throw Error(OPDOCK_INVALID_ARGUMENT,
                concat("argument 'q': found ", out.size(1), " columns for keys of shape ",
                       k.shape_text(), ", wanted a multiple of ", kv,
                       ", the elements of all heads of keys; pass whole heads"));
  check(atoms, "atoms").dtype(dtype_of<int32_t>()).ndim(2).size(1, kAtomInts);
  if (block_table)
    check(*block_table, "block_table")
        .dtype(dtype_of<int32_t>())
        .ndim(2)
        .contiguous_last_dim()
        .aligned();
  if (scale)
    opdock::check_number(*scale, "scale", std::isfinite(*scale), "a finite number; pass one");
}

void check_atoms(const AttendParams& p, int64_t atoms, int64_t table_rows) {
  const auto refuse = [](int64_t number, const char* what, int64_t found, int64_t most) {
    throw Error(OPDOCK_INVALID_ARGUMENT,
                concat("argument 'atoms': found ", found, " as ", what, " of atom ", number,
                       ", wanted 0 to ", most, "; make them by build_atoms"));
  };
  for (int64_t n = 0; n < atoms; ++n) {
    const int* const atom = p.atoms + n * kAtomInts;
    const int64_t end = int64_t{atom[kFirstQuery]} + atom[kQueries];
    if (atom[kFirstQuery] < 0) refuse(n, "the first token", atom[kFirstQuery], p.tokens);
    if (atom[kQueries] < 0 || end > p.tokens) refuse(n, "the end of the tokens", end, p.tokens);
    if (p.table && (atom[1] != 0 || atom[0] < 0 || atom[0] >= table_rows))
      refuse(n, "the row of 'block_table'", atom[0], table_rows - 1);
    if (atom[kQueries] == 0) continue;
    const int* const list = p.list(atom);
    for (int key = 0; key < p.visible(atom, atom[kQueries] - 1); key += p.block_size) {
      if (p.block(list, key) >= 0) continue;
      throw Error(OPDOCK_INVALID_ARGUMENT,
                  concat("argument 'atoms': found no block of 'k' for key ", key, " of atom ", n,
                         ", wanted one of the ", p.count, "; reserve blocks for its tokens first"));
    }
  }
}

// One head of one query of an atom.
template <class T>
void attend_row(const AttendParams& p, const int* atom, int row, int head,
                std::vector<float>* scores) {
  const int64_t query = atom[kFirstQuery] + row, size = p.size;
  const T* const q = static_cast<const T*>(p.q) + query * p.q_row + head * size;
  T* const out = static_cast<T*>(p.out) + query * p.out_row + head * size;
  const int keys = p.visible(atom, row), kv_head = head / p.group;
  const int* const list = p.list(atom);
  scores->resize(static_cast<size_t>(std::max(keys, 0)));
  float most = -std::numeric_limits<float>::infinity();
  for (int key = 0; key < keys; ++key) {
    const T* const k = static_cast<const T*>(p.k) + p.block(list, key) * p.k_block +
                       key % p.block_size * p.k_place + kv_head * p.k_head;
    float score = 0;
    for (int64_t i = 0; i < size; ++i) score += static_cast<float>(q[i]) * static_cast<float>(k[i]);
    (*scores)[static_cast<size_t>(key)] = score *= p.scale;
    most = std::max(most, score);
  }
  float sum = 0, of_values[kMaxHead] = {};
  for (int key = 0; key < keys; ++key) {
    const T* const v = static_cast<const T*>(p.v) + p.block(list, key) * p.v_block +
                       key % p.block_size * p.v_place + kv_head * p.v_head;
    const float weight = std::exp((*scores)[static_cast<size_t>(key)] - most);
    sum += weight;
    for (int64_t i = 0; i < size; ++i) of_values[i] += weight * static_cast<float>(v[i]);
  }
  for (int64_t i = 0; i < size; ++i) out[i] = T(sum == 0 ? 0.0f : of_values[i] / sum);
}

int64_t stride_of(Tensor x, int32_t dim) {
  return x.size(dim) == 1 ? 0 : x.stride(dim);
}

void run_attend(Call& call, Results, Tensor out, Tensor q, Tensor k, Tensor v, Tensor atoms,
                OptionalTensor block_table, std::optional<double> scale, bool causal) {
  AttendParams p = {};
  p.q = q.raw();
  p.k = k.raw();
  p.v = v.raw();
  p.out = out.raw();
  p.atoms = atoms.data<int32_t>();
  if (block_table) {
    p.table = block_table->data<int32_t>();
    p.table_row = row_stride(*block_table);
    p.table_columns = block_table->size(1);
  }
  p.q_row = row_stride(q);
  p.out_row = row_stride(out);
  p.tokens = out.size(0);
  p.k_block = stride_of(k, 0);
  p.k_place = stride_of(k, 1);
  p.k_head = stride_of(k, 2);
  p.v_block = stride_of(v, 0);
  p.v_place = stride_of(v, 1);
  p.v_head = stride_of(v, 2);
  p.count = k.size(0);
  p.block_size = static_cast<int>(k.size(1));
  p.size = static_cast<int>(k.size(3));
  p.heads = static_cast<int>(out.size(1) / p.size);
  p.group = static_cast<int>(p.heads / k.size(2));
  p.causal = causal;
  const int64_t count = atoms.size(0);
  if (count == 0 || p.heads == 0 || p.tokens == 0) return;
  const double factor = scale ? *scale : 1 / std::sqrt(static_cast<double>(p.size));
  if (!call.is_cpu()) {
    p.scale = static_cast<float>(factor * 1.4426950408889634);
    // How many queries an atom has is known to the device only. Blocks for the mean of them serve
    // long atoms in several turns, and are few where each atom has one query.
    const int64_t rows = (p.tokens + count - 1) / count * p.group;
    // Tensor cores would multiply mostly zeros for few rows, and too few warps would read keys.
    const bool by_tiles = call.is_cuda() && call.facts().arch_major >= 8 && rows > 2 * kRows &&
                          out.dtype().bytes() == 2;
    const int64_t each = by_tiles ? kTileRows : kRows, size = p.size <= 128 ? 128 : 256;
    p.tiles = static_cast<int>(std::min<int64_t>((rows + each - 1) / each, 1024));
    const uint32_t kernel = by_tiles ? kAttendTiles(out.dtype(), size) : kAttend(out.dtype(), size);
    return launch_blocks(call, kernel, count * k.size(2) * p.tiles, kAttendThreads, p, "atoms");
  }
  p.scale = static_cast<float>(factor);
  check_atoms(p, count, block_table ? block_table->size(0) : 0);
  for_type(out, "out", [&](auto tag) {
    using T = typename decltype(tag)::type;
    call.parallel_for(count * p.heads, 1, [&](int64_t begin, int64_t end) {
      std::vector<float> scores;
      for (int64_t job = begin; job < end; ++job) {
        const int* const atom = p.atoms + job / p.heads * kAtomInts;
        for (int row = 0; row < atom[kQueries]; ++row)
          attend_row<T>(p, atom, row, static_cast<int>(job % p.heads), &scores);
      }
    });
  });
}

}  // namespace
}  // namespace ragged

OPDOCK_OP(build_atoms, ragged::plan_atoms, nullptr, ragged::run_atoms)
OPDOCK_OP(attention_by_atoms, ragged::plan_attend, nullptr, ragged::run_attend)
