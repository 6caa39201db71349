# SPDX-License-Identifier: Apache-2.0
"""Tests that adam_ and adamw_ refuse bad arguments, and name them."""

import pytest
import torch

import opdock
from opdock.testing import on

OPS = ["adamw_", "adam_"]
LISTS = ["params", "grads", "exp_avgs", "exp_avg_sqs"]
SHAPES = [(2, 4), (3, 4), (0,)]


def arguments():
    """Returns the arguments of a correct call, by name."""
    made = {name: [torch.ones(shape) for shape in SHAPES] for name in LISTS}
    return made | {"step": torch.zeros(())}


def call(device, name, keywords):
    positional = [keywords.pop(one) for one in (*LISTS, "step")]
    on(device, getattr(opdock.ops, name))(*positional, **keywords)


def invalid_args():
    """Yields (the text of the error, a change to a correct call's keywords)."""

    def replaced(name, number, x):
        def change(lists):
            lists[name][number] = x

        return change

    def given(**options):
        return lambda lists: lists.update(options)

    wide = torch.ones(3, 8)[:, :4]
    yield r"'grads': found 2 tensors, wanted 3", lambda lists: lists["grads"].pop()
    yield r"'exp_avgs': found 4 tensors", lambda lists: lists["exp_avgs"].append(torch.ones(1))
    yield r"'exp_avg_sqs': found 0 tensors", given(exp_avg_sqs=[])
    yield r"'masters'.*beside params of float32", given(masters=[torch.ones(1)])
    yield (
        r"'params\[1\]'.*float16.*float32",
        replaced("params", 1, torch.ones(3, 4).half()),
    )
    yield r"element 0 of argument 'params'.*int64", replaced("params", 0, torch.ones(2, 4).long())
    yield r"'params\[1\]'.*stride", replaced("params", 1, wide)
    yield r"'grads\[1\]'.*shape \[3, 5\]", replaced("grads", 1, torch.ones(3, 5))
    yield (
        r"'grads\[1\]'.*strides \[8, 1\], wanted \[4, 1\]",
        replaced("grads", 1, wide),
    )
    yield r"'grads\[0\]'.*float16", replaced("grads", 0, torch.ones(2, 4).half())
    yield r"'grads\[2\]'.*float64", replaced("grads", 2, torch.ones(0).double())
    yield (
        r"'exp_avgs\[0\]'.*int32",
        replaced("exp_avgs", 0, torch.ones(2, 4).int()),
    )
    yield (
        r"'exp_avg_sqs\[1\]'.*bfloat16",
        replaced("exp_avg_sqs", 1, torch.ones(3, 4).bfloat16()),
    )
    yield r"'step'.*int64", given(step=torch.tensor(3))
    yield r"'step': found shape \[2\], wanted one", given(step=torch.ones(2))
    yield r"'lr_tensor'.*float64", given(lr_tensor=torch.tensor(1.0, dtype=torch.float64))
    yield r"'grad_scale': found shape \[0\]", given(grad_scale=torch.ones(0))
    yield r"'found_inf'.*bool", given(found_inf=torch.tensor(True))
    yield r"'lr': found -0.1", given(lr=-0.1)
    yield r"'lr': found nan", given(lr=float("nan"))
    yield r"'beta1': found 1,", given(beta1=1.0)
    yield r"'beta2': found -0.5", given(beta2=-0.5)
    yield r"'eps': found -1e-08", given(eps=-1e-8)
    yield r"'weight_decay': found -1,", given(weight_decay=-1.0)


INVALID_ARGS = list(invalid_args())


@pytest.mark.parametrize("name", OPS)
def test_these_arguments_are_right(device, name):
    call(device, name, arguments())


@pytest.mark.parametrize("number", range(len(INVALID_ARGS)))
def test_bad_arguments_are_told_by_name(device, number):
    text, change = INVALID_ARGS[number]
    for name in OPS:
        keywords = arguments()
        change(keywords)
        with pytest.raises(opdock.OpdockError, match=text):
            call(device, name, keywords)


def test_masters_are_for_narrow_params(device):
    keywords = arguments() | {"masters": [torch.ones(shape) for shape in SHAPES]}
    with pytest.raises(opdock.OpdockError, match="'masters'.*beside params of float32"):
        call(device, "adamw_", keywords)
    for name in ("params", "grads"):
        keywords[name] = [x.half() for x in arguments()[name]]
    keywords |= {name: arguments()[name] for name in LISTS[2:]} | {"step": torch.zeros(())}
    call(device, "adamw_", dict(keywords))
    keywords["masters"] = keywords["masters"][:1]
    with pytest.raises(opdock.OpdockError, match="'masters': found 1 tensors, wanted 3"):
        call(device, "adamw_", keywords)


def test_shared_memory_is_told(device):
    keywords = arguments()
    keywords["exp_avgs"][1] = keywords["params"][1]
    with pytest.raises(opdock.OpdockError, match=r"shared with"):
        call(device, "adamw_", keywords)
