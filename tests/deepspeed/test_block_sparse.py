# SPDX-License-Identifier: Apache-2.0
"""Tests MatMul and Softmax of 0.7.7's sparse attention against dense tensors, gradients included,
and that install() puts them into the place of those that need Triton 1.0.0."""

import itertools

import pytest
import torch
from conftest import run_python

import opdock
from opdock.compat.deepspeed._block_sparse import MatMul, Softmax

HEADS, BATCH, BLOCK = 2, 3, 16
ROWS, COLUMNS, INNER = 4, 5, 48  # blocks, blocks, elements


def layout():
    made = torch.rand(HEADS, ROWS, COLUMNS, generator=torch.Generator().manual_seed(3)) < 0.5
    made[0, 1] = False  # a row without blocks
    return made.long()


def values(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def sparse(dense, where):
    """Returns the blocks of a dense tensor, one after the other."""
    found = [
        dense[:, h, i * BLOCK : (i + 1) * BLOCK, j * BLOCK : (j + 1) * BLOCK]
        for h, i, j in where.nonzero().tolist()
    ]
    return torch.stack(found, 1)


def mask(where):
    return where.repeat_interleave(BLOCK, 1).repeat_interleave(BLOCK, 2)


@pytest.mark.parametrize("mode", ["sdd", "dsd", "dds"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_products(mode, dtype):
    where = layout()
    rows, columns, bound = ROWS * BLOCK, COLUMNS * BLOCK, 40 * torch.finfo(dtype).eps
    whole = values(BATCH, HEADS, rows, columns, seed=1) * mask(where)
    for trans_a, trans_b in itertools.product((False, True), repeat=2):
        # The factors as they are multiplied; the sparse one may be the transposed matrix.
        if mode == "sdd":
            a, b = values(BATCH, HEADS, rows, INNER), values(BATCH, HEADS, INNER, columns)
        elif mode == "dsd":
            a = whole.mT if trans_a else whole
            b = values(BATCH, HEADS, a.shape[-1], INNER)
        else:
            b = whole.mT if trans_b else whole
            a = values(BATCH, HEADS, INNER, b.shape[-2])
        wanted = a.to(dtype).double() @ b.to(dtype).double()
        wanted = sparse(wanted, where) if mode == "sdd" else wanted
        given = [x.mT if turned else x for x, turned in ((a, trans_a), (b, trans_b))]
        if mode != "sdd":
            at = 0 if mode == "dsd" else 1
            given[at] = sparse(given[at], where)
        product = MatMul(where, BLOCK, mode, trans_a=trans_a, trans_b=trans_b)
        found = product(*(x.to(dtype) for x in given))
        assert found.dtype == dtype and found.shape == wanted.shape
        assert (found.double() - wanted).abs().max() <= bound * wanted.abs().max()


def test_gradients_of_products():
    where = layout()[:, :2, :2]
    a, b = (values(1, HEADS, 4, 3, seed=k).requires_grad_() for k in (1, 2))
    product = MatMul(where, 2, "sdd", trans_b=True)
    back = MatMul(where, 2, "dsd", trans_a=True)
    assert torch.autograd.gradcheck(lambda a, b: back(product(a, b), b), (a, b))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
@pytest.mark.parametrize("mode", ["add", "mul"])
def test_softmax(dtype, mode):
    where = layout()
    rows, columns = ROWS * BLOCK, COLUMNS * BLOCK
    dense = values(BATCH, HEADS, rows, columns).to(dtype).double()
    rpe = values(HEADS, rows, columns, seed=1).to(dtype)
    keys, pairs = values(BATCH, columns, seed=2).to(dtype), values(rows, columns, seed=3).to(dtype)
    if mode == "mul":
        keys, pairs = keys > 0, pairs > -1
        of_keys, of_pairs = (
            torch.zeros(x.shape).double().masked_fill(~x, -torch.inf) for x in (keys, pairs)
        )
    else:
        of_keys, of_pairs = keys.double(), pairs.double()
    wanted = dense * 0.3 + rpe.double() + of_keys[:, None, None] + of_pairs
    wanted = wanted.masked_fill(mask(where) == 0, -torch.inf).softmax(-1).nan_to_num()
    x = sparse(dense.to(dtype), where)
    found = Softmax(where, BLOCK)(
        x,
        scale=0.3,
        rpe=rpe,
        key_padding_mask=keys,
        attn_mask=pairs,
        key_padding_mask_mode=mode,
        attn_mask_mode=mode,
    )
    assert found.dtype == dtype
    assert (found.double() - sparse(wanted, where)).abs().max() <= 4 * torch.finfo(dtype).eps


def test_gradients_of_softmax():
    where = layout()[:, :2, :2]
    x = values(2, int(where.sum()), BLOCK, BLOCK).requires_grad_()
    keys = values(2, 2 * BLOCK, seed=1)
    softmax = Softmax(where, BLOCK)
    weight = values(*x.shape, seed=2)
    (found,) = torch.autograd.grad((softmax(x, 0.5, key_padding_mask=keys) * weight).sum(), x)
    y = softmax(x, 0.5, key_padding_mask=keys).detach()
    head, row, _ = where.nonzero().unbind(1)
    for k, (h, i) in enumerate(zip(head.tolist(), row.tolist(), strict=True)):
        same = (head == h) & (row == i)
        inner = (y * weight)[:, same].sum((1, 3))[..., None]  # over the whole row
        wanted = 0.5 * y[:, k] * (weight[:, k] - inner)
        assert (found[:, k] - wanted).abs().max() < 1e-12


def test_what_does_not_fit_is_named():
    where = layout()
    x, a = torch.zeros(1, 3, BLOCK, BLOCK), torch.zeros(1, HEADS, ROWS * BLOCK, 8)
    for made, wanted in (
        (lambda: MatMul(where, BLOCK, "ssd"), "MatMul: argument 'mode': found 'ssd'"),
        (lambda: MatMul(where[0], BLOCK, "sdd"), "MatMul: argument 'layout': found 2 dimensions"),
        (lambda: MatMul(where, BLOCK, "sdd")(a, a), "MatMul: argument 'b': found shape"),
        (lambda: MatMul(where, BLOCK, "dsd")(x, a), "MatMul: argument 'a': found shape"),
        (lambda: Softmax(where, BLOCK)(x), "Softmax: argument 'x': found shape"),
    ):
        with pytest.raises(opdock.InvalidArgumentError, match=wanted):
            made()
    good = torch.zeros(1, int(where.sum()), BLOCK, BLOCK)
    with pytest.raises(opdock.InvalidArgumentError, match="'attn_mask_mode': found 'or'"):
        keys = torch.zeros(ROWS * BLOCK, COLUMNS * BLOCK)
        Softmax(where, BLOCK)(good, attn_mask=keys, attn_mask_mode="or")


@pytest.mark.parametrize("triton", [None, "3.4.0", "1.0.0"])
def test_they_are_deepspeeds_where_its_own_cannot_run(tmp_path, triton):
    package = tmp_path / "deepspeed" / "ops" / "sparse_attention"
    package.mkdir(parents=True)
    for folder in (package, package.parent, package.parent.parent):
        (folder / "__init__.py").touch()
    for name, kind in (("matmul", "MatMul"), ("softmax", "Softmax")):
        (package / f"{name}.py").write_text(f"import triton\n{kind} = 'theirs'\n")
    if triton is not None:
        (tmp_path / f"triton-{triton}.dist-info").mkdir()
        (tmp_path / f"triton-{triton}.dist-info" / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: triton\nVersion: {triton}\n"
        )
        (tmp_path / "triton.py").touch()
    run_python(
        f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from opdock.compat import deepspeed as compat
compat.install()
from deepspeed.ops.sparse_attention.matmul import MatMul
from deepspeed.ops.sparse_attention.softmax import Softmax
import opdock.compat.deepspeed._block_sparse as ours
wanted = ("theirs", "theirs") if {triton!r} == "1.0.0" else (ours.MatMul, ours.Softmax)
assert (MatMul, Softmax) == wanted, (MatMul, Softmax)
try:
    import deepspeed.ops.sparse_attention.other
except ModuleNotFoundError:
    pass
"""
    )
