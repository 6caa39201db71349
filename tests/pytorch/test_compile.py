# SPDX-License-Identifier: Apache-2.0
"""Tests torch.compile and torch.export of torch.ops.opdock: one graph without breaks for all sizes,
and errors of a plugin while the graph is made."""

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

import opdock
import opdock.torch
from opdock.torch import _fake

OPS = torch.ops.opdock
SIZES = (3, 4, 7)


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    torch.manual_seed(5)


def ours(x, weight, bias):
    return OPS.softmax(OPS.silu_mul(OPS.layer_norm(x, weight, bias), x), 0.5)


def reference(x, weight, bias):
    normed = torch.nn.functional.layer_norm(x, (x.shape[-1],), weight, bias)
    return torch.softmax(torch.nn.functional.silu(normed) * x * 0.5, -1)


def arguments(size, grad=True):
    sizes = (size, 5, 8), (8,), (8,)
    return [torch.randn(s, dtype=torch.float64, requires_grad=grad) for s in sizes]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_training_is_one_graph_for_all_sizes(backend):
    counter = CompileCounterWithBackend(backend)
    compiled = torch.compile(ours, fullgraph=True, backend=counter, dynamic=True)
    for size in SIZES:
        args = arguments(size)
        found, wanted = compiled(*args), reference(*args)
        torch.testing.assert_close(found, wanted)
        gradients = [torch.autograd.grad(y.square().sum(), args) for y in (found, wanted)]
        torch.testing.assert_close(*gradients)
    assert counter.frame_count == 1


def test_a_marked_dimension_is_one_graph():
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(ours, fullgraph=True, backend=counter)
    for size in SIZES:
        args = arguments(size, grad=False)
        torch._dynamo.mark_dynamic(args[0], 0)
        torch.testing.assert_close(compiled(*args), reference(*args))
    assert counter.frame_count == 1


class Model(torch.nn.Module):
    def forward(self, x):
        padded = OPS.pad_rows(OPS.softmax(x), x.shape[1] + 1, 10)
        return padded, OPS.split_rows(x, [2, x.shape[0] - 2])


def test_export_with_dynamic_dimensions():
    dims = {0: torch.export.Dim("batch", min=4), 1: torch.export.Dim("rows")}
    program = torch.export.export(Model(), (torch.randn(5, 4, 8),), dynamic_shapes={"x": dims})
    targets = [str(node.target) for node in program.graph.nodes]
    assert "opdock.softmax.default" in targets and "opdock.split_rows.default" in targets
    x = torch.randn(9, 6, 8)
    found, wanted = program.module()(x), Model()(x)
    assert found[0].shape == (9, 7, 10) and [y.shape[0] for y in found[1]] == [2, 7]
    torch.testing.assert_close(found, wanted)


def adamw(param, grad, mean, square, count):
    OPS.adamw_([param], [grad * 2], [mean], [square], count, 0.1)
    return param + 1


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("views", [False, True], ids=["tensors", "views of one storage"])
def test_ops_in_place_stay_in_place(backend, views):
    if views and _fake.misplaces_views:
        pytest.skip("this torch compiles writes to two views of one storage into wrong numbers")
    compiled = torch.compile(adamw, fullgraph=True, backend=backend)
    rows = torch.rand(4, 6)
    args = [*(rows if views else map(torch.clone, rows)), torch.tensor(0.0)]
    copies = [x.clone() for x in args]
    places = [x.data_ptr() for x in args]
    assert torch.equal(compiled(*args), adamw(*copies))
    assert all(map(torch.equal, args, copies)) and args[4] == 1
    assert [x.data_ptr() for x in args] == places


def test_writes_to_views_of_one_storage_are_refused_where_torch_misplaces_them(monkeypatch):
    monkeypatch.setattr(_fake, "misplaces_views", True)
    compiled = torch.compile(adamw, fullgraph=True, backend="aot_eager")
    rows, count = torch.rand(4, 6), torch.tensor(0.0)
    before = rows.clone()
    with pytest.raises(Exception, match="views of one storage in 'params' and 'exp_avgs'"):
        compiled(*rows, count)
    assert torch.equal(rows, before) and count == 0
    compiled(*(x.clone() for x in rows), count)
    assert count == 1


def test_random_ops_follow_the_seed():
    compiled = torch.compile(lambda x: OPS.dropout(x)[0], fullgraph=True, backend="aot_eager")
    x = torch.ones(1000)
    found = []
    for call in (compiled, compiled, OPS.dropout):
        torch.manual_seed(1)
        found.append(call(x))
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2][0])
    assert not torch.equal(compiled(x), found[0])


def test_dropout_is_not_recomputed_with_other_numbers():
    compiled = torch.compile(lambda x: OPS.dropout(x)[0] * 2, fullgraph=True, backend="aot_eager")
    x = torch.randn(1000, requires_grad=True)
    found = compiled(x)
    found.sum().backward()
    assert torch.equal(found != 0, x.grad != 0)


def test_formulas_are_one_graph_for_all_sizes():
    text = "x * rsqrt(mean(x * x) + 0.1) * w, mean(x)"
    schema = "norm_and_mean(Tensor x, Tensor w) -> (Tensor, Tensor)"
    op = opdock.torch.register(opdock.formula(text, schema))

    def call(x, w):
        y, means = op(x, w)
        return y, means, torch.zeros(means.shape)  # the sizes that the graph knows

    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(call, fullgraph=True, backend=counter, dynamic=True)
    for size in SIZES:
        x, w, _ = arguments(size)
        *found, known = compiled(x, w)
        wanted = op(x, w)
        found = tuple(found)
        assert found[1].shape == known.shape == (size, 5)
        torch.testing.assert_close(found, wanted)
        gradients = [torch.autograd.grad(y.square().sum(), (x, w)) for y, _ in (found, wanted)]
        torch.testing.assert_close(*gradients)
    assert counter.frame_count == 1


def test_a_formula_without_sizes_says_so():
    op = opdock.torch.register(opdock.formula("x + 1", "plus_one(Tensor x) -> Tensor"))

    def call(x):
        return op(x.nonzero())  # as many rows as x has numbers that are not 0

    with pytest.raises(Exception, match="plus_one: found sizes that are not known while tracing"):
        torch.export.export(_Module(call), (torch.ones(3),))


class _Module(torch.nn.Module):
    def __init__(self, call):
        super().__init__()
        self.forward = call


def test_what_the_plugin_refuses_is_refused_while_tracing():
    ran = []

    def backend(graph, inputs):
        ran.append(graph)
        return graph

    compiled = torch.compile(OPS.layer_norm, fullgraph=True, backend=backend)
    with pytest.raises(Exception, match="'weight': found strides .2. for shape .8., wanted contig"):
        compiled(torch.randn(3, 8), torch.randn(16)[::2])
    assert not ran


def test_a_gradient_that_is_not_declared_is_refused_while_tracing():
    compiled = torch.compile(OPS.linear, fullgraph=True, backend="aot_eager")
    x, weight = torch.randn(2, 8), torch.randn(4, 8, requires_grad=True)
    with pytest.raises(Exception, match="linear: found a gradient to compute for 'weight'"):
        compiled(x, weight)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x, weight), x @ weight.t())


def test_transforms_inside_a_graph():
    x = torch.randn(3, 5)

    def gradient(softmax):
        return torch.func.grad(lambda x: softmax(x, -1.0).square().sum())

    compiled = torch.compile(gradient(OPS.softmax), fullgraph=True, backend="aot_eager")
    wanted = gradient(lambda x, scale: torch.softmax(x * scale, -1))
    torch.testing.assert_close(compiled(x), wanted(x))
    batched = torch.compile(torch.vmap(OPS.silu), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(batched(x), torch.nn.functional.silu(x))
    softmax = torch.compile(OPS.softmax, fullgraph=True, backend="aot_eager")
    forward_ad = torch.autograd.forward_ad
    with (
        forward_ad.dual_level(),
        pytest.raises(opdock.UnsupportedError, match="softmax: found a tensor with a tangent"),
    ):
        softmax(forward_ad.make_dual(x, x))


def test_tangents_inside_a_graph():
    x, tangent = torch.randn(3, 5), torch.randn(3, 5)

    def push(f, x, tangent):
        return torch.func.jvp(f, (x,), (tangent,))[1]

    wanted = push(torch.nn.functional.silu, x, tangent)
    for backend in ("eager", "aot_eager"):
        compiled = torch.compile(push, fullgraph=True, backend=backend)
        torch.testing.assert_close(compiled(OPS.silu, x, tangent), wanted)
    silu = torch.compile(OPS.silu, fullgraph=True, backend="aot_eager")
    with torch.autograd.forward_ad.dual_level():
        found = silu(torch.autograd.forward_ad.make_dual(x, tangent))
        found = torch.autograd.forward_ad.unpack_dual(found).tangent
    torch.testing.assert_close(found, wanted)


def test_sizes_are_read_without_guards():
    """The plugin is asked with the sizes of the example; that must not make them constant."""
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(OPS.softmax, tracing_mode="symbolic")(torch.randn(4, 6))
    sizes = graph.shape_env
    assert [str(g.expr) for g in sizes.guards if "4" in str(g.expr) or "6" in str(g.expr)] == []
    assert graph(torch.randn(9, 11)).shape == (9, 11)
