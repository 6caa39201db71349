# SPDX-License-Identifier: Apache-2.0
"""Makes an operator's fake kernel: what the results are, for tensors that have no data.

torch.compile and torch.export call it with symbolic sizes. The results' sizes come from the op's
shape rule; the plugin's own plan is asked with the hints, so that arguments that the plugin refuses
are refused while the graph is made.
"""

import torch

from opdock._errors import InternalError, InvalidArgumentError
from opdock.torch import _sharding
from opdock.torch._plan import hints, plan
from opdock.torch._shape import TORCH_DTYPES, Rule, first_tensor

#: Whether inductor takes a view for its whole storage when an op writes into two views of one: it
#: computes wrong numbers with torch 2.11, and right ones with 2.13.
misplaces_views = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13)


def kernel_of(op):
    """Returns the fake kernel of `op`."""

    def fake(*args, **keywords):
        _sharding.flush()  # DTensor asks for the results' sizes before it looks for a rule
        values = op.whole(op.bind(args, keywords))
        if op.written and misplaces_views:
            _check_storages(op, values)
        planned = plan(op.function, values)
        tensors = _by_plan(op, values, planned) if op.formula else _by_rules(op, values, planned)
        return None if not tensors else tensors[0] if len(tensors) == 1 else tuple(tensors)

    return fake


def _check_storages(op, values):
    """Refuses tensors that the op writes if two of them are views of one storage."""
    storages = {}  # of each, the name of the argument that came first
    for place in op.written:
        value, name = values[place], op.names[place]
        for x in value if isinstance(value, list | tuple) else [value]:
            if not isinstance(x, torch.Tensor):
                continue
            key = x.untyped_storage()._cdata
            if key in storages:
                raise InvalidArgumentError(
                    f"{op.name}(): found views of one storage in {storages[key]!r} and {name!r}, "
                    f"which the op writes, wanted a storage for each: torch {torch.__version__} "
                    "compiles such calls into wrong numbers; clone the tensors, or use torch 2.13"
                )
            storages[key] = name


def _device(op, values):
    model = values[op.device_arg]
    return (model if isinstance(model, torch.Tensor) else first_tensor(values)).device


def _by_rules(op, values, planned):
    """Returns the results as the shape rules give them, compared with what the plugin planned."""
    device, model = _device(op, values), first_tensor(values)
    found, facts = [], []
    for i in op.fresh:
        result = Rule(op.rules[i], values, model).results()
        for dtype, shape in result if isinstance(result, list) else [result] if result else []:
            facts.append((dtype, hints(shape)))
        if isinstance(result, list):
            found.append([torch.empty(shape, dtype=d, device=device) for d, shape in result])
        else:
            found.append(result and torch.empty(result[1], dtype=result[0], device=device))
    if planned is not None:
        wanted = [(TORCH_DTYPES[dtype], tuple(shape)) for dtype, shape in planned]
        pairs = zip(facts, wanted, strict=True)
        if any(shape is not None and (d, shape) != w for (d, shape), w in pairs):
            raise InternalError(
                f"{op.name}: found the results {facts} by the shape rules, wanted {wanted}, which "
                "the plugin plans; correct `shape` in its plugin.toml"
            )
    return found


def _by_plan(op, values, planned):
    """Returns a formula's results: of the shape that its tensors are broadcast to, or, where a
    result has one number for each row, of that shape without the last dimension. Dtypes, and which
    of the two it is, come from the plan. Gradients have the shapes of their tensors."""
    if planned is None:
        raise RuntimeError(
            f"{op.name}: found sizes that are not known while tracing, or a device that is not "
            "here, wanted sizes with an example; mark them with torch._dynamo.mark_dynamic"
        )
    device = _device(op, values)
    of = getattr(op.formula, "of", None)
    if of is not None:
        named = dict(zip(op.names, values, strict=True))
        shapes = [named[name].shape for name in of]
    else:
        shape = torch.broadcast_shapes(*[x.shape for x in values if isinstance(x, torch.Tensor)])
        shapes = [shape[: len(planned_shape)] for _, planned_shape in planned]
    return [
        torch.empty(own, dtype=TORCH_DTYPES[dtype], device=device)
        for own, (dtype, _) in zip(shapes, planned, strict=True)
    ]
