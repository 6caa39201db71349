# SPDX-License-Identifier: Apache-2.0
"""The functions of DeepSpeed's module ragged_device_ops, on Opdock's plugin ragged.

A batch is described by int32 tensors: batch_metadata [2], seq_metadata [sequences, 4] and
tokens_to_seq [tokens]; kv_ptrs, int64 [sequences], has addresses of lists of int32 on the device:
the numbers of each sequence's blocks in the cache, [blocks, block size, 2, heads, head size]. All
functions run on the current stream, on GPUs and on the CPU, and take their arguments by position.
docs/reference/deepspeed.md lists the differences from DeepSpeed.
"""

import functools

import torch

from opdock import ops
from opdock.compat.deepspeed._gradients import without_gradients


@without_gradients
def ragged_embed(
    embedded_tokens,
    input_ids,
    embedding_weight,
    position_weight,
    position_embed_offset,
    batch_metadata,
    seq_metadata,
    tokens_to_seq,
    kv_ptrs,
):
    """Writes the rows of embedding_weight for the ids to embedded_tokens, plus those of
    position_weight, if it is not None, for their positions plus the offset. kv_ptrs has no
    effect."""
    ops.ragged_embed(
        embedding_weight,
        input_ids,
        batch_metadata,
        seq_metadata,
        tokens_to_seq,
        position_weight,
        offset=int(position_embed_offset),
        out=embedded_tokens,
    )


@without_gradients
def linear_kv_copy(kv_cache, q, k, v, batch_metadata, seq_metadata, tokens_to_seq, kv_ptrs):
    """Puts the keys and values of the tokens into the cache. q has no effect."""
    ops.append_blocks(k, v, kv_cache, batch_metadata, seq_metadata, tokens_to_seq, kv_ptrs)


@without_gradients
def kv_trained_rotary_embeddings(
    kv_cache, q, k, v, inv_freq, batch_metadata, seq_metadata, tokens_to_seq, kv_ptrs
):
    """Rotates the first 2 * len(inv_freq) elements of each head of q, in place, and of k, and puts
    k and v into the cache. Angles are computed in float32 for all heads."""
    ops.append_blocks(
        k, v, kv_cache, batch_metadata, seq_metadata, tokens_to_seq, kv_ptrs, q, inv_freq
    )


@functools.lru_cache(maxsize=64)
def _frequencies(rotary_dim, theta, device):
    """Returns theta^(-2 i / rotary_dim) for the pairs i, computed as models' own code does. They
    are made on the CPU: when the copy has returned, they are there for every stream."""
    return (theta ** (-torch.arange(0, rotary_dim, 2).float() / rotary_dim)).to(device)


def kv_rotary_embeddings(
    kv_cache,
    q,
    k,
    v,
    rotary_dim,
    theta_base,
    batch_metadata,
    seq_metadata,
    tokens_to_seq,
    kv_ptrs,
):
    """Calls kv_trained_rotary_embeddings() with the frequencies theta_base^(-2 i / rotary_dim)."""
    frequencies = _frequencies(int(rotary_dim), float(theta_base), k.device)
    kv_trained_rotary_embeddings(
        kv_cache, q, k, v, frequencies, batch_metadata, seq_metadata, tokens_to_seq, kv_ptrs
    )


@without_gradients
def gather_for_logits(final_token_acts, token_acts, batch_metadata, seq_metadata):
    """Writes the row of token_acts for the last token of each sequence to final_token_acts."""
    sequences = seq_metadata[: len(final_token_acts)]
    ops.gather_last_tokens(token_acts, batch_metadata, sequences, out=final_token_acts)


@without_gradients
def top_k_gating(expert_counts, scores, assignments, offsets, logits, batch_metadata):
    """Writes the experts of each token, their scores, the token's number among its expert's, and
    the number of each expert's tokens. What expert_counts has before does not count. How many
    experts a token has is the number of columns of scores."""
    ops.top_k_gating(
        logits,
        batch_metadata,
        scores.shape[1],
        out=(expert_counts, scores, assignments, offsets),
    )


@without_gradients
def moe_scatter(
    moe_input, expert_count_cumsums, mapped_slots, activations, expert_counts, assignments, offsets
):
    """Writes the tokens' rows to moe_input, by expert, the sums of expert_counts up to each expert,
    and the row of each token at each of its experts."""
    ops.moe_scatter(
        activations,
        expert_counts,
        assignments,
        offsets,
        out=(moe_input, expert_count_cumsums, mapped_slots),
    )


@without_gradients
def moe_gather(layer_output, moe_output, scores, mapped_slots, expert_counts, normalize_scales):
    """Writes the sum of each token's rows times their scores to layer_output; sets expert_counts to
    0. normalize_scales: the scores of a token are divided by their sum."""
    ops.moe_gather(
        moe_output,
        scores,
        mapped_slots,
        expert_counts,
        normalize=bool(normalize_scales),
        out=layer_output,
    )


def build_atoms(atoms, batch_metadata, seq_metadata, kv_ptrs, q_block_size, kv_block_size):
    """Writes the atoms of a batch to the CPU tensor atoms; returns their number. Raises
    InvalidArgumentError if atoms has too few rows."""
    count = ops.build_atoms(
        atoms, batch_metadata, seq_metadata, kv_ptrs, int(q_block_size), int(kv_block_size)
    )
    return count.item()


@without_gradients
def flash_attn_by_atoms(out, q, k, v, attention_atoms, softmax_scale, is_causal):
    """Writes the attention of the atoms' queries to the keys and values in blocks to out. q, out:
    [tokens, heads * head size]; k, v: [blocks, block size, heads, head size]."""
    ops.attention_by_atoms(
        out, q, k, v, attention_atoms, scale=float(softmax_scale), causal=bool(is_causal)
    )
