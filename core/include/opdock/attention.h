/*
 * opdock/attention.h: attention for plugins, the extension "opdock.attention/1", in C11.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * opdock_attention_table, at the end, has an example. The work is done by cuDNN, which the host
 * finds at run time. The host has no kernels of its own for it: where the library does not serve,
 * plan says so, and the plugin computes by itself (docs/concepts/attention.md).
 * opdock/attention.hpp does the same with tensors in C++17.
 *
 * Errors, threads, tags and ownership are those of plugin.h.
 */
#ifndef OPDOCK_ATTENTION_H_
#define OPDOCK_ATTENTION_H_

#include "opdock/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OPDOCK_ATTENTION_1 "opdock.attention/1"

/* Element e of head h of token t of row b lies at data + (b * row_stride + h * head_stride +
 * t * token_stride + e) elements. The memory is on the device of the call. */
typedef struct opdock_attention_heads { /* frozen */
  void* data;                           /* may be NULL while planning */
  int64_t row_stride, head_stride, token_stride;
} opdock_attention_heads;

/* Flags. */
#define OPDOCK_ATTENTION_BACKWARD 1u     /* computes the gradients of q, k and v */
#define OPDOCK_ATTENTION_CAUSAL 2u       /* a query sees the keys up to its own place */
#define OPDOCK_ATTENTION_BOTTOM_RIGHT 4u /* the last query is at the place of the last key */
#define OPDOCK_ATTENTION_LSE 8u          /* forward: lse is wanted */
#define OPDOCK_ATTENTION_QUERY_LENGTHS 16u
#define OPDOCK_ATTENTION_KEY_LENGTHS 32u
/* Equal calls give equal bits, as they do without this flag if the caller asks for it
 * (opdock_call_options.wants_deterministic). */
#define OPDOCK_ATTENTION_DETERMINISTIC 64u
#define OPDOCK_ATTENTION_SLOPES 128u        /* ALiBi; with CAUSAL, without BOTTOM_RIGHT */
#define OPDOCK_ATTENTION_BIAS_GRADIENT 256u /* with BACKWARD */
#define OPDOCK_ATTENTION_DROPOUT 512u
#define OPDOCK_ATTENTION_RAGGED 1024u /* with both lengths: rows lie one after another */
#define OPDOCK_ATTENTION_PAGED 2048u  /* forward, with both lengths: k and v lie in blocks */

/* For each row b and each head h, with the head h * kv_heads / heads of k and v:
 *   scores = scale * q k' + bias + slope * (key's number - query's number),
 *            minus infinity where a query does not see a key
 *   lse = log of the sum of exp(scores) over the keys;   out = exp(scores - lse) v
 *
 * Query i is at place i; with BOTTOM_RIGHT at place i + (keys - queries), of row b's lengths if
 * there are any. With CAUSAL a query at place p sees no key above p, and with a window only keys
 * above p - window. Keys at or above the row's length are not seen. Queries at or above it, and
 * those that see no key because of their place, have 0 in out and minus infinity in lse, and the
 * gradients of what is not seen are 0. A row of no keys, or a query whose bias is minus infinity
 * for each key that it sees, gives NaN.
 *
 * DROPOUT: each weight exp(scores - lse) becomes 0 with the probability `dropout`, and the others
 * are divided by 1 - dropout. The library decides by a seed and an offset which ones, in its own
 * order: equal numbers give equal weights forward and backward, but other kernels cannot repeat
 * them. So a backward with DROPOUT needs a forward that was computed by this table. Declined unless
 * the user asks for the library by OPDOCK_ATTENTION; then each form that is not declined for its
 * sizes, strides or alignments, those of gradients excepted, is computed by the library or fails
 * (OPDOCK_INCOMPATIBLE). Not with a bias or BOTTOM_RIGHT.
 *
 * RAGGED: row b of a tensor begins at data + offsets[b] elements, whatever row_stride is, and has
 * as many tokens as its length says; `queries` and `keys` are at least the longest lengths. The
 * gradients lie as q, k, v and out do.
 *
 * PAGED: token t of row b of k is token t % block_size of block block_table[b][t / block_size], and
 * row_stride is the distance of blocks; v likewise.
 *
 * Elements are float16 or bfloat16, sums float32. Results share no memory with anything else. */
typedef struct opdock_attention {
  uint32_t struct_size;
  uint32_t flags;     /* OPDOCK_ATTENTION_… */
  opdock_dtype dtype; /* of q, k, v, out and their gradients: float16 or bfloat16 */
  float scale;
  int64_t batch;           /* rows */
  int64_t heads, kv_heads; /* kv_heads divides heads */
  int64_t queries, keys;   /* tokens */
  int64_t size;            /* elements of a head of q and k */
  int64_t value_size;      /* of a head of v and out */
  int64_t window;          /* how many keys a query sees at most; 0: any number */
  opdock_attention_heads q, k, v;
  opdock_attention_heads out;           /* written; BACKWARD: read */
  opdock_attention_heads d_out;         /* BACKWARD: read */
  opdock_attention_heads d_q, d_k, d_v; /* BACKWARD: written */
  float* lse;                           /* [batch, heads, queries]; BACKWARD: read */
  const int32_t* query_lengths;         /* [batch], with QUERY_LENGTHS */
  const int32_t* key_lengths;           /* [batch], with KEY_LENGTHS */
  const void* bias;                     /* [batch, heads, queries, keys] */
  opdock_dtype bias_dtype;              /* float32 or `dtype`; bits 0: there is no bias */
  uint32_t reserved;
  int64_t bias_strides[4]; /* elements; 0 in the first two: one for all */
  const float* slopes;     /* [heads], with SLOPES, aligned to 16 bytes */
  void* d_bias;            /* BIAS_GRADIENT: written; dtype and shape of the bias, contiguous */
  /* DROPOUT, 0 < dropout < 1. A number is read from the address, in the device's memory, or if that
   * is NULL taken from the struct. */
  const int64_t* dropout_seed_at;
  const int64_t* dropout_offset_at;
  int64_t dropout_seed, dropout_offset;
  float dropout;
  uint32_t reserved_too;
  /* RAGGED: [batch + 1] each; the last one is the end. lse_offsets NULL: lse lies as without
   * RAGGED; else number (h, t) of row b at lse_offsets[b] + h * lse_strides[0] + t *
   * lse_strides[1]. */
  const int64_t *q_offsets, *k_offsets, *v_offsets, *out_offsets, *lse_offsets;
  int64_t lse_strides[2];
  /* PAGED. [batch, keys / block_size rounded up]; table_stride: elements from row to row. */
  const int32_t* block_table;
  int64_t table_stride;
  int64_t block_size; /* tokens */
  int64_t blocks;     /* of k and of v */
} opdock_attention;

/* The table of the extension "opdock.attention/1".
 *
 *   static opdock_status in_plan(const opdock_call* call, opdock_attention what,
 *                                opdock_plan* plan) {
 *     const opdock_attention_table* attention = call->host->get_extension(OPDOCK_ATTENTION_1);
 *     // For OPDOCK_UNSUPPORTED, plan and run go on to kernels of the plugin's own if it has any.
 *     if (attention != NULL) return attention->plan(call, &what, &plan->workspace_bytes);
 *     return call->host->set_error(call, OPDOCK_UNSUPPORTED, "no " OPDOCK_ATTENTION_1);
 *   }
 *   static opdock_status in_prepare(const opdock_call* call) {
 *     const opdock_attention_table* attention = call->host->get_extension(OPDOCK_ATTENTION_1);
 *     return attention == NULL ? OPDOCK_OK : attention->prepare(call);
 *   }
 *   static opdock_status in_run(const opdock_call* call, opdock_attention what) {
 *     const opdock_attention_table* attention = call->host->get_extension(OPDOCK_ATTENTION_1);
 *     return attention->run(call, &what, call->workspace, call->workspace_bytes);
 *   }
 */
typedef struct opdock_attention_table {
  uint32_t struct_size;
  uint32_t reserved;
  /* [planning]
   * Finds out whether the library computes this attention, and writes the size in bytes of the
   * workspace that run needs, aligned to 256 bytes. Addresses count only by their alignment; NULL
   * is well aligned. With q.data NULL the answer is that of shapes alone: workspace_bytes is 0, and
   * the library may still decline when the call has data. The first plan of a form on a thread
   * blocks: it opens the library and has it choose a kernel, 0.1 s. Unless the user asks for the
   * library by OPDOCK_ATTENTION, a form is declined until that time is lost by calls of run that
   * were declined for it, as the host estimates from its sizes.
   * OPDOCK_UNSUPPORTED: it does not, with the reason; the host logs each kind of reason once. So it
   * is if the form is new and the stream is being captured. OPDOCK_INVALID_ARGUMENT: the struct
   * contradicts itself. */
  opdock_status (*plan)(const opdock_call* call, const opdock_attention* what,
                        uint64_t* workspace_bytes);
  /* [preparing]
   * Opens the library, so that the first plan takes less time. Blocks. Succeeds without a library
   * too. */
  opdock_status (*prepare)(const opdock_call* call);
  /* [running]
   * Enqueues the attention on the call's stream. workspace: memory of the size that plan asked for,
   * which nothing else uses until the attention is done. Strides and alignments that plan has not
   * seen make a new form, as in plan. OPDOCK_UNSUPPORTED: nothing was enqueued. Call it also where
   * plan has declined: a form earns its plan by these calls. */
  opdock_status (*run)(const opdock_call* call, const opdock_attention* what, void* workspace,
                       uint64_t workspace_bytes);
} opdock_attention_table;

#ifdef __cplusplus
}
#endif
#endif /* OPDOCK_ATTENTION_H_ */
