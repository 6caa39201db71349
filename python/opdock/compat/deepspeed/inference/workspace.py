# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's functions for the state between calls: cached keys and values, and the token counter.

arenas.py has that state. Other results need no workspace: they are ordinary torch tensors.
"""

import torch

from opdock._errors import InvalidArgumentError, OutOfMemoryError
from opdock.compat.deepspeed.inference import arenas
from opdock.compat.deepspeed.inference._checks import refuse, without_gradients

_RESERVE = 500 << 20  # bytes of GPU memory that caches leave free, as in DeepSpeed


def places(wanted, bytes_a_token, free):
    """Returns how many of the wanted tokens fit into `free` bytes if 500 MiB stay free."""
    return min(wanted, max(0, free - _RESERVE) // max(1, bytes_a_token))


def _free_bytes():
    """Returns the bytes of the current GPU's memory that a new workspace may use; None without a
    GPU. These are the driver's free memory, unused memory of torch's allocator, and the caches that
    the workspace replaces."""
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
    """Sets the number of tokens in the caches of the current stream and of this CPU thread.

    A layer's first prompt allocates the memory: max_out_tokens places for each row of its batch,
    or, on a GPU, as many as fit into its free memory. Raises OutOfMemoryError if these are fewer
    than min_out_tokens. A running sequence continues, also with more places than before.
    external_cache: use no caches. prompt_length and rank have no effect.
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
    if all(one.asked == wanted for one in here):  # DeepSpeed 0.7.7 calls this before every token
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
    for one in here:  # the device of the later tensors is unknown
        one.asked = one.own_plan = wanted
    here[-1].own_plan = model.latest = wanted._replace(tokens=fit)


def reset_cache():
    """Starts over: the next token is the first of a sequence, even if it is a single one."""
    for one in arenas.all_here():
        one.reset()


def release_workspace():
    """Frees the cached keys and values; views that the caller holds stay valid. Continue with a
    prompt."""
    for one in arenas.all_here():
        one.caches.clear()
        one.reset()


def retake_workspace():
    """Returns True and does nothing: after release_workspace() the next prompt allocates its
    memory."""
    return True


@without_gradients
def repeat_kv_cache(at, source_batch_size: int, repeats: int):
    """Repeats the rows of the caches after a prompt: row r becomes rows r * repeats to (r + 1) *
    repeats - 1.

    Returns a list of the keys and values of each layer in turn: views [batch, heads, the prompt's
    tokens, size]. batch is source_batch_size * repeats, which the workspace must have been
    allocated for. Raises InvalidArgumentError without a completed prompt.
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
