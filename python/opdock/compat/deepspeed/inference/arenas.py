# SPDX-License-Identifier: Apache-2.0
"""Where the keys and values of sequences are kept: by model, and by stream or thread.

Each stream of a GPU has an Arena of its own, and on the CPU each thread: a sequence stays in the
one that its prompt was computed in. A model that install() knows of has Arenas of its own; all
others share those of `shared`.
"""

import collections
import contextlib
import itertools
import threading
import weakref
from typing import NamedTuple

import torch

from opdock._errors import InvalidArgumentError

# Streams whose arenas a model keeps, the last ones used: more than torch has of its own. Others are
# a program's, and nothing tells that one of them is gone.
_MOST_STREAMS = 256


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

    keys, values: all places, as the ops take them: [batch, places, heads, size]. prompt: the number
    of the prompt that its sequence began with.
    """

    def __init__(self, batch, heads, places, size, like, prompt):
        self.both = torch.empty(
            (2, batch, heads, places, size), dtype=like.dtype, device=like.device
        )
        self.keys, self.values = self.both.transpose(2, 3).unbind()
        self.tokens, self.prompt = 0, prompt

    def keys_and_values(self, tokens):
        """Views [batch, heads, tokens, size]; they keep the memory alive."""
        return self.both[0, :, :, :tokens], self.both[1, :, :, :tokens]

    def grown(self, places):
        """A Cache with the same tokens and more places; who holds views of this one keeps them."""
        _, batch, heads, _, size = self.both.shape
        made = Cache(batch, heads, places, size, self.both, self.prompt)
        made.tokens = self.tokens
        made.keys[:, : self.tokens].copy_(self.keys[:, : self.tokens])
        made.values[:, : self.tokens].copy_(self.values[:, : self.tokens])
        return made


_prompts = itertools.count(1)


class Arena:
    """The state of one stream of a GPU, or one thread on the CPU; not for several threads at once.

    tokens: how many a sequence has with the token of the current step; 1 before a prompt. prompt:
    the number of the prompt that it began with; a layer's cache that has another one is of a
    sequence before.
    """

    def __init__(self, model):
        self.own_plan = None
        self.asked = None  # the Plan before memory was looked at
        self.caches = {}  # a layer's number -> Cache
        self.prompt = 0
        self._model = weakref.ref(model)
        self._counts = {}
        self.reset()

    def reset(self):
        """The next token is the first of a sequence."""
        self.tokens = 1
        self._is_whole = True  # the last layer has had the prompt

    @property
    def plan(self):
        """Its own Plan, else the one that was made last, for its model if there is one; or None."""
        return self.own_plan or self._model().latest or shared.latest

    def count(self, number, batch, device):
        """int32 [batch] on the device, each `number`: made once in a step, for all layers."""
        key = (number, batch, device)
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            return torch.full((batch,), number, dtype=torch.int32, device=device)  # the graph's own
        if key not in self._counts:
            self._counts = {key: torch.full((batch,), number, dtype=torch.int32, device=device)}
        return self._counts[key]

    def begin(self, layer):
        """The layer gets a prompt: that of the layers before it, or else a new one, after which no
        layer goes on with the sequence before, also if this call fails."""
        held = self.caches.get(layer)
        if self._is_whole or (held is not None and held.prompt == self.prompt):
            self.prompt, self._is_whole = next(_prompts), False

    def end(self, layer, layers):
        """The layer, of so many, has had its tokens: the last one moves the counter on."""
        last = self._model().last_layer
        if layer == (layers - 1 if last is None else last):
            self.tokens += 1
            self._is_whole = True

    def cache(self, at, layer, batch, heads, size, like, first):
        """The layer's Cache with places for self.tokens. first: of a new sequence, which gets new
        memory, so that keys and values of the one before stay as they are while they are held."""
        if first:
            self.begin(layer)
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
            made = Cache(batch, heads, plan.tokens, size, like, self.prompt)
            self.caches[layer] = made
            return made
        held = self.caches.get(layer)
        written = held.tokens if held else 0
        if held is not None and held.prompt != self.prompt:
            raise InvalidArgumentError(
                f"{at.name}(): found the sequence before in layer {layer}, wanted this one's "
                "prompt there; after a prompt that did not get through all layers begin anew with "
                "a prompt"
            )
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


_lock = threading.Lock()
_models = weakref.WeakSet()


class Model:
    """The arenas of one model. latest: the Plan that was asked for last, or None. last_layer: the
    number of its last layer; None: what each call says counts."""

    def __init__(self):
        self.latest = None
        self.last_layer = None
        self._of_thread = threading.local()
        self._of_streams = collections.OrderedDict()  # (a GPU's number, an address) -> Arena
        with _lock:
            _models.add(self)

    def arena(self, device):
        """The Arena of the device's current stream, on the CPU of this thread; made when asked
        for."""
        if device.type == "cpu":
            try:
                return self._of_thread.arena
            except AttributeError:
                self._of_thread.arena = Arena(self)
                return self._of_thread.arena
        stream = torch.cuda.current_stream(device)
        key = (stream.device_index, stream.cuda_stream)
        with _lock:
            found = self._of_streams.setdefault(key, Arena(self))
            self._of_streams.move_to_end(key)
            if len(self._of_streams) > _MOST_STREAMS:
                self._of_streams.popitem(last=False)
            return found

    def here(self):
        """Those that functions without a tensor mean: this thread's, and the current stream's."""
        found = [self.arena(torch.device("cpu"))]
        if torch.cuda.is_initialized():
            found.append(self.arena(torch.device("cuda", torch.cuda.current_device())))
        return found


#: of all that no model of its own is known for
shared = Model()
_of_thread = threading.local()  # .model: whose layer this thread is in


@contextlib.contextmanager
def serving(model):
    """Within it this thread's calls are that model's."""
    before = getattr(_of_thread, "model", None)
    _of_thread.model = model
    try:
        yield
    finally:
        _of_thread.model = before


def current():
    """The Model whose layer calls."""
    return getattr(_of_thread, "model", None) or shared


def all_here():
    """The arenas of this thread and of the current stream of every model."""
    with _lock:
        models = list(_models)
    return [one for model in models for one in model.here()]
