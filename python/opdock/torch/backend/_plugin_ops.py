# SPDX-License-Identifier: Apache-2.0
"""Puts the plugins' ops in place of torch's layer norm, RMS norm and cross entropy.

This happens before AOTAutograd's graph of forward and backward is divided in two, where an op and
its derivative can be changed together: what torch's derivative needs of the forward op (mean and
rstd, or the logarithms of softmax) is then neither written nor kept.
"""

import operator

import torch
from torch import fx

from opdock import _load
from opdock.torch.backend import _layout, _written_out
from opdock.torch.backend._values import arguments, shape, value

aten = torch.ops.aten
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def replace(graph):
    """Replaces what can be replaced in a graph of ATen's ops."""
    for node in list(graph.nodes):
        is_result = any(user.op == "output" for user in node.users)
        if node.target is aten.detach.default and not is_result:
            node.replace_all_uses_with(node.args[0])  # the graph records no gradients
            graph.erase_node(node)
    known = set(_load.op_names())
    for node in list(graph.nodes):
        row = _REPLACED.get(node.target)
        if row is not None and {row[0], f"{row[0]}_backward"} <= known:
            row[1](graph, node)
    graph.eliminate_dead_code()


def replace_calls(graph):
    """Replaces RMS norms, calls of torch's function and those that are written out, and rotary
    embeddings in a graph of Dynamo: ATen has no such ops, and their derivatives would come in
    parts."""
    has_autocast = any("autocast" in str(node.target) for node in graph.nodes)
    if has_autocast:
        return
    has_rms_norm = {"rms_norm", "rms_norm_backward"} <= set(_load.op_names())
    _written_out.replace(graph, has_rms_norm)
    if not has_rms_norm:
        return
    functions = {torch.nn.functional.rms_norm, torch.rms_norm}
    for node in graph.nodes:
        if node.op == "call_function" and node.target in functions:
            _rms_norm(node)


def _rms_norm(node):
    names = ("input", "normalized_shape", "weight", "eps")
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    x, weight = given["input"], given.get("weight")
    known = [one.meta.get("example_value") for one in (x, weight) if isinstance(one, fx.Node)]
    if len(given["normalized_shape"]) != 1 or not _has_rows(known[0]):
        return
    if known[0].stride()[-1] != 1:
        return
    dtype = known[0].dtype
    if any(one is None or one.dtype is not dtype for one in known) or torch.is_autocast_enabled():
        return
    eps = given.get("eps")
    if eps is None:
        # torch adds up 16-bit floats in float32, and its eps is that of float32.
        eps = torch.finfo(torch.float64 if dtype is torch.float64 else torch.float32).eps
    if isinstance(eps, float):
        node.target = torch.ops.opdock.rms_norm.default
        node.args, node.kwargs = (x, weight, eps), {}


def _has_rows(x):
    """Returns whether the plugins' ops take the dtype and the device of a fake tensor."""
    if x is None or x.dtype not in _FLOATS or x.ndim == 0:
        return False
    return x.device.type == "cpu" or (x.device.type == "cuda" and x.dtype is not torch.float64)


def _contiguous(graph, x, like):
    """Returns a node of the same numbers that is contiguous."""
    if _layout.is_contiguous(x):
        return x
    node = graph.call_function(aten.clone.default, (x,), {"memory_format": torch.contiguous_format})
    node.meta.update({k: v for k, v in like.meta.items() if k not in ("val", "tensor_meta")})
    node.meta["val"] = value(x).clone(memory_format=torch.contiguous_format)
    return node


def _part(node, index):
    """Returns the getitem of one result of a node, or None if nobody reads it."""
    found = [user for user in node.users if user.target is operator.getitem]
    return next((user for user in found if user.args[1] == index), None)


def _call(graph, target, args, like, val=None):
    """Inserts a call before the node `like`, of whose part of the graph it is. val: its value;
    None: what torch says."""
    node = graph.call_function(target, args)
    node.meta.update({k: v for k, v in like.meta.items() if k not in ("val", "tensor_meta")})
    if val is None:
        values = [value(x) if isinstance(x, fx.Node) else x for x in args]
        with torch.no_grad():
            val = target(*values)
    node.meta["val"] = val
    return node


def _readers(parts):
    return [user for part in parts if part is not None for user in part.users]


# ---- layer norm


def _layer_norm(graph, node):
    x, sizes, weight, bias, eps = arguments(node)
    result, rest = _part(node, 0), [_part(node, 1), _part(node, 2)]
    backward = list(dict.fromkeys(_readers(rest)))
    if result is None or len(sizes) != 1 or not _has_rows(value(x)):
        return
    if any(user.target is not aten.native_layer_norm_backward.default for user in backward):
        return
    for one in (weight, bias):
        if one is not None and (
            value(one).dtype is not value(x).dtype or not _layout.is_contiguous(one)
        ):
            return
    if weight is None and bias is not None:
        return
    with graph.inserting_before(node):
        x = _contiguous(graph, x, node)
        args = (x, weight, bias, eps)
        normed = _call(graph, torch.ops.opdock.layer_norm.default, args, node, value(result))
    result.replace_all_uses_with(normed)
    for user in backward:
        with graph.inserting_before(user):
            grad = _contiguous(graph, user.args[0], user)
            args = (grad, x, weight, bias, None, eps)
            target = torch.ops.opdock.layer_norm_backward.default
            user.replace_all_uses_with(_call(graph, target, args, user, value(user)))


# ---- cross entropy


def _cross_entropy(graph, node):
    logs, target, weight, reduction, ignored = arguments(node)
    if logs.target is not aten._log_softmax.default or weight is not None:
        return
    logits, dim, _ = arguments(logs)
    loss, count = _part(node, 0), _part(node, 1)
    if loss is None or value(logs).ndim != 2 or dim not in (1, -1):
        return
    if not _has_rows(value(logits)) or not _layout.is_contiguous(logits):
        return
    if value(target).dtype not in (torch.int32, torch.int64):
        return
    pairs = _backward_of(node, logs, count)
    if pairs is None:
        return
    dtype = torch.float64 if value(logits).dtype is torch.float64 else torch.float32
    with graph.inserting_before(node):
        losses = _call(graph, torch.ops.opdock.cross_entropy.default,
                       (logits, target, ignored), node)  # fmt: skip
        found, number = losses, None
        if reduction == 1:
            kept = _call(graph, aten.ne.Scalar, (target, ignored), node)
            number = _call(graph, aten.sum.default, (kept,), node)
            total = _call(graph, aten.sum.default, (losses,), node)
            found = _call(graph, aten.div.Tensor, (total, number), node)
        elif reduction == 2:
            found = _call(graph, aten.sum.default, (losses,), node)
        if value(found).dtype is not value(loss).dtype:
            found = _cast(graph, found, value(loss).dtype, node)
    loss.replace_all_uses_with(found)
    for first, last in pairs:
        with graph.inserting_before(last):
            grad = first.args[0]
            if value(grad).dtype is not dtype:
                grad = _cast(graph, grad, dtype, last)
            if number is not None:
                grad = _call(graph, aten.div.Tensor, (grad, number), last)
            args = (logits, target, grad, ignored)
            op = torch.ops.opdock.cross_entropy_backward.default
            last.replace_all_uses_with(_call(graph, op, args, last, value(last)))


def _cast(graph, x, dtype, like):
    node = graph.call_function(aten._to_copy.default, (x,), {"dtype": dtype})
    node.meta.update({k: v for k, v in like.meta.items() if k not in ("val", "tensor_meta")})
    node.meta["val"] = value(x).to(dtype)
    return node


def _backward_of(node, logs, count):
    """Returns the pairs (nll_loss_backward, _log_softmax_backward_data) that belong to the nodes of
    the loss, or None if these are used in another way too."""
    pairs, others = [], set()
    for user in logs.users:
        if user.target is aten.nll_loss_backward.default and user.args[1] is logs:
            last = list(user.users)
            if len(last) != 1 or last[0].target is not aten._log_softmax_backward_data.default:
                return None
            if last[0].args[0] is not user or shape(last[0]) != shape(logs):
                return None
            pairs.append((user, last[0]))
        elif user is not node:
            others.add(user)
    firsts, lasts = {first for first, _ in pairs}, {last for _, last in pairs}
    if others - lasts or (count is not None and set(count.users) - firsts):
        return None
    return pairs


def add_to_gradients(graph):
    """Lets the derivatives of norms add what is added to their first result: the gradient that
    comes by a residual connection."""
    order = {node: i for i, node in enumerate(graph.nodes)}
    places = {"opdock.layer_norm_backward.default": 4, "opdock.rms_norm_backward.default": 3}
    for node in list(graph.nodes):
        place = places.get(str(node.target))
        result = None if place is None or node.args[place] is not None else _part(node, 0)
        if result is None or len(result.users) != 1:
            continue
        total = next(iter(result.users))
        if total.target is not aten.add.Tensor or total.kwargs or len(total.args) != 2:
            continue
        other = total.args[1] if total.args[0] is result else total.args[0]
        if not isinstance(other, fx.Node) or order.get(other, order[node]) >= order[node]:
            continue
        same = value(other).dtype is value(result).dtype and shape(other) == shape(result)
        if same and _layout.is_contiguous(other) and _layout.is_contiguous(total):
            node.update_arg(place, other)
            total.replace_all_uses_with(result)
            graph.erase_node(total)


_REPLACED = {
    aten.native_layer_norm.default: ("layer_norm", _layer_norm),
    aten.nll_loss_forward.default: ("cross_entropy", _cross_entropy),
}
