# SPDX-License-Identifier: Apache-2.0
"""What stays between calls: the counter of tokens, and the keys and values of each layer.

Each stream of a GPU has an Arena of its own, and on the CPU each thread: a sequence stays in the
one that its prompt was computed in. Other results need no workspace: they are tensors of torch's.
"""

import threading
from typing import NamedTuple

import torch

from opdock._errors import InvalidArgumentError, OutOfMemoryError
from opdock.compat.deepspeed.inference._checks import refuse, without_gradients

_RESERVE = 500 << 20  # bytes of a GPU's memory that no cache takes, as with DeepSpeed


class Plan(NamedTuple):
    """What allocate_workspace() has been asked for. tokens: as many as a cache has places."""

    heads: int  # of this device
    head_size: int
    batch: int
    layers: int
    tokens: int
    external_cache: bool


class Cache:
    """A layer's keys and values: [2, batch, heads, places, size], of which `tokens` are written.

    keys, values: all places, as the ops take them: [batch, places, heads, size].
    """

    def __init__(self, batch, heads, places, size, like):
        self.both = torch.empty(
            (2, batch, heads, places, size), dtype=like.dtype, device=like.device
        )
        self.keys, self.values = self.both.transpose(2, 3).unbind()
        self.tokens = 0

    def keys_and_values(self, tokens):
        """Views [batch, heads, tokens, size]; they keep the memory alive."""
        return self.both[0, :, :, :tokens], self.both[1, :, :, :tokens]

    def grown(self, places):
        """A Cache with the same tokens and more places; who holds views of this one keeps them."""
        _, batch, heads, _, size = self.both.shape
        made = Cache(batch, heads, places, size, self.both)
        made.tokens = self.tokens
        made.keys[:, : self.tokens].copy_(self.keys[:, : self.tokens])
        made.values[:, : self.tokens].copy_(self.values[:, : self.tokens])
        return made


class Arena:
    """The state of one stream of a GPU, or one thread on the CPU; not for several threads at once.

    tokens: how many a sequence has with the token of the current step; 1 before a prompt.
    """

    def __init__(self):
        self.own_plan = None
        self.asked = None  # the Plan before memory was looked at
        self.tokens = 1
        self.caches = {}  # a layer's number -> Cache
        self._counts = {}

    @property
    def plan(self):
        """Its own Plan, else the one that the process has made last; None if there is none."""
        return self.own_plan or _latest

    def count(self, number, batch, device):
        """int32 [batch] on the device, each `number`: made once in a step, for all layers."""
        key = (number, batch, device)
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            return torch.full((batch,), number, dtype=torch.int32, device=device)  # the graph's own
        if key not in self._counts:
            self._counts = {key: torch.full((batch,), number, dtype=torch.int32, device=device)}
        return self._counts[key]

    def cache(self, at, layer, batch, heads, size, like, first):
        """The layer's Cache with places for self.tokens. first: of a new sequence, which gets new
        memory, so that keys and values of the one before stay as they are while they are held."""
        plan = self.plan
        if plan is None:
            raise InvalidArgumentError(
                f"{at.name}(): found no workspace, wanted one for the keys and values; call "
                "allocate_workspace_fp32(), _fp16() or _bf16() first"
            )
        if plan.external_cache:
            raise InvalidArgumentError(
                f"{at.name}(): found a workspace with external_cache, which holds no keys and "
                "values, wanted one with them; allocate it with external_cache=False"
            )
        if self.tokens > plan.tokens:
            raise InvalidArgumentError(
                f"{at.name}(): found {self.tokens} tokens in the sequence, wanted at most "
                f"{plan.tokens}; allocate the workspace with max_out_tokens of at least that"
            )
        if first:
            self.caches.pop(layer, None)  # before the new one, which may take its memory
            made = self.caches[layer] = Cache(batch, heads, plan.tokens, size, like)
            return made
        held = self.caches.get(layer)
        written = held.tokens if held else 0
        if written < self.tokens - 1:
            raise InvalidArgumentError(
                f"{at.name}(): found {written} tokens in layer {layer}, wanted the "
                f"{self.tokens - 1} before this one; call the layers in their order, in the "
                "stream (on the CPU the thread) of the prompt, which comes first"
            )
        found = (*held.both.shape[1:3], held.both.shape[4], held.both.dtype)
        wanted = (batch, heads, size, like.dtype)
        if found != wanted:
            raise InvalidArgumentError(
                f"{at.name}(): found batch, heads, size and dtype {wanted}, wanted {found}, as in "
                f"layer {layer}'s prompt; begin with a prompt, or call reset_cache()"
            )
        if held.both.shape[3] < self.tokens:
            held = self.caches[layer] = held.grown(plan.tokens)
        return held


_latest = None
_lock = threading.Lock()
_of_streams = {}  # (a GPU's number, a stream's address) -> Arena
_of_thread = threading.local()


def arena(device):
    """The Arena of the device's current stream, on the CPU of this thread; made when asked for."""
    if device.type == "cpu":
        try:
            return _of_thread.arena
        except AttributeError:
            _of_thread.arena = Arena()
            return _of_thread.arena
    stream = torch.cuda.current_stream(device)
    key = (stream.device_index, stream.cuda_stream)
    with _lock:
        return _of_streams.setdefault(key, Arena())


def _here():
    """The arenas that functions without a tensor mean: this thread's, and the current stream's."""
    found = [arena(torch.device("cpu"))]
    if torch.cuda.is_initialized():
        found.append(arena(torch.device("cuda", torch.cuda.current_device())))
    return found


def places(wanted, bytes_a_token, free):
    """How many of the wanted tokens fit into `free` bytes, of which 500 MB are left."""
    return min(wanted, max(0, free - _RESERVE) // max(1, bytes_a_token))


def _free_bytes():
    """What a new workspace may take of the current GPU's memory; None without a GPU."""
    if not torch.cuda.is_initialized():
        return None
    free, _ = torch.cuda.mem_get_info()
    unused = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    held = sum(one.both.numel() * one.both.element_size() for one in _here()[-1].caches.values())
    return free + unused + held


def _check_sizes(at, **sizes):
    for name, number in sizes.items():
        if not isinstance(number, int) or number < 1:
            refuse(at, name, repr(number), "a whole number of at least 1", "check the arguments")


def allocate_workspace(
    at,
    hidden_dim,
    num_heads,
    prompt_length,
    batch_size,
    num_layers,
    mp_size=1,
    external_cache=False,
    rank=0,
    max_out_tokens=1024,
    min_out_tokens=1,
):
    """Says how many tokens the caches of this stream and of this thread on the CPU are for.

    Memory is taken by a layer's first prompt, max_out_tokens places for each row of its batch, or
    on a GPU as many as fit into its free memory; fewer than min_out_tokens: OutOfMemoryError. A
    running sequence goes on, also with more places than before. external_cache: no caches.
    prompt_length and rank have no effect.
    """
    global _latest
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
    here = _here()
    wanted = Plan(
        num_heads // mp_size,
        hidden_dim // num_heads,
        batch_size,
        num_layers,
        max_out_tokens,
        bool(external_cache),
    )
    if all(one.asked == wanted for one in here):  # DeepSpeed 0.7.7 asks before every token
        _latest = here[-1].own_plan
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
    here[-1].own_plan = _latest = wanted._replace(tokens=fit)


def reset_cache():
    """The next token is the first of a sequence, also if it comes alone."""
    for one in _here():
        one.tokens = 1


def release_workspace():
    """Gives the keys and values back; views that somebody holds stay. Then comes a prompt."""
    for one in _here():
        one.caches.clear()
        one.tokens = 1


def retake_workspace():
    """True: after release_workspace() the next prompt takes its memory by itself."""
    return True


@without_gradients
def repeat_kv_cache(at, source_batch_size, repeats):
    """Row r of the caches becomes rows r * repeats to (r + 1) * repeats - 1, after a prompt.

    Returns keys and values of each layer in turn, views [batch, heads, prompt's tokens, size];
    batch is source_batch_size * repeats, which the workspace must be allocated for.
    """
    for one in _here():
        if one.caches:
            return _repeat(at, one, source_batch_size, repeats)
    raise InvalidArgumentError(
        f"{at.name}(): found no prompt in this stream (on the CPU: thread), wanted a completed "
        "one; call softmax_context with a prompt for all layers first"
    )


def _repeat(at, one, source, repeats):
    tokens = one.tokens - 1
    if tokens < 1:
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
        new = Cache(batch, old.shape[2], old.shape[3], old.shape[4], old)
        target = new.both.unflatten(1, (source, repeats))[..., :tokens, :]
        target.copy_(old[:, :, None, :, :tokens])
        new.tokens = tokens
        one.caches[layer] = new
        made += new.keys_and_values(tokens)
    return made
