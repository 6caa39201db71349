# SPDX-License-Identifier: Apache-2.0
"""Keeps the keys and values of sequences, separately for each model and each stream or CPU thread.

Each stream of a GPU has its own Arena, and on the CPU each thread has one. A sequence stays in the
Arena that its prompt was computed in. A model that install() knows has its own Arenas; all other
models share those of `shared`.
"""

import collections
import contextlib
import itertools
import threading
import weakref
from typing import NamedTuple

import torch

from opdock._errors import InvalidArgumentError

# The number of streams whose arenas a model keeps, the most recently used ones: more than torch's
# stream pool has. A program may create further streams, and nothing reports their destruction.
_MAX_STREAMS = 256


class Plan(NamedTuple):
    """The arguments of allocate_workspace(). tokens: the number of places in a cache."""

    heads: int  # on this device
    head_size: int
    batch: int
    layers: int
    tokens: int
    external_cache: bool


class Cache:
    """A layer's keys and values: [2, batch, heads, places, size]; the first `tokens` places are
    written.

    keys, values: views of all places in the ops' layout, [batch, places, heads, size]. prompt: the
    number of the prompt that started the sequence.
    """

    def __init__(self, batch, heads, places, size, like, prompt):
        self.both = torch.empty(
            (2, batch, heads, places, size), dtype=like.dtype, device=like.device
        )
        self.keys, self.values = self.both.transpose(2, 3).unbind()
        self.tokens, self.prompt = 0, prompt

    def keys_and_values(self, tokens):
        """Returns views [batch, heads, tokens, size] of both, which keep the memory alive."""
        return self.both[0, :, :, :tokens], self.both[1, :, :, :tokens]

    def grown(self, places):
        """Returns a Cache with the same tokens and more places; views of this Cache stay valid."""
        _, batch, heads, _, size = self.both.shape
        made = Cache(batch, heads, places, size, self.both, self.prompt)
        made.tokens = self.tokens
        made.keys[:, : self.tokens].copy_(self.keys[:, : self.tokens])
        made.values[:, : self.tokens].copy_(self.values[:, : self.tokens])
        return made


_prompts = itertools.count(1)


class Arena:
    """The state of one stream of a GPU, or of one CPU thread. Only one thread may use it at a time.

    tokens: the length of the sequence including the current step's token; 1 before a prompt.
    prompt: the number of the prompt that started the sequence; a layer's cache with another number
    belongs to an earlier sequence.
    """

    def __init__(self, model):
        self.own_plan = None
        self.asked = None  # the requested Plan, before it was limited by free memory
        self.caches = {}  # a layer's number -> Cache
        self.prompt = 0
        self._model = weakref.ref(model)
        self._counts = {}
        self.reset()

    def reset(self):
        """Starts over: the next token is the first of a sequence."""
        self.tokens = 1
        self._is_whole = True  # whether the last layer has processed the prompt

    @property
    def plan(self):
        """The arena's own Plan, else the latest one of its model, else the latest of `shared`; or
        None."""
        return self.own_plan or self._model().latest or shared.latest

    def count(self, number, batch, device):
        """Returns an int32 tensor [batch] on the device, filled with `number`. It is made once for
        all layers of a step."""
        key = (number, batch, device)
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            # a graph needs its own
            return torch.full((batch,), number, dtype=torch.int32, device=device)
        if key not in self._counts:
            self._counts = {key: torch.full((batch,), number, dtype=torch.int32, device=device)}
        return self._counts[key]

    def begin(self, layer):
        """Starts a prompt in the layer.

        It is either the prompt that the layers before it have had, or a new one. After a new prompt
        no layer continues the previous sequence, even if this call fails.
        """
        held = self.caches.get(layer)
        if self._is_whole or (held is not None and held.prompt == self.prompt):
            self.prompt, self._is_whole = next(_prompts), False

    def end(self, layer, layers):
        """Notes that the layer has processed its tokens. The last of the `layers` layers advances
        the token counter."""
        last = self._model().last_layer
        if layer == (layers - 1 if last is None else last):
            self.tokens += 1
            self._is_whole = True

    def cache(self, at, layer, batch, heads, size, like, first):
        """Returns the layer's Cache, with room for self.tokens.

        first: a new sequence starts. It gets new memory, so that views of the previous sequence's
        keys and values stay valid. Raises InvalidArgumentError if the sequence does not continue
        the cache.
        """
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
            self.caches.pop(layer, None)  # frees the memory for the new one
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
    """The arenas of one model.

    latest: the Plan requested last, or None. last_layer: the number of its last layer; None if each
    call's num_layers decides.
    """

    def __init__(self):
        self.latest = None
        self.last_layer = None
        self._of_thread = threading.local()
        self._of_streams = collections.OrderedDict()  # (GPU index, stream address) -> Arena
        with _lock:
            _models.add(self)

    def arena(self, device):
        """Returns the Arena of the device's current stream, or on the CPU of this thread; creates
        it if needed."""
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
            if len(self._of_streams) > _MAX_STREAMS:
                self._of_streams.popitem(last=False)
            return found

    def here(self):
        """Returns the arenas of this thread and the current stream, for functions without a tensor
        argument."""
        found = [self.arena(torch.device("cpu"))]
        if torch.cuda.is_initialized():
            found.append(self.arena(torch.device("cuda", torch.cuda.current_device())))
        return found


#: for calls from models that install() does not know
shared = Model()
_of_thread = threading.local()  # .model: the Model whose layer this thread executes


@contextlib.contextmanager
def serving(model):
    """A context in which this thread's calls belong to the model."""
    before = getattr(_of_thread, "model", None)
    _of_thread.model = model
    try:
        yield
    finally:
        _of_thread.model = before


def current():
    """Returns the Model whose layer this thread executes, or `shared`."""
    return getattr(_of_thread, "model", None) or shared


def all_here():
    """Returns the arenas of this thread and the current stream for every model."""
    with _lock:
        models = list(_models)
    return [one for model in models for one in model.here()]
