# SPDX-License-Identifier: Apache-2.0
"""Tests opdock.torch.patch(): models compute the same with any choice between Opdock's ops and
torch's functions, the choice is measured once and kept, and unpatch() restores all of it."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import opdock
import opdock.torch
from opdock.torch import _choice


@pytest.fixture(autouse=True)
def seeded(tmp_path, monkeypatch):
    """Each test begins without choices, in this process and in the cache."""
    monkeypatch.setenv("OPDOCK_CACHE_DIR", str(tmp_path))
    _choice.forget()
    torch.manual_seed(11)
    yield
    _choice.forget()


@pytest.fixture
def always(monkeypatch):
    """Opdock's ops are taken for faster everywhere. Returns the kinds of the calls."""
    kinds = []

    def is_faster(swap, x, args, keywords):
        kinds.append(swap.kind)
        return True

    monkeypatch.setattr(_choice, "is_faster", is_faster)
    return kinds


class Scaled(nn.Module):
    """An RMSNorm as models write it themselves."""

    one = 0.0

    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.variance_epsilon = 1e-5

    def forward(self, hidden_states):
        wide = hidden_states.double()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.variance_epsilon)
        return (self.one + self.weight) * wide.to(hidden_states.dtype)


class DecoderRMSNorm(Scaled):
    pass


class ShiftedRMSNorm(Scaled):
    one = 1.0


def rotate_half(x):
    return torch.cat((-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]), -1)


def apply_rotary(q, k, cos, sin):
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


def apply_rotary_of_tables(q, k, cos, sin, position_ids):
    return apply_rotary(q, k, cos[position_ids], sin[position_ids])


def apply_other_rotary(q, k, cos, sin):
    return q * cos.unsqueeze(1), k * sin.unsqueeze(1)


class Decoder(nn.Module):
    """A layer as in Llama: two norms, rotary attention, a gated MLP."""

    def __init__(self, width=24, heads=4, rotary=apply_rotary):
        super().__init__()
        self.heads, self.rotary = heads, rotary
        self.before, self.between = DecoderRMSNorm(width), DecoderRMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.gate_proj, self.up_proj = nn.Linear(width, 40), nn.Linear(width, 40)
        self.down_proj, self.act_fn = nn.Linear(40, width), nn.SiLU()

    def attend(self, x):
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        half = torch.outer(torch.arange(x.shape[1]).float(), torch.tensor([1.0, 0.1, 0.01]))
        angles = half.repeat(1, 2).expand(x.shape[0], -1, -1)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        q, k = apply_rotary(q, k, cos, sin)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=x.shape[1] > 1)
        return mixed.transpose(1, 2).reshape(x.shape)

    def forward(self, hidden_states):
        residual = hidden_states
        hidden_states = self.before(hidden_states)
        hidden_states = residual + self.attend(hidden_states)
        residual = hidden_states
        hidden_states = self.between(hidden_states)
        hidden_states = self.down_proj(
            self.act_fn(self.gate_proj(hidden_states)) * self.up_proj(hidden_states)
        )
        return residual + hidden_states


class Encoder(nn.Module):
    """A layer as in BERT: norms after sums, and a linear layer before gelu."""

    def __init__(self, width=24, act=None):
        super().__init__()
        self.dense, self.act = nn.Linear(width, 2 * width), act or nn.GELU()
        self.out, self.norm = nn.Linear(2 * width, width), nn.LayerNorm(width)
        self.dropout = nn.Dropout(0.25)

    def forward(self, x, scale: float = 1.0, *, shift=0.0):
        h = self.dense(x)
        h = self.act(h)
        h = self.dropout(self.out(h))
        return torch.softmax(self.norm(h + x), dim=-1) * scale + shift


class Tanh(nn.Module):
    """GELU by tanh, as models write it themselves; its name is what patch() looks for."""

    def forward(self, x):
        return 0.5 * x * (1 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))


class NewGELU(Tanh):
    pass


class Loss(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.head = nn.RMSNorm(24, eps=1e-6), nn.Linear(24, 7)
        self.loss = nn.CrossEntropyLoss(label_smoothing=0.1)

    def forward(self, x):
        x = self.norm(x)
        logits = self.head(x * F.gelu(x, approximate="tanh")).flatten(0, 1)
        target = torch.arange(len(logits)) % 7
        return (
            self.loss(logits, target)
            + F.cross_entropy(logits, target, reduction="sum")
            + F.log_softmax(logits, -1)[0, 0]
        )


MODELS = {
    "decoder": (
        lambda: nn.Sequential(Decoder(), Decoder(), DecoderRMSNorm(24)),
        {"rms_norm": 5, "add_rms_norm": 2, "silu_mul": 2, "rope": 2, "attention": 2},
    ),
    "encoder": (
        lambda: nn.Sequential(Encoder(), Encoder(act=NewGELU())),
        {"layer_norm": 2, "add_layer_norm": 2, "linear_gelu": 2, "softmax": 2},
    ),
    "loss": (
        lambda: nn.Sequential(nn.SiLU(), nn.Softmax(-1), Loss()),
        {"silu": 1, "softmax": 1, "rms_norm": 1, "cross_entropy": 2, "gelu_mul_tanh": 1,
         "log_softmax": 1},
    ),
    "torchs": (
        lambda: nn.TransformerEncoderLayer(24, 2, 48, batch_first=True, activation="gelu"),
        {"layer_norm": 2, "add_layer_norm": 2},
    ),
}  # fmt: skip


def make(name):
    model = MODELS[name][0]()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) / 8)
    return model.double(), torch.randn(2, 5, 24, dtype=torch.float64)


def counts(report):
    return {kind: sum(places.values()) for kind, places in report.swapped.items()}


@pytest.mark.parametrize("is_training", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_the_same_numbers_and_gradients(name, is_training, always):
    model, x = make(name)
    model.train(is_training)
    before = copy.deepcopy(model)
    report = opdock.torch.patch(model)
    expected = MODELS[name][1]
    assert {kind: counts(report).get(kind) for kind in expected} == expected
    assert model.state_dict().keys() == before.state_dict().keys()
    results = []
    for one in (model, before):
        torch.manual_seed(1)
        results.append(one(x))
        results[-1].sum().backward()
    torch.testing.assert_close(*results)
    torch.testing.assert_close(
        [p.grad for p in model.parameters()], [p.grad for p in before.parameters()]
    )
    # Where the sum is normalised by one op the norm has no call.
    assert set(expected) - set(always) <= {"layer_norm", "silu"}


def test_unpatch_restores_classes_and_pickles():
    model, x = make("encoder")
    classes, wanted = [type(m) for m in model.modules()], model.eval()(x)
    report = opdock.torch.patch(model)
    layer = model[0]
    assert isinstance(layer, Encoder) and type(layer) is not Encoder
    assert type(layer).__name__ == "Encoder" and "_opdock" not in "".join(vars(layer))
    assert layer.forward.__doc__ == Encoder.forward.__doc__
    torch.testing.assert_close(
        layer(x, 2.0, shift=1.0), wanted.new_tensor(0) + Encoder.forward(layer, x, 2.0, shift=1.0)
    )
    assert counts(opdock.torch.patch(model)) == counts(report)  # once more changes nothing
    copied = copy.deepcopy(model)
    torch.testing.assert_close(copied(x), wanted)
    for one in (model, copied):
        assert opdock.torch.unpatch(one) == 4
        assert [type(m) for m in one.modules()] == classes
        assert torch.equal(pickle.loads(pickle.dumps(one))(x), wanted)
    assert opdock.torch.unpatch(model) == 0


def test_what_is_left_is_told_with_a_reason():
    wrapped = torch.no_grad()(Encoder.forward)
    Wrapped = type("Wrapped", (Encoder,), {"forward": wrapped})
    space = {"torch": torch}
    exec("class Typed(torch.nn.Module):\n def forward(self, x): return torch.softmax(x, -1)", space)
    replaced = nn.LayerNorm(8)
    replaced.forward = lambda x: x
    model = nn.Sequential(
        ShiftedRMSNorm(8), Wrapped(), space["Typed"](), replaced, nn.BatchNorm1d(4)
    )
    report = opdock.torch.patch(model)
    kept = dict(report.kept)
    assert kept["ShiftedRMSNorm"] == kept["BatchNorm1d"] == "no op computes what it does"
    assert kept["Wrapped.forward"] == "it is wrapped by a decorator"
    assert kept["Typed.forward"] == "its source is not to be had"
    assert kept["LayerNorm"] == "its forward() was replaced in the layer itself"
    assert "Typed.forward: torch's: its source" in str(report)
    assert str(opdock.torch.patch(nn.Linear(2, 2))) == "found nothing to swap"
    with pytest.raises(opdock.ArgumentError, match="patch.*'model': found an object of type int"):
        opdock.torch.patch(5)


def test_hooks_are_called_and_see_what_they_did(always):
    model, x = make("encoder")
    seen = []
    model[0].norm.register_forward_hook(lambda m, args, y: seen.append("norm"))
    model[1].act.register_forward_pre_hook(lambda m, args: seen.append("act"))
    before = copy.deepcopy(model)
    opdock.torch.patch(model.eval())
    torch.testing.assert_close(model(x), before.eval()(x))
    assert seen == ["norm", "act"] * 2
    model[1].norm.register_forward_hook(lambda m, args, y: y * 2)  # after patch()
    before[1].norm.register_forward_hook(lambda m, args, y: y * 2)
    torch.testing.assert_close(model(x), before(x))


def test_rotary_functions_are_tried_before_they_are_replaced():
    from opdock.torch import _swaps

    q, k = torch.randn(2, 3, 5, 6), torch.randn(2, 1, 5, 6)
    angles = torch.rand(2, 5, 3).repeat(1, 1, 2)
    tables = torch.rand(9, 3).repeat(1, 2)
    positions = torch.tensor([[3, 4, 5, 6, 7], [0, 2, 8, 1, 1]])
    calls = {
        apply_rotary: [(q, k, angles.cos(), angles.sin()),
                       (q, k, angles[:1].cos(), angles[:1].sin())],
        apply_rotary_of_tables: [(q, k, tables.cos(), tables.sin(), positions),
                                 (q, k, tables.cos(), tables.sin(), positions[:1])],
    }  # fmt: skip
    for function, cases in calls.items():
        swap = _swaps.rotary_of(function)
        for args in cases:
            assert swap.takes(*args)
            torch.testing.assert_close(swap.mine(*args), function(*args))
    assert _swaps.rotary_of(apply_other_rotary) is None


@pytest.mark.parametrize("name", ["decoder", "encoder"])
def test_compiled(name, always):
    torch._dynamo.reset()
    model, x = make(name)
    before = copy.deepcopy(model.eval())
    opdock.torch.patch(model)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    found, wanted = compiled(x), before(x)
    torch.testing.assert_close(found, wanted)
    found.sum().backward()
    wanted.sum().backward()
    torch.testing.assert_close(
        [p.grad for p in model.parameters()], [p.grad for p in before.parameters()]
    )


def test_compiled_as_measured_before(monkeypatch):
    """In a graph the choice is that of the last eager call with rows of that length."""
    torch._dynamo.reset()
    swapped = []

    def measured(swap, situation, device, args, keywords):
        return _choice.Choice(situation, True, swap.kind == "softmax", {"eager": (2.0, 1.0)})

    monkeypatch.setattr(_choice, "_measured", measured)

    def backend(graph, inputs):
        targets = [str(node.target) for node in graph.graph.nodes]
        swapped.append([t.split(".")[1] for t in targets if t.startswith("opdock.")])
        return graph.forward

    model, x = make("encoder")
    opdock.torch.patch(model.eval())
    with torch.no_grad():
        torch.compile(model, backend=backend, fullgraph=True)(x)
        torch._dynamo.reset()
        opdock.torch.patch(model, measure=x)
        torch.compile(model, backend=backend, fullgraph=True)(x)
    assert swapped == [[], ["softmax", "softmax"]]


def test_under_autocast(always):
    model, x = make("decoder")
    model, x = model.float(), x.float()
    before = copy.deepcopy(model)
    opdock.torch.patch(model)
    with torch.autocast("cpu", torch.bfloat16):
        found, wanted = model(x), before(x)
    assert found.dtype == wanted.dtype
    torch.testing.assert_close(found, wanted, rtol=0.05, atol=0.05)
    found.sum().backward()
    assert "silu_mul" in always


def test_choices_are_measured_once_and_kept(monkeypatch):
    measured = []
    real = _choice._times

    def times(calls, device, mode):
        measured.append(mode)
        found = real(calls, device, mode)
        return {who: [t * (1 if who == _choice.OPDOCK else 1000) for t in ts]
                for who, ts in found.items()}  # fmt: skip

    monkeypatch.setattr(_choice, "_times", times)
    model, x = nn.LayerNorm(24), torch.randn(6, 24)
    report = opdock.torch.patch(model, measure=x)
    assert str(report) == "layer_norm: 1 in LayerNorm: Opdock's for 1 of 1 shapes"
    model(x)
    model(torch.randn(7, 24))  # the same class of shapes
    assert (
        len(measured) == 1 and "4x24 float32 cpu training: Opdock's (torch" in report.choices()[0]
    )
    with torch.no_grad():
        model(x)
    model(torch.randn(8, 24))
    assert len(measured) == 3  # without a backward pass, and with more rows
    stored = _choice.tuning("list")["stored"]
    assert [one["plugin"] for one in stored] == ["norm"] and len(stored[0]["results"]) == 3
    assert "layer_norm 4x24 float32 cpu training, eager" in str(stored[0]["results"])
    _choice.forget()  # another process
    model(x)
    assert len(measured) == 3 and _choice.choices()[0].eager
    _choice.tuning("forget", plugin="norm")
    _choice.forget()
    model(x)
    assert len(measured) == 4


def test_layers_that_are_slower_get_their_class_back(monkeypatch):
    def measured(swap, situation, device, args, keywords):
        is_faster = swap.kind != "layer_norm"
        return _choice.Choice(situation, is_faster, is_faster, {"eager": (1.0, 2.0)})

    monkeypatch.setattr(_choice, "_measured", measured)
    model = nn.Sequential(nn.LayerNorm(24), DecoderRMSNorm(24), nn.LayerNorm(24))
    report = opdock.torch.patch(model, measure=torch.randn(3, 24))
    assert type(model[0]) is type(model[2]) is nn.LayerNorm
    assert type(model[1]) is not DecoderRMSNorm
    assert str(report).split("\n") == [
        "rms_norm: 1 in DecoderRMSNorm: Opdock's for 1 of 1 shapes",
        "layer_norm in LayerNorm: torch's: faster at the measured shapes",
    ]
    with torch.no_grad():
        model[1].weight.normal_()
    opdock.torch.unpatch(model)
    assert type(model[1]) is DecoderRMSNorm


def test_an_op_that_fails_leaves_the_call_to_torch(monkeypatch):
    def fails(*args):
        raise opdock.UnsupportedError("layer_norm: found no kernel")

    model, x = nn.LayerNorm(8), torch.randn(3, 8)
    wanted = model(x)
    report = opdock.torch.patch(model)
    swap = next(iter(vars(model._opdock_swaps).values()))
    monkeypatch.setattr(swap, "mine", fails)
    assert torch.equal(model(x), wanted)
    assert "torch's (layer_norm: found no kernel)" in report.choices()[0]
    assert not _choice.tuning("list")["stored"]


def test_measuring_leaves_no_trace():
    model = nn.Sequential(nn.BatchNorm1d(5), nn.Dropout(), nn.LayerNorm(24))
    mean, state = model[0].running_mean.clone(), torch.random.get_rng_state()
    opdock.torch.patch(model, measure=(torch.randn(2, 5, 24),))
    torch.random.set_rng_state(state)
    opdock.torch.patch(model, measure={"input": torch.ones(2, 5, 24)})
    assert torch.equal(model[0].running_mean, mean)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(p.grad is None for p in model.parameters())
    assert _choice.choices()


def test_checkpoints_do_not_see_what_is_measured():
    model, x = make("decoder")
    before = copy.deepcopy(model)
    opdock.torch.patch(model)
    y = torch.utils.checkpoint.checkpoint(model, x.requires_grad_(), use_reentrant=False)
    assert _choice.choices()
    y.sum().backward()
    before(x).sum().backward()
    torch.testing.assert_close(
        [p.grad for p in model.parameters()], [p.grad for p in before.parameters()]
    )


def test_transforms_and_modes_use_torchs_functions():
    model, x = nn.LayerNorm(24).double(), torch.randn(3, 24, dtype=torch.float64)
    before = copy.deepcopy(model)
    opdock.torch.patch(model)
    for transform in (torch.vmap, torch.func.jacrev, torch.func.jacfwd, torch.func.hessian):
        torch.testing.assert_close(transform(model)(x), transform(before)(x))
    with torch.utils.flop_counter.FlopCounterMode(display=False):
        model(x)
    with torch.device("meta"):
        assert model.to_empty(device="meta")(torch.empty(2, 24, dtype=torch.float64)).is_meta
    assert not _choice.choices()
