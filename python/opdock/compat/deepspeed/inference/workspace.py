# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's functions for what stays between calls: keys and values, and the counter of tokens.

arenas.py has these. Other results need no workspace: they are tensors of torch's.
"""

import torch

from opdock._errors import InvalidArgumentError, OutOfMemoryError
from opdock.compat.deepspeed.inference import arenas
from opdock.compat.deepspeed.inference._checks import refuse, without_gradients

_RESERVE = 500 << 20  # bytes of a GPU's memory that no cache takes, as with DeepSpeed


def places(wanted, bytes_a_token, free):
    """How many of the wanted tokens fit into `free` bytes, of which 500 MB are left."""
    return min(wanted, max(0, free - _RESERVE) // max(1, bytes_a_token))


def _free_bytes():
    """What a new workspace may take of the current GPU's memory; None without a GPU."""
    if not torch.cuda.is_initialized():
        return None
    free, _ = torch.cuda.mem_get_info()
    unused = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    caches = arenas.current().here()[-1].caches.values()
    held = sum(one.both.numel() * one.both.element_size() for one in caches)
    return free + unused + held


def _check_sizes(at, **sizes):
    for name, number in sizes.items():
        if not isinstance(number, int) or number < 1:
            refuse(at, name, repr(number), "a whole number of at least 1", "check the arguments")


def allocate_workspace(
    at,
    hidden_dim: int,
    num_heads: int,
    prompt_length: int,
    batch_size: int,
    num_layers: int,
    mp_size: int = 1,
    external_cache: bool = False,
    rank: int = 0,
    max_out_tokens: int = 1024,
    min_out_tokens: int = 1,
):
    """Says how many tokens the caches of this stream and of this thread on the CPU are for.

    Memory is taken by a layer's first prompt, max_out_tokens places for each row of its batch, or
    on a GPU as many as fit into its free memory; fewer than min_out_tokens: OutOfMemoryError. A
    running sequence goes on, also with more places than before. external_cache: no caches.
    prompt_length and rank have no effect.
    """
    _check_sizes(
        at,
        hidden_dim=hidden_dim,
        num_heads=num_heads,
        batch_size=batch_size,
        num_layers=num_layers,
        mp_size=mp_size,
        max_out_tokens=max_out_tokens,
    )
    if hidden_dim % num_heads or num_heads % mp_size:
        refuse(
            at,
            "num_heads",
            f"{num_heads} of hidden_dim {hidden_dim} for mp_size {mp_size}",
            "a number that divides hidden_dim and that mp_size divides",
            "check the model's configuration",
        )
    model = arenas.current()
    here = model.here()
    wanted = arenas.Plan(
        num_heads // mp_size,
        hidden_dim // num_heads,
        batch_size,
        num_layers,
        max_out_tokens,
        bool(external_cache),
    )
    if all(one.asked == wanted for one in here):  # DeepSpeed 0.7.7 asks before every token
        model.latest = here[-1].own_plan
        return
    fit = max_out_tokens
    free = None if external_cache else _free_bytes()
    if free is not None:
        a_token = 2 * num_layers * batch_size * wanted.heads * wanted.head_size * at.dtype.itemsize
        fit = places(max_out_tokens, a_token, free)
    if fit < min_out_tokens:
        raise OutOfMemoryError(
            f"{at.name}(): found memory for {fit} tokens, wanted min_out_tokens = "
            f"{min_out_tokens}; use a smaller batch, or free memory of the GPU"
        )
    for one in here:  # nothing says on which device the tensors will be
        one.asked = one.own_plan = wanted
    here[-1].own_plan = model.latest = wanted._replace(tokens=fit)


def reset_cache():
    """The next token is the first of a sequence, also if it comes alone."""
    for one in arenas.all_here():
        one.reset()


def release_workspace():
    """Gives the keys and values back; views that somebody holds stay. Then comes a prompt."""
    for one in arenas.all_here():
        one.caches.clear()
        one.reset()


def retake_workspace():
    """True: after release_workspace() the next prompt takes its memory by itself."""
    return True


@without_gradients
def repeat_kv_cache(at, source_batch_size: int, repeats: int):
    """Row r of the caches becomes rows r * repeats to (r + 1) * repeats - 1, after a prompt.

    Returns keys and values of each layer in turn, views [batch, heads, prompt's tokens, size];
    batch is source_batch_size * repeats, which the workspace must be allocated for.
    """
    used = [one for one in arenas.all_here() if one.caches]
    if used:
        newest = max(used, key=lambda one: one.prompt)
        return _repeat(at, newest, source_batch_size, repeats)
    raise InvalidArgumentError(
        f"{at.name}(): found no prompt in this stream (on the CPU: thread), wanted a completed "
        "one; call softmax_context with a prompt for all layers first"
    )


def _repeat(at, one, source, repeats):
    tokens = one.tokens - 1
    if tokens < 1 or any(cache.prompt != one.prompt for cache in one.caches.values()):
        raise InvalidArgumentError(
            f"{at.name}(): found no completed prompt, wanted one; run all layers of a prompt first"
        )
    batch = one.plan.batch
    if repeats < 1 or source * repeats != batch:
        found = f"{source} rows {repeats} times"
        refuse(at, "repeats", found, f"the {batch} rows of the workspace", "allocate it for them")
    made = []
    for layer, cache in sorted(one.caches.items()):
        old = cache.both
        if old.shape[1] != source or cache.tokens < tokens or old.dtype != at.dtype:
            found = f"{old.shape[1]} rows of {cache.tokens} tokens of {old.dtype} in layer {layer}"
            wanted = f"{source} rows of {tokens} tokens of {at.dtype}"
            refuse(at, "source_batch_size", found, wanted, "run a prompt of that batch before")
        new = arenas.Cache(batch, *old.shape[2:], old, one.prompt)
        target = new.both.unflatten(1, (source, repeats))[..., :tokens, :]
        target.copy_(old[:, :, None, :, :tokens])
        new.tokens = tokens
        one.caches[layer] = new
        made += new.keys_and_values(tokens)
    return made
