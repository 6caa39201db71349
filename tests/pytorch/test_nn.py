# SPDX-License-Identifier: Apache-2.0
"""Tests opdock.torch.nn: the same numbers, gradients and state_dict as torch's layers in float64,
and torch's own results where the ops cannot compute a call."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import opdock
import opdock.torch
from opdock.torch import _choice

ours = opdock.torch.nn
#: Relative errors of a result, by dtype: a few roundings.
BOUNDS = {torch.float64: 1e-12, torch.float32: 3e-6, torch.float16: 3e-3, torch.bfloat16: 2e-2}


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(7)


def spread(layer):
    """Fills the parameters with numbers that tell them apart."""
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()
    return layer


def counted(monkeypatch, name):
    """Returns a list to which each call of an op adds its name."""
    calls, op = [], getattr(torch.ops.opdock, name)

    def call(*args, **keywords):
        calls.append(name)
        return op(*args, **keywords)

    monkeypatch.setattr(torch.ops.opdock, name, call)
    return calls


LAYERS = {
    "layer": (nn.LayerNorm, ours.LayerNorm, (7,), {}, (3, 5, 7)),
    "layer-two-dimensions": (nn.LayerNorm, ours.LayerNorm, ((5, 7),), {"eps": 0.1}, (3, 5, 7)),
    "layer-no-bias": (nn.LayerNorm, ours.LayerNorm, (33,), {"bias": False}, (4, 33)),
    "layer-plain": (nn.LayerNorm, ours.LayerNorm, (1,), {"elementwise_affine": False}, (4, 1)),
    "rms": (nn.RMSNorm, ours.RMSNorm, (13,), {}, (2, 3, 13)),
    "rms-two-dimensions": (nn.RMSNorm, ours.RMSNorm, ((3, 13),), {"eps": 0.3}, (2, 3, 13)),
    "rms-plain": (nn.RMSNorm, ours.RMSNorm, (8,), {"elementwise_affine": False}, (8,)),
}


@pytest.mark.parametrize("dtype", BOUNDS, ids=lambda d: str(d).removeprefix("torch."))
@pytest.mark.parametrize("name", LAYERS)
def test_norms(name, dtype, monkeypatch):
    theirs, mine, args, options, shape = LAYERS[name]
    calls = counted(monkeypatch, f"{name.split('-')[0]}_norm")
    layer = spread(mine(*args, **options, dtype=dtype))
    wide = theirs(*args, **options, dtype=torch.float64)
    if name == "rms" and dtype != torch.float64:
        wide.eps = torch.finfo(torch.float32).eps  # what torch adds for these dtypes
    wide.load_state_dict(layer.state_dict())
    assert repr(layer) == repr(theirs(*args, **options))
    x = torch.randn(shape, dtype=dtype, requires_grad=True)
    x64 = x.detach().double().requires_grad_()
    found, wanted = layer(x), wide(x64)
    assert len(calls) == 1 and found.dtype == dtype
    torch.testing.assert_close(found.double(), wanted, rtol=BOUNDS[dtype], atol=BOUNDS[dtype])
    g = torch.randn(shape, dtype=dtype)
    found.backward(g)
    wanted.backward(g.double())
    pairs = [(x, x64), *zip(layer.parameters(), wide.parameters(), strict=True)]
    for one, other in pairs:
        bound = 10 * BOUNDS[dtype]
        torch.testing.assert_close(one.grad.double(), other.grad, rtol=bound, atol=bound)


def test_the_default_eps_of_rms_norm_is_torchs():
    for dtype in BOUNDS:
        x = torch.randn(4, 8).to(dtype) * 1e-4  # so small that eps decides
        found, wanted = ours.RMSNorm(8, dtype=dtype)(x), nn.RMSNorm(8, dtype=dtype)(x)
        torch.testing.assert_close(found, wanted, rtol=BOUNDS[dtype], atol=0)


def test_strided_rows_are_copied_and_other_calls_are_torchs(monkeypatch):
    calls = counted(monkeypatch, "layer_norm")
    layer, x = spread(ours.LayerNorm(6)), torch.randn(6, 5)
    wanted = F.layer_norm(x.t(), (6,), layer.weight, layer.bias)
    torch.testing.assert_close(layer(x.t()), wanted)
    assert len(calls) == 1
    mixed = layer(torch.randn(2, 6).bfloat16())  # with float32 weights: torch's on the CPU
    assert mixed.dtype == torch.bfloat16 and len(calls) == 1
    with pytest.raises(RuntimeError, match="normalized_shape"):
        layer(torch.randn(2, 5))
    assert ours.LayerNorm(6, device="meta")(torch.empty(2, 6, device="meta")).is_meta


@pytest.mark.parametrize("layer", [ours.SwiGLU(), ours.GeGLU(), ours.GeGLU("tanh")], ids=repr)
def test_gated(layer):
    def activated(x):
        if isinstance(layer, ours.SwiGLU):
            return F.silu(x)
        return F.gelu(x, approximate=layer.approximate)

    a, b = torch.randn(2, 3, 5, 9, dtype=torch.float64, requires_grad=True)
    x = torch.cat([a, b], -1)
    torch.testing.assert_close(layer(x), a * activated(b))
    torch.testing.assert_close(layer(a, b), activated(a) * b)
    for found, wanted in ((layer(x), a * activated(b)), (layer(a, b), activated(a) * b)):
        gradients = [torch.autograd.grad(y.square().sum(), (a, b), retain_graph=True)
                     for y in (found, wanted)]  # fmt: skip
        torch.testing.assert_close(*gradients)
    assert not layer.state_dict()
    with pytest.raises(RuntimeError):
        layer(torch.randn(2, 3), torch.randn(2, 4))  # as torch's product


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_cross_entropy(reduction, dtype, monkeypatch):
    calls = counted(monkeypatch, "cross_entropy")
    options = {"ignore_index": 2, "label_smoothing": 0.1, "reduction": reduction}
    logits = torch.randn(9, 11, dtype=dtype, requires_grad=True)
    wide = logits.detach().double().requires_grad_()
    target = torch.randint(0, 11, (9,))
    target[3] = 2
    found = ours.CrossEntropyLoss(**options)(logits, target)
    wanted = nn.CrossEntropyLoss(**options)(wide, target)
    assert calls and found.dtype == dtype
    torch.testing.assert_close(found.double(), wanted, rtol=BOUNDS[dtype], atol=BOUNDS[dtype])
    found.sum().backward()
    wanted.sum().backward()
    torch.testing.assert_close(logits.grad.double(), wide.grad, rtol=1e-2, atol=BOUNDS[dtype])


def test_cross_entropy_leaves_the_rest_to_torch(monkeypatch):
    calls = counted(monkeypatch, "cross_entropy")
    logits, target = torch.randn(4, 5), torch.tensor([0, 1, 2, 4])
    weighted = {"weight": torch.rand(5)}
    cases = [
        ({}, torch.randn(2, 5, 3), torch.randint(0, 5, (2, 3))),  # classes in the middle
        ({}, logits, torch.softmax(torch.randn(4, 5), -1)),  # probabilities
        (weighted, logits, target),
    ]
    for options, x, y in cases:
        found, wanted = (c(**options)(x, y) for c in (ours.CrossEntropyLoss, nn.CrossEntropyLoss))
        assert torch.equal(found, wanted)
    assert not calls
    one = ours.CrossEntropyLoss()(logits[0], target[0])
    torch.testing.assert_close(one, F.cross_entropy(logits[0], target[0]))
    assert calls and ours.CrossEntropyLoss()(logits, torch.full((4,), -100)).isnan()
    state = nn.CrossEntropyLoss(**weighted).state_dict()
    assert ours.CrossEntropyLoss(weight=torch.ones(5)).load_state_dict(state)


def rotated(x, positions, base, interleaved):
    """Returns rope's definition by complex numbers in float64. x: [..., tokens, heads, D]."""
    half = x.shape[-1] // 2
    powers = base ** -(torch.arange(half, dtype=torch.float64) / half)
    turn = torch.polar(torch.ones(()).double(), positions[..., None].double() * powers)[
        ..., None, :
    ]
    if interleaved:
        return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (half, 2))) * turn).flatten(
            -2
        )
    z = torch.complex(x[..., :half].contiguous(), x[..., half:].contiguous()) * turn
    return torch.cat([z.real, z.imag], -1)


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary(interleaved):
    layer = ours.RotaryEmbedding(6, 16, base=100.0, interleaved=interleaved, dtype=torch.float64)
    assert not layer.state_dict() and "16" in repr(layer)
    q = torch.randn(2, 5, 3, 6, dtype=torch.float64, requires_grad=True)
    k = torch.randn(2, 5, 1, 6, dtype=torch.float64)
    positions = torch.tensor([[0, 3, 4, 9, 15], [1, 1, 2, 0, 7]])
    for given, where in ((None, torch.arange(5).expand(2, 5)), (positions, positions)):
        found = layer(q, k, given)
        for one, x in zip(found, (q, k), strict=True):
            torch.testing.assert_close(one, rotated(x, where, 100.0, interleaved))
        found[0].square().sum().backward()  # a rotation: twice the input
        torch.testing.assert_close(q.grad, 2 * q.detach())
        q.grad = None
    assert layer.half()(q.detach().half(), k.half())[0].dtype == torch.float16
    with pytest.raises(ValueError, match="'dim': found 5, wanted an even number"):
        ours.RotaryEmbedding(5)


def test_attention_has_the_weights_of_multihead_attention():
    theirs = spread(nn.MultiheadAttention(24, 3, batch_first=True, dtype=torch.float64)).eval()
    mine = ours.Attention(24, 3, dtype=torch.float64)
    assert mine.state_dict().keys() == theirs.state_dict().keys()
    mine.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 7, 24, dtype=torch.float64, requires_grad=True)
    hidden = torch.ones(7, 7).triu(1).bool()
    wanted = theirs(x, x, x, attn_mask=hidden, need_weights=False)[0]
    torch.testing.assert_close(mine(x), wanted)
    wanted = theirs(x, x, x, need_weights=False)[0]
    torch.testing.assert_close(mine(x, is_causal=False), wanted)
    mine(x).sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("is_causal", [True, False])
def test_attention_trains_by_the_op_as_by_torchs_function(kv_heads, is_causal, monkeypatch):
    calls = counted(monkeypatch, "attention_forward")
    layer = spread(ours.Attention(12, 4, num_kv_heads=kv_heads, dtype=torch.float64))
    x = torch.randn(2, 5, 12, dtype=torch.float64, requires_grad=True)
    found = []
    for by_op in (True, False):
        monkeypatch.setattr(_choice, "is_faster", lambda *_, by_op=by_op: by_op)
        result = layer(x, is_causal=is_causal)
        found.append(
            [result, *torch.autograd.grad(result.square().sum(), [x, *layer.parameters()])]
        )
    assert len(calls) == 1
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-10)
    monkeypatch.setattr(_choice, "is_faster", lambda *_: True)
    torch.autograd.gradcheck(lambda x: layer(x, is_causal=is_causal), x)


@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_attention_with_a_cache_continues_what_was_seen(kv_heads, rotary):
    turn = ours.RotaryEmbedding(6, 32, dtype=torch.float64) if rotary else None
    layer = ours.Attention(24, 4, num_kv_heads=kv_heads, rotary=turn, dtype=torch.float64)
    spread(layer)
    x = torch.randn(3, 11, 24, dtype=torch.float64)
    with torch.no_grad():
        wanted, cache = layer(x), layer.new_cache(3, 11)
        steps = [layer(part, cache) for part in x.split([4, 1, 1, 5], 1)]
        torch.testing.assert_close(torch.cat(steps, 1), wanted)
        assert cache.lengths.tolist() == [11] * 3
        with pytest.raises(opdock.OpdockError, match="append_kv"):
            layer(x[:, :1], cache)
        cache.reset()
        torch.testing.assert_close(layer(x, cache), wanted)
    with pytest.raises(opdock.UnsupportedError, match="^append_kv: found a tensor that requires"):
        layer(x.requires_grad_(), layer.new_cache(3, 11))
    with pytest.raises(opdock.ArgumentError, match="Attention: found embed_dim=24, num_heads=5"):
        ours.Attention(24, 5)


class Block(nn.Module):
    """A layer of a decoder with what opdock.torch.nn has."""

    def __init__(self):
        super().__init__()
        self.norm, self.other = ours.LayerNorm(12), ours.RMSNorm(12)
        self.attention = ours.Attention(12, 2, rotary=ours.RotaryEmbedding(6, 16))
        self.gate, self.loss = ours.SwiGLU(), ours.CrossEntropyLoss()

    def forward(self, x, target):
        x = x + self.attention(self.norm(x))
        x = self.gate(self.other(x))
        return self.loss(x.flatten(0, 1), target.flatten())


def test_layers_compile_copy_and_pickle():
    torch._dynamo.reset()
    block = spread(Block())
    compiled = torch.compile(block, fullgraph=True, dynamic=True, backend="aot_eager")
    again = pickle.loads(pickle.dumps(copy.deepcopy(block)))
    for tokens in (5, 6):
        x, target = torch.randn(2, tokens, 12), torch.randint(0, 6, (2, tokens))
        wanted = block(x, target)
        torch.testing.assert_close(compiled(x, target), wanted)
        torch.testing.assert_close(again(x, target), wanted)
    wanted.backward()
    expected = [p.grad.clone() for p in block.parameters()]
    block.zero_grad()
    compiled(x, target).backward()
    torch.testing.assert_close([p.grad for p in block.parameters()], expected)


def test_layers_under_autocast():
    block, x, target = spread(Block()), torch.randn(2, 5, 12), torch.randint(0, 6, (2, 5))
    wanted = block(x, target)
    with torch.autocast("cpu", torch.bfloat16):
        found = block(x, target)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, wanted, rtol=0.1, atol=0.1)
    found.backward()
    assert all(p.grad.dtype == torch.float32 for p in block.parameters())
