# SPDX-License-Identifier: Apache-2.0
"""What test_distributed.py has two processes do together: each case_… function is a test.

    python distributed_cases.py STORE

STORE: a file through which the processes find each other. Each writes {case: ""}, or its traceback,
to STORE.0 or STORE.1.
"""

import datetime
import functools
import json
import os
import sys
import traceback
from pathlib import Path

import opdock.torch  # before DTensor: the rules have to come with the first call

# isort: split
import distributed_training
import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
from torch.utils import _pytree as pytree

import opdock

OPS = torch.ops.opdock
WORLD = 2
STEPS = 100 if os.environ.get("OPDOCK_TEST_NIGHTLY") else 5
#: The sizes of the dimensions that the patterns below name. They cannot be divided alike.
SIZES = {"b": 4, "s": 5, "l": 6, "h": 4, "H": 2, "d": 8, "p": 7, "r": 3, "L": 12}
#: op -> calls: a pattern, which gives each tensor's and result's dimensions a letter, the letters
#: along which the call may be sharded, and the other arguments. The letters h and H are one.
CALLS = {
    "bias_add": [("bsl, l -> bsl", "bsl", {})],
    "bias_gelu": [("bsl, l -> bsl", "bsl", {"approximate": "none"})],
    "bias_relu": [("bsl, l -> bsl", "bsl", {})],
    "gelu_mul": [("bsl, bsl -> bsl", "bsl", {})],
    "moe_res_matmul": [("bsl, L, bsl -> bsl", "bs", {})],
    "residual_add": [("bsl, bsl, bsl, l, l -> bsl", "bsl", {"divisor": 2.0})],
    "silu": [("bsl -> bsl", "bsl", {})],
    "silu_mul": [("bsl, bsl -> bsl", "bsl", {})],
    "vector_add": [("bsl, bsl -> bsl", "bsl", {"gamma": 3.0})],
    "geglu": [("bsL, L -> bsl", "bs", {})],
    "swiglu": [("bsL -> bsl", "bs", {})],
    "layer_norm": [("bsl, l, l -> bsl", "bs", {}), ("bsl -> bsl", "bs", {})],
    "add_layer_norm": [("bsl, bsl, l, l -> bsl, bsl", "bs", {})],
    "rms_norm": [("bsl, l -> bsl", "bs", {"eps": 0.1})],
    "add_rms_norm": [("bsl, bsl, l -> bsl, bsl", "bs", {})],
    "softmax": [("bsl -> bsl", "bs", {"scale": 0.5}), ("bsl -> bsl", "b", {"causal": True})],
    "log_softmax": [("bsl -> bsl", "bs", {}), ("bsl -> bsl", "b", {"causal": True})],
    "cross_entropy": [("bsl, bs. -> bs", "bs", {"label_smoothing": 0.1, "dtype": torch.float64})],
    "rope": [
        ("bshd, bsHd, pr!, pr! -> bshd, bsHd", "bh", {}),
        ("bshd, bsHd, pr!, pr!, s. -> bshd, bsHd", "bsh", {}),
        ("bshd, bsHd, pr!, pr!, bs. -> bshd, bsHd", "bsh", {"interleaved": True}),
    ],
}  # fmt: skip


def made(letters):
    """Returns a tensor: letters with "." behind them are indices, with "!" have no gradient."""
    shape = [SIZES[one] for one in letters.rstrip(".!")]
    if letters.endswith("."):
        return torch.randint(0, 5, shape)
    return torch.randn(shape, dtype=torch.float64, requires_grad=not letters.endswith("!"))


def spread(x, mesh, placements):
    """Returns the tensor as a DTensor that requires a gradient if the tensor does."""
    return distribute_tensor(x.detach(), mesh, placements).requires_grad_(x.requires_grad)


def placement(letters, along):
    """Returns how a tensor is sharded along a letter: if it lacks that, not at all."""
    at = letters.rstrip(".!").lower().find(along)
    return [Replicate() if at < 0 else Shard(at)]


def gradients(found, args, weigh):
    """Returns the gradient of each argument, of a sum of the results with unequal weights."""
    torch.manual_seed(3)
    weights = [torch.randn(one.shape, dtype=torch.float64) for one in found]
    total = sum((one * weigh(w, one)).sum() for one, w in zip(found, weights, strict=True))
    leaves = [x for x in args if x.requires_grad]
    made = iter(torch.autograd.grad(total, leaves))
    return [next(made) if x.requires_grad else None for x in args]


def compare(call, pattern, along, mesh, allowed):
    """Compares a call with DTensors that are sharded along a letter with the call as it is.

    allowed: whether nothing may have been gathered, which the placements of results and gradients
    show."""
    given, results = (part.split(", ") for part in pattern.split(" -> "))
    torch.manual_seed(1)
    args = [made(letters) for letters in given]
    shared = [spread(x, mesh, placement(a, along)) for x, a in zip(args, given, strict=True)]
    wanted, found = (pytree.tree_leaves(call(*some)) for some in (args, shared))
    for a, b, letters in zip(found, wanted, results, strict=True):
        torch.testing.assert_close(a.full_tensor(), b)
        assert not allowed or [*a.placements] == placement(letters, along), a.placements
    wanted = gradients(wanted, args, lambda weights, one: weights)
    found = gradients(found, shared, lambda w, one: distribute_tensor(w, mesh, one.placements))
    for a, b, letters in zip(found, wanted, given, strict=True):
        if b is not None:
            torch.testing.assert_close(a.full_tensor(), b)
            sharded = placement(letters, along)
            expected = [Partial("sum")] if sharded == [Replicate()] else sharded
            assert not allowed or [*a.placements] == expected, a.placements


def case_calls(mesh):
    """Every op gives the numbers of the call that is not sharded, and gathers nothing where its
    dimensions are independent."""
    problems = []
    for name, calls in CALLS.items():
        for pattern, allowed, keywords in calls:
            op = functools.partial(getattr(OPS, name), **keywords)
            for along in sorted(set(pattern.split(" -> ")[0].lower()) & set("bslhd")):
                try:
                    compare(op, pattern, along, mesh, along in allowed)
                except Exception as error:
                    problems.append(f"{name} {pattern} along {along}: {error!r}")
    assert not problems, "\n".join(problems)


def case_formulas(mesh):
    """Formulas are sharded as their text allows it, those with row() not at all."""
    calls = [
        ("spread", "gelu(x + w)", "(Tensor x, Tensor w) -> Tensor", "bsl, l -> bsl", "bsl"),
        ("outer", "x * y", "(Tensor x, Tensor y) -> Tensor", "bsl, sl -> bsl", "bsl"),
        (
            "two_of",
            "return logsumexp(x), x * sum(w)",
            "(Tensor x, Tensor w) -> (Tensor, Tensor)",
            "bsl, l -> bs, bsl",
            "bs",
        ),
    ]
    for name, text, schema, pattern, allowed in calls:
        op = opdock.torch.register(opdock.formula(text, name + schema))
        for along in "bsl":
            compare(op, pattern, along, mesh, along in allowed)
    placed = opdock.torch.register(opdock.formula("x + row()", "placed(Tensor x) -> Tensor"))
    with pytest.raises(RuntimeError, match="^placed: found a DTensor that is sharded"):
        placed(distribute_tensor(torch.ones(4, 2), mesh, [Shard(0)]))


def case_refused(mesh):
    """An op without a rule is refused by its name; with replicated tensors it is as always."""
    x = torch.randn(4, 2, 6, 8)
    shared = distribute_tensor(x, mesh, [Shard(0)])
    with pytest.raises(
        RuntimeError, match="^attention: found a DTensor that is sharded.*full_tens"
    ):
        OPS.attention(shared, shared, shared)
    with torch.inference_mode(), pytest.raises(RuntimeError, match="^linear: found a DTensor that"):
        OPS.linear(shared, distribute_tensor(torch.ones(3, 8), mesh, [Replicate()]))
    whole = distribute_tensor(x, mesh, [Replicate()])
    torch.testing.assert_close(
        OPS.attention(whole, whole, whole).full_tensor(), OPS.attention(x, x, x)
    )
    with pytest.raises(RuntimeError, match="^dropout: found a DTensor, .*draws random numbers"):
        OPS.dropout(whole)
    caches = [distribute_tensor(torch.zeros(4, 9, 6, 8), mesh, [Replicate()]) for _ in range(2)]
    start = distribute_tensor(torch.zeros(4, dtype=torch.int32), mesh, [Replicate()])
    with pytest.raises(RuntimeError, match="^append_kv: found a DTensor, .*writes into its arg"):
        OPS.append_kv(whole, whole, whole, *caches, start)
    with pytest.raises(RuntimeError, match="^split_rows: found a DTensor, .*lists of tensors"):
        OPS.split_rows(shared, [1, 3])
    with pytest.raises(opdock.OpdockError, match="distributed"):
        opdock.ops.softmax(shared)
    y = OPS.softmax(shared)
    assert torch.equal(y.to_local(), OPS.softmax(shared.to_local()))


def case_calls_that_differ_in_a_bool(mesh):
    """DTensor keeps what a rule answered; with another bool it is another call."""
    schema = "halved(Tensor x, bool flag) -> Tensor"
    op = opdock.torch.register(opdock.formula("to(x, float16) if flag else x", schema))
    x = distribute_tensor(torch.ones(4, 6), mesh, [Shard(0)])
    for flag, dtype in ((True, torch.float16), (False, torch.float32)):
        found = op(x, flag)
        assert found._spec.tensor_meta.dtype == found.to_local().dtype == dtype


def case_gradient_of_one_result(mesh):
    """The gradient of a result that nobody used is zero, sharded as the result is."""
    q, k = made("bshd"), made("bsHd")
    cos, sin = made("sr!"), made("sr!")
    whole = [Replicate()]
    shared = [distribute_tensor(x.detach(), mesh, [Shard(0)]).requires_grad_() for x in (q, k)]
    tables = [distribute_tensor(x, mesh, whole) for x in (cos, sin)]
    OPS.rope(*shared, *tables)[1].square().sum().backward()
    OPS.rope(q, k, cos, sin)[1].square().sum().backward()
    for x, y in zip((q, k), shared, strict=True):
        torch.testing.assert_close(y.grad.full_tensor(), x.grad)


def compare_training(wrap, mesh):
    plain = distributed_training.train(wrap, mesh, STEPS)
    patched = distributed_training.train(wrap, mesh, STEPS, patched=True)
    assert plain[-1] < 0.95 * plain[0], plain
    torch.testing.assert_close(patched, plain, rtol=1e-4, atol=0)


def case_training_with_ddp(mesh):
    compare_training(distributed_training.ddp, mesh)


def case_training_with_fsdp2(mesh):
    compare_training(distributed_training.fsdp2, mesh)


def case_patching_a_sharded_model(mesh):
    """Patched after it was sharded the model gives the same loss, and can be restored."""
    batch = distributed_training.batches(1, 1, "cpu")[0]
    model = distributed_training.fsdp2(distributed_training.train_gpt.GPT(), mesh)
    before = [type(module) for module in model.modules()]
    plain = model(batch)
    with distributed_training.swaps_everything() as kinds:
        swapped = opdock.torch.patch(model).swapped
        torch.testing.assert_close(model(batch), plain)
    assert kinds == distributed_training.KINDS and opdock.torch.unpatch(model) > len(kinds)
    assert swapped and [type(module) for module in model.modules()] == before


def main():
    store = sys.argv[1]
    torch.set_num_threads(1)
    child = os.fork()  # the imports above are half of what all of this costs
    rank = 0 if child else 1
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=WORLD,
        timeout=datetime.timedelta(minutes=5),
    )
    mesh = init_device_mesh("cpu", (WORLD,))
    outcome = {}
    for name, case in [*globals().items()]:
        if name.startswith("case_"):
            try:
                case(mesh)
                outcome[name.removeprefix("case_")] = ""
            except Exception:
                outcome[name.removeprefix("case_")] = traceback.format_exc()
            dist.barrier()
    dist.destroy_process_group()
    Path(f"{store}.{rank}").write_text(json.dumps(outcome))
    if child:
        sys.exit(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    main()
