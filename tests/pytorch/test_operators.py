# SPDX-License-Identifier: Apache-2.0
"""Tests that each op is a PyTorch operator: its schema, its results, what torch's own checks of
operators say, and registration."""

import os
from pathlib import Path
from types import SimpleNamespace

import operator_examples
import pytest
import torch
from conftest import run_python

import opdock
import opdock.torch
from opdock._load import op_names
from opdock.torch import _register
from opdock.torch._schema import schema
from opdock.torch._version import check as check_version

CALLS = [
    *operator_examples.unique(
        [
            *operator_examples.differentiable(),
            *operator_examples.backward(),
            *operator_examples.others(),
        ]
    )
]
#: The ops of tests/python/plugin, which are there for tests of arguments.
PREFIX = "py_"
#: torch's checks of operators. The last makes graphs of a call and of its gradients and takes most
#: of the time: by day it sees one call of each op, with --nightly all.
CHECKS = ["test_schema", "test_autograd_registration", "test_faketensor"]
CHECK_OF_GRAPHS = "test_aot_dispatch_dynamic"


def flat(results):
    return [x for x in torch.utils._pytree.tree_leaves(results) if isinstance(x, torch.Tensor)]


def test_every_op_is_an_operator_or_refused_with_a_reason():
    there, refused = set(opdock.torch.register_all()), opdock.torch.refused()
    names = set(op_names())
    assert names <= there | set(refused) and len(there) > 50
    assert all(name.startswith(("aio_", PREFIX)) for name in refused)
    for name, reason in refused.items():
        assert reason.startswith(f"{name}: found ") and f"call opdock.ops.{name} instead" in reason
        assert not hasattr(torch.ops.opdock, name)
    tried = {name for _, name, _, _ in CALLS}
    assert {n for n in names - set(refused) if not n.startswith(PREFIX)} <= tried


@pytest.mark.parametrize(
    ("number", "name", "args", "keywords"),
    [(c[0].rpartition("-")[2], *c[1:]) for c in CALLS],
    ids=[c[0] for c in CALLS],
)
def test_torchs_own_checks(number, name, args, keywords):
    checks = [*CHECKS]
    if number == "1" or "OPDOCK_TEST_NIGHTLY" in os.environ:
        checks.append(CHECK_OF_GRAPHS)
    overload = getattr(torch.ops.opdock, name).default
    has_gradient = any(op is not None for _, op, _ in opdock.load(name)._gradients)
    copies = operator_examples.differentiated(args) if has_gradient else args
    found = torch.library.opcheck(overload, copies, keywords, test_utils=checks)
    assert found == dict.fromkeys(checks, "SUCCESS")


@pytest.mark.parametrize(
    ("name", "args", "keywords"), [c[1:] for c in CALLS], ids=[c[0] for c in CALLS]
)
def test_results_are_those_of_the_op(name, args, keywords):
    copies = [operator_examples.detached(args) for _ in range(2)]
    torch.manual_seed(4)
    found = getattr(torch.ops.opdock, name)(*copies[0], **keywords)
    torch.manual_seed(4)
    function = opdock.load(name)  # a loaded op takes some parameters by name only
    names = [param[0] for param in function._params if param[1] != 11]
    wanted = function(**dict(zip(names, copies[1], strict=False)), **keywords)
    assert len(flat(found)) == len(flat(wanted))
    for x, y in zip(flat((found, copies[0])), flat((wanted, copies[1])), strict=True):
        assert torch.equal(x, y)


def test_schemas_have_aliases_and_positional_scalars(ops):
    found = str(ops.adamw_.default._schema)
    assert "Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] exp_avgs" in found
    assert "Tensor(e!)[]? masters=None" in found and found.endswith("-> ()")
    assert str(ops.softmax.default._schema) == (
        "opdock::softmax(Tensor x, float scale=1., Tensor? mask=None, bool causal=False) -> Tensor"
    )
    assert str(ops.pad_rows.default._schema).count("SymInt") == 2
    assert "generator" not in str(ops.dropout.default._schema)
    # py_two returns (Tensor, Tensor(a!), Tensor): the tensor that it writes is no result.
    assert str(ops.py_two.default._schema).endswith("Tensor(a!) y) -> (Tensor, Tensor)")


TENSOR, STRING, INT, FLOAT, GENERATOR = 8, 5, 2, 3, 11
OPTIONAL, LIST, KEYWORD_ONLY, HAS_DEFAULT, OPTIONAL_ELEMENTS = 1, 2, 4, 8, 32


def test_schemas_of_odd_parameters_are_torchs_grammar():
    parameters = [
        ("x", TENSOR, 0, None),
        ("mode", STRING, HAS_DEFAULT, 'a"b'),
        ("y", TENSOR, KEYWORD_ONLY, None),  # without a default, after one that has one
        ("g", GENERATOR, OPTIONAL | HAS_DEFAULT, None),
        ("xs", TENSOR, LIST | OPTIONAL_ELEMENTS | KEYWORD_ONLY, None),
        ("n", INT, LIST | HAS_DEFAULT, [1, 2]),
        ("limit", FLOAT, HAS_DEFAULT, 1e-300),
        ("low", FLOAT, OPTIONAL | HAS_DEFAULT, None),
    ]
    op = SimpleNamespace(_params=parameters, _results=[(-1, TENSOR, OPTIONAL), (0, TENSOR, 0)])
    found = schema("f", op)
    assert found == (
        'f(Tensor x, str mode="a\\"b", *, Tensor y, Tensor?[] xs, SymInt[] n=[1, 2], '
        "float limit=1e-300, float? low=None) -> Tensor?"
    )
    parsed = torch._C.parse_schema(f"test::{found}")
    defaults = {a.name: a.default_value for a in parsed.arguments if a.has_default_value()}
    assert defaults == {"mode": 'a"b', "n": [1, 2], "limit": 1e-300, "low": None}


def test_tensors_that_are_written_are_not_returned(ops):
    x, y = torch.ones(3), torch.arange(3.0)
    copy, before = ops.py_two(x, y)
    assert torch.equal(copy, x) and torch.equal(before, torch.arange(3.0))
    assert torch.equal(y, torch.tensor([1.0, 1.0, 2.0]))
    assert ops.py_add_(y, by=2.0) is None and y[0] == 3


def test_flags_become_tags(ops):
    tags = {name: getattr(ops, name).default.tags for name in ("softmax", "dropout", "py_copy")}
    assert torch.Tag.pt2_compliant_tag in tags["softmax"]
    assert torch.Tag.cudagraph_unsafe not in tags["softmax"]
    assert torch.Tag.nondeterministic_seeded in tags["dropout"]
    assert torch.Tag.nondeterministic_seeded not in tags["softmax"]
    assert torch.Tag.cudagraph_unsafe in tags["py_copy"]  # it does not say that it is capture-safe
    assert torch.Tag.cudagraph_unsafe in ops.copy_to_device.default.tags


def test_random_numbers_follow_manual_seed(ops):
    x = torch.ones(1000)
    torch.manual_seed(1)
    first, second = ops.dropout(x)[0], ops.dropout(x)[0]
    torch.manual_seed(1)
    assert torch.equal(ops.dropout(x)[0], first) and not torch.equal(first, second)


def test_the_import_loads_no_plugin_and_not_dynamo():
    code = (
        "import opdock.torch, sys, torch\n"
        "assert 'torch._dynamo' not in sys.modules, 'it takes more than a second'\n"
        "def loaded(): return 'plugins/softmax.so' in open('/proc/self/maps').read()\n"
        "assert not loaded()\n"
        "torch.ops.opdock.softmax(torch.ones(2, 3))\n"
        "assert loaded()\n"
    )
    run_python(code)


def test_plugins_that_come_later_are_registered(tmp_path):
    softmax = Path(os.environ["OPDOCK_BUILD_DIR"]) / "plugins" / "softmax.so"
    code = (
        "import shutil, sys, opdock, opdock.torch, torch\n"
        "assert opdock.torch.register_all() == [] and not hasattr(torch.ops.opdock, 'softmax')\n"
        "shutil.copy(sys.argv[1], sys.argv[2])\n"
        "opdock.plugins(rescan=True)\n"
        "assert 'softmax_backward' in opdock.torch.register_all()\n"
        "x = torch.ones(2, 4, requires_grad=True)\n"
        "torch.ops.opdock.softmax(x).sum().backward()\n"
        "assert x.grad.abs().max() < 1e-6\n"
    )
    run_python(code, softmax, tmp_path, OPDOCK_PLUGIN_PATH=str(tmp_path), OPDOCK_BUILD="never")


def test_names_are_registered_once():
    f = opdock.formula("x * 2", "twice(Tensor x) -> Tensor")
    made = opdock.torch.register(f)
    assert made is torch.ops.opdock.twice.default is opdock.torch.register(f)
    assert torch.equal(made(torch.ones(3)), torch.full((3,), 2.0))
    same = opdock.formula("x * 2", "twice(Tensor x) -> Tensor")
    assert opdock.torch.register(same) is made
    with pytest.raises(opdock.InvalidArgumentError, match="torch.ops.opdock.twice of another op"):
        opdock.torch.register(opdock.formula("x * 3", "twice(Tensor x) -> Tensor"))
    other = opdock.torch.register(opdock.formula("x * 3"), name="thrice")
    assert torch.equal(other(torch.ones(3)), torch.full((3,), 3.0))
    assert opdock.torch.register("softmax") is torch.ops.opdock.softmax.default
    assert opdock.torch.register(opdock.ops.softmax) is torch.ops.opdock.softmax.default


def test_a_fused_function_is_registered_by_its_formula():
    @opdock.fuse
    def scaled(x, w):
        return torch.tanh(x) * w

    with pytest.raises(opdock.ArgumentError, match="a fused function with 0 formulas, wanted one"):
        opdock.torch.register(scaled)
    x, w = torch.randn(3, 4, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    scaled(x, w)
    op = opdock.torch.register(scaled, name="scaled_tanh")
    assert torch.autograd.gradcheck(op, (x.requires_grad_(), w.requires_grad_()))
    torch.testing.assert_close(op(x, w), torch.tanh(x) * w)


def test_what_cannot_be_registered_is_refused():
    with pytest.raises(opdock.ArgumentError, match="'what': found an object of type int, wanted"):
        opdock.torch.register(3)
    with pytest.raises(opdock.ArgumentError, match="'name': found 'a b', wanted an identifier"):
        opdock.torch.register("softmax", name="a b")
    with pytest.raises(opdock.NotFoundError, match="nothing_has_this_name"):
        opdock.torch.register("nothing_has_this_name")
    with pytest.raises(
        opdock.UnsupportedError, match="py_show: found the parameter 'c' of the type"
    ):
        opdock.torch.register("py_show")


def test_a_schema_that_torch_cannot_read_is_no_failure_of_the_import(monkeypatch):
    monkeypatch.setattr(_register, "schema", lambda name, op: f"{name}(float x=inf) -> Tensor")
    f = opdock.formula("x + 5", "unreadable(Tensor x) -> Tensor")
    with pytest.raises(opdock.UnsupportedError, match="unreadable: found the schema .* cannot"):
        opdock.torch.register(f)
    monkeypatch.undo()
    assert opdock.torch.register(f)(torch.zeros(1)) == 5


def test_a_torch_that_is_too_old_is_named():
    with pytest.raises(ImportError, match="found torch 2.9.1.cpu, wanted 2.11 or newer; update"):
        check_version("2.9.1+cpu")
    for version in ("2.11.0", "2.13.0+cpu", "3.0.0a0+git1", "a version"):
        check_version(version)


def test_an_error_of_the_op_has_its_type_and_names_the_argument(ops):
    with pytest.raises(opdock.OpdockError, match="layer_norm: argument 'weight': found strides"):
        ops.layer_norm(torch.ones(2, 4), torch.ones(8)[::2])
    with pytest.raises(RuntimeError, match="softmax"):
        ops.softmax("text")
