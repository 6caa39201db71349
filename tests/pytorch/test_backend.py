# SPDX-License-Identifier: Apache-2.0
"""Tests torch.compile(model, backend="opdock"): results and gradients are those of eager mode, one
graph serves all batches, and each kind of pattern becomes one kernel."""

import os

import pytest
import small_models
import torch
import torch.nn.functional as F

import opdock
import opdock.torch
from opdock.torch.backend import _log

OPS = torch.ops.opdock


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    torch.manual_seed(5)


def compiled(function, **options):
    return torch.compile(function, fullgraph=True, backend="opdock", **options)


# ---- models


#: name -> kernels of the forward and of the backward graph of a model with one layer
KERNELS = {
    "mlp": (1, 3),
    "cnn": (1, 2),
    "bert": (5, 5),
    "gpt2": (5, 5),
    "llama": (6, 6),
    "vit": (5, 5),
    "mixture": (3, 5),
    "lstm": (3, 7),
    "diffusion": (2, 4),
    "autoencoder": (4, 5),
}


NIGHTLY = "OPDOCK_TEST_NIGHTLY" in os.environ


# All layers of "vit" are those of "gpt2" and "cnn", and float16 takes the ways of bfloat16.
@pytest.mark.parametrize("name", [n for n in small_models.MODELS if NIGHTLY or n != "vit"])
def test_models_train_as_in_eager_mode(name):
    make, arguments = small_models.MODELS[name]
    model = make(layers=1) if name in ("bert", "gpt2", "llama", "vit") else make()
    call = compiled(model)
    with _log.listening() as graphs:
        for batch in (6, 9, 11):
            args = arguments(batch)
            for x in args:
                torch._dynamo.mark_dynamic(x, 0)
            found = [call, model]
            for i, f in enumerate(found):
                model.zero_grad()
                result = f(*args)
                result.square().mean().backward()
                grads = {name: p.grad.clone() for name, p in model.named_parameters()}
                found[i] = result.detach(), grads
            torch.testing.assert_close(*found)
    assert [graph.is_backward for graph in graphs] == [False, True]
    assert (name, *(len(graph.kernels) for graph in graphs)) == (name, *KERNELS[name])
    assert not any(graph.refused for graph in graphs)


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float64, *([torch.float16] if NIGHTLY else [])]
)
def test_a_model_in_another_dtype(dtype):
    model = small_models.Block(16, 2).to(dtype)
    x = torch.randn(3, 5, 16, dtype=dtype, requires_grad=True)
    found = []
    for f in (compiled(model), model):
        result = f(x)
        found.append((result, torch.autograd.grad(result.float().square().sum(), x)))
    # Between two roundings a formula computes in float32, and eager mode rounds each op.
    limits = {} if dtype is torch.float64 else {"rtol": 2e-2, "atol": 4e-2}
    torch.testing.assert_close(*found, **limits)


def test_autocast_is_as_in_eager_mode():
    model = small_models.Llama(layers=1)
    (ids,) = small_models.MODELS["llama"][1](4)
    found = []
    for f in (compiled(model), model):
        with torch.autocast("cpu", torch.bfloat16):
            result = f(ids)
        found.append(result)
    assert found[0].dtype is found[1].dtype
    torch.testing.assert_close(*found, rtol=2e-2, atol=4e-2)


# ---- patterns


def norm(x, w):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w


def masked_softmax(x, w):
    return torch.softmax((x * w).masked_fill(x > 1, float("-inf")), -1)


def softmax_in_parts(x, w):
    y = (x - x.amax(-1, True)).exp()
    return y / y.sum(-1, True) * w


def statistics(x, w):
    mean = x.mean(-1)
    return (x - mean.unsqueeze(-1)) * w, mean * 2, x.var(-1, keepdim=True)


def loss_of_rows(x, w):
    return -(torch.log_softmax(x, -1) * torch.softmax(w, -1)).sum(-1)


PATTERNS = {
    "elementwise": lambda x, w: torch.tanh(x) * w + x.abs().sqrt(),
    "gelu": lambda x, w: F.gelu(x),
    "gelu and add": lambda x, w: F.gelu(x, approximate="tanh") + w,
    "layer norm": lambda x, w: F.layer_norm(x + w, (8,), w, w),
    "rms norm": norm,
    "softmax": lambda x, w: torch.softmax(x, -1),
    "masked softmax": masked_softmax,
    "log softmax": lambda x, w: torch.log_softmax(x * 2, -1),
    "numbers of rows": statistics,
    "loss of rows": loss_of_rows,
    "casts": lambda x, w: (x.double() * w).to(torch.float32) + x.half(),
    "comparisons": lambda x, w: torch.where((x > w) & (x < 1), x.int(), 2) // 2,
    "limits": lambda x, w: x.clamp(-0.5, 0.5) + x.clamp_min(0.1) - torch.minimum(x, w),
    "softmax in parts": softmax_in_parts,
    "channels": lambda x, w: (x.transpose(1, 2) * 2).sigmoid(),
    "readers": lambda x, w: (x.sin() + 1, x.cos() * w),
}  # fmt: skip


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_is_one_kernel(name):
    x, w = torch.randn(4, 3, 8), torch.randn(8)
    function = PATTERNS[name]
    call = compiled(function, dynamic=True)
    with _log.listening() as graphs:
        for rows in (4, 7):
            x = torch.randn(rows, 3, 8)
            found, wanted = call(x, w), function(x, w)
            torch.testing.assert_close(found, wanted)
            for a, b in zip(*(y if isinstance(y, tuple) else (y,) for y in (found, wanted))):  # noqa: B905
                assert a.stride() == b.stride()
    assert len(graphs) == 1 and len(graphs[0].kernels) == 1
    assert not graphs[0].torch and not graphs[0].refused


def test_numbers_of_rows_from_outside_are_results_of_rows():
    def function(x, rows):
        return x.mean(-1, keepdim=True) * rows, x * rows + 1

    x, rows = torch.randn(4, 3, 8), torch.randn(4, 3, 1)
    with _log.listening() as graphs:
        torch.testing.assert_close(compiled(function)(x, rows), function(x, rows))
    assert len(graphs[0].kernels) == 1 and not graphs[0].torch


def test_a_number_in_a_tensor_keeps_its_dtype():
    """A number in a text would be one of float32 beside integers."""

    def function(x):
        return ((x * 100).int() * torch.full((), 0.1, dtype=torch.float64)).exp()

    x = torch.rand(20)
    with _log.listening() as graphs:
        torch.testing.assert_close(compiled(function)(x), function(x))
    assert len(graphs[0].kernels) == 1


def test_sizes_that_come_to_the_same_are_the_same():
    def function(x, w):
        y = (x.view(-1, 8) @ w).view(x.shape[0], -1, 8)  # its second size is (s * s) // s
        return (y + x).sin()

    x, w = torch.randn(6, 6, 8), torch.randn(8, 8)
    with _log.listening() as graphs:
        torch.testing.assert_close(compiled(function, dynamic=True)(x, w), function(x, w))
    assert len(graphs[0].kernels) == 1 and graphs[0].torch == {"aten::mm": 1}


def test_batch_norm_for_inference_is_elementwise():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU())
    x = torch.randn(5, 8, requires_grad=True)
    model(x)
    model.eval()
    found = []
    with _log.listening() as graphs:
        for f in (compiled(model), model):
            y = f(x)
            found.append((y, torch.autograd.grad(y.sin().sum(), x)))
    torch.testing.assert_close(*found)
    assert len(graphs[0].kernels) == 1
    assert not any("batch_norm" in name for name in graphs[0].torch)


def test_a_cheap_op_stays_torchs():
    with _log.listening() as graphs:
        compiled(lambda x: (x.relu().t(), x.t().clone()))(torch.randn(3, 4))
    assert not graphs[0].kernels
    assert graphs[0].torch == {"aten::relu": 1, "aten::clone": 1}


def test_regions_are_called_in_order():
    """A region may not contain a path that leaves it: here through a product of matrices."""

    def function(x, w):
        y = x.exp() + 1
        return (y @ w).sin() * y

    x, w = torch.randn(4, 4), torch.randn(4, 4)
    with _log.listening() as graphs:
        torch.testing.assert_close(compiled(function)(x, w), function(x, w))
    assert len(graphs[0].kernels) == 2


def test_limits_of_formulas_split_regions():
    def function(*tensors):
        return sum(tensors[1:], tensors[0]).sin()

    tensors = [torch.randn(5) for _ in range(60)]
    with _log.listening() as graphs:
        torch.testing.assert_close(compiled(function)(*tensors), function(*tensors))
    assert len(graphs[0].kernels) == 2


# ---- whole ops


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_is_the_plugins(reduction):
    def function(x, target):
        return F.cross_entropy(x * 2, target, reduction=reduction)

    x, target = torch.randn(6, 9, requires_grad=True), torch.randint(0, 9, (6,))
    target[2] = -100
    found = []
    with _log.listening() as graphs:
        for f in (compiled(function), function):
            loss = f(x, target)
            found.append((loss, torch.autograd.grad(loss.sum(), x)))
    torch.testing.assert_close(*found)
    forward, backward = graphs
    assert "opdock::cross_entropy" in forward.kernels
    assert "opdock::cross_entropy_backward" in backward.kernels
    assert not any("nll_loss" in name for graph in graphs for name in graph.torch)


def test_norms_are_the_plugins_and_add_the_residual_gradient():
    model = torch.nn.ModuleList([torch.nn.LayerNorm(8), torch.nn.RMSNorm(8, 1e-6)])

    def function(x):
        for layer in model:
            x = x + layer(x)
        return x

    x = torch.randn(3, 8, requires_grad=True)
    found = []
    with _log.listening() as graphs:
        for f in (compiled(function), function):
            grads = torch.autograd.grad(f(x).sin().sum(), [x, *model.parameters()])
            found.append(grads)
    torch.testing.assert_close(*found)
    assert graphs[1].torch == {}
    norms = [text for text in graphs[1].kernels if text.startswith("opdock::")]
    assert norms == ["opdock::rms_norm_backward", "opdock::layer_norm_backward"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_norm_that_is_written_out_is_the_plugins(dtype):
    model = small_models.RMSNorm(8).to(dtype)
    x = torch.randn(5, 8, dtype=dtype, requires_grad=True)
    found = []
    with _log.listening() as graphs:
        for f in (compiled(model), model):
            y = f(x)
            found.append((y, torch.autograd.grad(y.sin().sum(), [x, model.weight])))
    limits = {} if dtype is torch.float32 else {"rtol": 2e-2, "atol": 2e-2}
    torch.testing.assert_close(*found, **limits)
    assert "opdock::rms_norm_backward" in graphs[1].kernels


def halves_by_chunk(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), dim=-1) * sin + cos * x


@pytest.mark.parametrize("function", [small_models.rotate, halves_by_chunk])
def test_a_rotary_embedding_is_one_kernel(function):
    x = torch.randn(2, 5, 3, 8, requires_grad=True)
    tables = torch.randn(2, 5, 8)
    found = []
    with _log.listening() as graphs:
        for f in (compiled(function), function):
            y = f(x.transpose(1, 2), *tables)
            found.append((y, torch.autograd.grad(y.sin().sum(), x)))
    torch.testing.assert_close(*found)
    assert [graph.kernels for graph in graphs] == [
        ["opdock::rotate_halves"],
        ["opdock::rotate_halves_backward_x"],
    ]
    assert not graphs[0].torch and not graphs[1].torch


def test_what_is_no_rotary_embedding_is_not_replaced():
    def function(x, cos, sin):
        half = x.shape[-1] // 2
        turned = torch.cat((-x[..., :half], x[..., half:]), -1)
        thirds = torch.cat((-x[..., 5:], x[..., :5]), -1)
        return x * cos + turned * sin, x * cos + thirds * sin

    args = torch.randn(3, 8), torch.randn(8), torch.randn(8)
    with _log.listening() as graphs:
        torch.testing.assert_close(compiled(function)(*args), function(*args))
    assert "opdock::rotate_halves" not in graphs[0].kernels


def test_a_norm_of_a_tensor_that_is_changed_is_not_replaced():
    def function(x):
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        x.add_(1)
        return x * scale

    x = torch.randn(3, 8)
    copy = x.clone()
    torch.testing.assert_close((compiled(function)(x), x), (function(copy), copy))


def test_kernels_are_called_before_the_first_call():
    """On a GPU each kernel is called while the graph is compiled; here the same calls, on the
    CPU."""
    from torch.fx.experimental.proxy_tensor import make_fx

    from opdock.torch.backend import _warm
    from opdock.torch.backend._kernels import kernel_of
    from opdock.torch.backend._partition import Partition

    def function(x, w, n):
        y = (x.transpose(1, 2) * 2).sigmoid()
        mean = (x * w).mean(-1)
        return y, mean * 2, mean.unsqueeze(-1) * n + x, (x.transpose(1, 2) @ x).sin() + 1

    args = torch.randn(3, 4, 8), torch.randn(8), torch.randn(3, 4, 1)
    graph = make_fx(function, tracing_mode="symbolic")(*args)
    kernels = [kernel_of(region) for region in Partition(graph.graph).regions()]
    calls = []
    for kernel in kernels:
        run = kernel.function
        kernel.function = lambda *args, run=run, **keywords: calls.append(run(*args, **keywords))
        _warm.call(kernel)
    assert len(calls) == len(kernels) == 3
    graph = make_fx(lambda x, w: OPS.layer_norm(x, w), tracing_mode="symbolic")(*args[:2])
    node = next(node for node in graph.graph.nodes if node.op == "call_function")
    op, ran = node.target, []
    node.target = lambda *args: ran.append(op(*args))
    _warm.call_op(node)
    assert len(ran) == 1


# ---- memory


def test_an_input_is_changed_in_place():
    def function(x, y):
        x.mul_(y).add_(1)
        return x * 2

    x, y = torch.rand(3, 4), torch.rand(3, 4)
    copy, place = x.clone(), x.data_ptr()
    with _log.listening() as graphs:
        found = compiled(function)(x, y)
    torch.testing.assert_close((found, x), (function(copy, y), copy))
    assert x.data_ptr() == place
    assert len(graphs[0].kernels) == 1 and not graphs[0].torch


def test_ops_in_place_write_without_a_copy():
    def step(param, grad, mean, square, count):
        OPS.adamw_([param], [grad * 2], [mean], [square], count, 0.1)
        return param + 1

    args = [*torch.rand(4, 6), torch.tensor(0.0)]
    copies = [x.clone() for x in args]
    places = [x.data_ptr() for x in args]
    with _log.listening() as graphs:
        torch.testing.assert_close(compiled(step)(*args), step(*copies))
    assert all(map(torch.equal, args, copies)) and args[4] == 1
    assert [x.data_ptr() for x in args] == places
    assert not any("copy_" in name for name in graphs[0].torch)
    assert ", (), " in graphs[0].source or ", ()," in graphs[0].source


def test_random_numbers_are_those_of_eager_mode():
    def function(x):
        return F.dropout(x * 2, 0.5) + torch.rand_like(x)

    x = torch.randn(100, requires_grad=True)
    found = []
    for f in (compiled(function), function):
        torch.manual_seed(1)
        y = f(x)
        found.append((y, torch.autograd.grad(y.sum(), x)))
    torch.testing.assert_close(*found)


# ---- graphs at random

UNARY = [torch.sin, torch.tanh, torch.sigmoid, torch.abs, torch.relu, F.gelu, torch.exp]
BINARY = [torch.add, torch.mul, torch.sub, torch.maximum]


def random_function(random, shapes):
    """Returns a function of tensors of these shapes, of operations on operands of all kinds."""
    plan = []
    for _ in range(int(random(6, 18))):
        plan.append([int(random(0, 10)), *(float(random(0, 1000)) / 1000 for _ in range(3))])

    def function(*args):
        values = list(args)

        def pick(share):
            return values[int(share * len(values))]

        for kind, a, b, c in plan:
            x = pick(a)
            if kind < 3:
                values.append(UNARY[int(c * len(UNARY))](x * 0.5))
            elif kind < 6:
                y = pick(b)
                try:
                    torch.broadcast_shapes(x.shape, y.shape)
                except RuntimeError:
                    continue
                values.append(BINARY[int(c * len(BINARY))](x, y).clamp(-4, 4))
            elif kind < 8 and x.ndim:
                dim = -1 if c < 0.8 else 0
                values.append(
                    [torch.sum, torch.mean, torch.amax][int(b * 3)](x, dim, c < 0.5) * 0.1
                )
            elif kind == 8 and x.ndim:
                values.append(torch.softmax(x, -1) if c < 0.7 else x.softmax(0))
            elif kind == 9 and x.ndim > 1:
                values.append(x.transpose(-1, -2) if c < 0.5 else x.reshape(-1, x.shape[-1]))
        return tuple(values[len(args) :][-4:]) or (values[0] + 1,)

    return function


COUNT = 600 if NIGHTLY else 32


@pytest.mark.parametrize("seed", range(COUNT))
def test_graphs_at_random(seed):
    from torch.fx.experimental.proxy_tensor import make_fx

    from opdock.torch.backend import _pointwise
    from opdock.torch.backend._compile import compile_graph

    torch.manual_seed(seed)

    def random(low, high):
        return torch.randint(low, high, ())

    shapes = [(3, 4, 5), (4, 5), (5,), (3, 1, 5), (3, 4, 1), (4, 4), ()]
    chosen = [shapes[int(random(0, len(shapes)))] for _ in range(3)]
    function = random_function(random, chosen)
    args = [torch.randn(shape, dtype=torch.float64) for shape in chosen]
    mode = "symbolic" if seed % 4 == 1 else "fake"
    graph = make_fx(function, _pointwise.decompositions(), mode)(*args)
    wanted = function(*args)
    found = compile_graph(graph)(list(args))
    torch.testing.assert_close(tuple(found), wanted)
    for a, b in zip(found, wanted, strict=True):
        assert a.stride() == b.stride()


# ---- around it


def test_torch_finds_the_backend():
    assert "opdock" in torch._dynamo.list_backends()
    opdock.torch.backend.register()


def test_options_are_refused():
    call = torch.compile(torch.sin, backend="opdock", options={"a": 1})
    with pytest.raises(Exception, match="found the options .'options'., wanted none"):
        call(torch.ones(3))


def test_explain_says_what_became_of_a_model():
    x = torch.randn(3, 8, requires_grad=True)
    text = opdock.torch.explain(lambda x: torch.softmax(x * 2, -1) @ x.t(), x)
    assert "forward: 1 kernels" in text and "backward: 1 kernels" in text
    assert "torch's: 1 x aten::mm" in text and "softmax(" in text


def test_the_pass_of_inductor_replaces_rows():
    from torch._inductor.decomposition import select_decomp_table
    from torch.fx.experimental.proxy_tensor import make_fx

    def function(x, w, z):
        y = torch.softmax(F.layer_norm(x, (8,), w, w) @ w.diag(), -1)
        return y, torch.softmax(y + z, -1), (x + 1).sin()

    x, w, z = torch.randn(5, 8), torch.randn(8), torch.randn(3, 5, 8)
    graph = make_fx(function, select_decomp_table(), "symbolic")(x, w, z)
    opdock.torch.inductor_pass()(graph.graph)
    graph.recompile()
    targets = [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
    assert sum(name.startswith("opdock.rows_") for name in targets) == 3
    assert not any("mean" in name or "amax" in name or "exp" in name for name in targets)
    assert any("sin" in name for name in targets)
    x, z = torch.randn(7, 8), torch.randn(2, 7, 8)
    torch.testing.assert_close(graph(x, w, z), function(x, w, z))


@pytest.mark.skipif(not NIGHTLY, reason="nightly: compiles C++")
def test_inductor_takes_the_pass():
    model = small_models.Block(16, 2)
    x = torch.randn(3, 5, 16, requires_grad=True)
    with torch._inductor.config.patch(post_grad_custom_post_pass=opdock.torch.inductor_pass()):
        found = torch.compile(model)(x)
        grads = torch.autograd.grad(found.square().sum(), x)
    wanted = model(x)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(grads, torch.autograd.grad(wanted.square().sum(), x))
