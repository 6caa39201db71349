# SPDX-License-Identifier: Apache-2.0
"""Numbered layers, the generators of their dropout, and what a forward pass leaves for the
backward pass."""

import operator
import threading
from typing import NamedTuple

import torch

from opdock._errors import InvalidArgumentError
from opdock.compat.deepspeed.inference._checks import refuse


class Layer(NamedTuple):
    """The numbers of a layer that count in each pass. A ratio is the probability of dropping."""

    heads: int
    attn_dropout: float
    hidden_dropout: float
    eps: float
    has_seed: bool


class Step(NamedTuple):
    """What the backward pass must know of its forward pass, besides the tensors. It travels with
    one of them, since a layer's number may mean another layer by then.

    has_probabilities: the softmax's results are kept; otherwise the op attention computed them, and
    the logarithms of its sums are kept. version: that of the input if the kept tensor is the input
    itself, else None.
    """

    layer: Layer
    pre_layer_norm: bool
    normalize_invertible: bool
    has_probabilities: bool
    version: int | None


_layers = {}  # the layers by number, as in DeepSpeed one dict for the process
_lock = threading.Lock()  # guards _seed, and making the generators
_seed = 0
_generators = {}  # the generator of each device, made at first use


def _ratio(at, argument, ratio):
    """Returns a dropout ratio as a float. Below 0, such as the -1 that DeepSpeed's configuration
    has for a ratio that was not set, it means no dropout."""
    ratio = float(ratio)
    if not ratio <= 1:
        remedy = "it is the probability of dropping an element"
        refuse(at, argument, ratio, "a number up to 1", remedy)
    return max(ratio, 0.0)


def create_transformer_layer(
    at,
    layer_id: int,
    batch_size: int,
    hidden_dim: int,
    num_heads: int,
    intermediate_size: int,
    attn_dropout_ratio: float,
    hidden_dropout_ratio: float,
    layer_norm_eps: float,
    seed: int,
    pre_or_postLayerNorm: bool,
    test_gemm: bool,
    attn_dropout_checkpoint: bool,
    normalize_invertible: bool,
    gelu_checkpoint: bool,
    stochastic_mode: bool,
):
    """Makes a layer, or replaces the one of that number, which stays usable in backward passes.
    Returns 0.

    seed: from 0 on, it seeds the generator from which all layers that were made with a seed draw
    their dropout, on each device one; the last seed counts. Below 0 the layer draws from torch's
    default generator. A ratio below 0 means no dropout. batch_size and intermediate_size have no
    effect: the tensors say them; test_gemm and stochastic_mode have none either. The others are
    passed again by forward.
    """
    global _seed
    heads, hidden, seed = map(operator.index, (num_heads, hidden_dim, seed))
    if heads < 1 or hidden % heads:
        found, wanted = f"{heads} for {hidden} columns", "a number that divides them"
        refuse(at, "num_heads", found, wanted, "check hidden_dim too")
    layer = Layer(
        heads,
        _ratio(at, "attn_dropout_ratio", attn_dropout_ratio),
        _ratio(at, "hidden_dropout_ratio", hidden_dropout_ratio),
        float(layer_norm_eps),
        seed >= 0,
    )
    if seed >= 0:
        with _lock:
            _seed = seed
            _generators.clear()
    _layers[operator.index(layer_id)] = layer
    return 0


def find(at, layer_id):
    """Returns the layer of that number. Raises InvalidArgumentError if there is none."""
    try:
        return _layers[layer_id]
    except KeyError:
        create = at.name.replace("forward", "create_transformer_layer")
        raise InvalidArgumentError(
            f"{at.name}(): argument 'layer_id': found {layer_id!r}, wanted the number of one of "
            f"the {len(_layers)} layers that there are; call {create}() first"
        ) from None


def generator(layer, device):
    """Returns the generator from which the layer draws on the device; None: torch's default one."""
    if not layer.has_seed:
        return None
    found = _generators.get(device)
    if found is None:
        with _lock:
            made = torch.Generator(device).manual_seed(_seed)
            found = _generators.setdefault(device, made)
    return found
