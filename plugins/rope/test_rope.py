# SPDX-License-Identifier: Apache-2.0
"""Tests rope and its gradient on every device. The oracle rotates by multiplying complex numbers in
float64."""

import pytest
import row_cases
import torch
from row_cases import random

import opdock
from opdock.testing import on

# Bound of two rounding errors in float32, relative to the added terms.
COMPUTED = 1.3e-7
# (D, R): with and without whole vectors; partly rotated; and numbers of neighbours that are no
# power of two.
HEADS = [(128, 128), (64, 64), (80, 32), (256, 64), (2, 2), (6, 4), (34, 34), (96, 96), (40, 20)]
LENGTH = 50  # rows of the tables


def op(name="rope"):
    return opdock.load(f"rope/{name}")


def tables(pairs, dtype=torch.float32, length=LENGTH):
    """Returns cosines and sines of angles of every size."""
    generator = torch.Generator().manual_seed(length)
    angles = torch.rand(length, pairs, generator=generator, dtype=torch.float64) * 6.3
    return angles.cos().to(dtype), angles.sin().to(dtype)


def some_positions(*shape, dtype=torch.int64):
    generator = torch.Generator().manual_seed(7)
    return torch.randint(0, LENGTH, shape, generator=generator).to(dtype)


def rotated(x, cos, sin, positions=None, interleaved=False, inverse=False, magnitudes=False):
    """Computes the oracle; with magnitudes, the sum of the magnitudes of each result's terms."""
    if positions is None:
        positions = torch.arange(x.shape[-3])
    angles = torch.complex(cos.double(), sin.double())[positions.long()][..., None, :]
    pairs = angles.shape[-1]
    head = x[..., : 2 * pairs].double()
    split = head.unflatten(-1, (pairs, 2) if interleaved else (2, pairs))
    first, second = split.unbind(-1 if interleaved else -2)
    if magnitudes:
        terms = [angles.real.abs() * first.abs() + angles.imag.abs() * second.abs()]
        terms.append(angles.real.abs() * second.abs() + angles.imag.abs() * first.abs())
    else:
        turned = torch.complex(first, second) * (angles.conj() if inverse else angles)
        terms = [turned.real, turned.imag]
    both = torch.stack(terms, -1 if interleaved else -2).flatten(-2)
    rest = x[..., 2 * pairs :].double()
    return torch.cat([both, rest.abs() if magnitudes else rest], -1)


class Check:
    """Calls the ops on a device and compares their results with the oracle."""

    def __init__(self, device, assert_close):
        self.device, self.assert_close = device, assert_close

    def compare(self, found, x, *args, **keywords):
        row_cases.assert_like(found, x)
        copied = slice(2 * args[0].shape[-1], None)
        assert torch.equal(found[..., copied], x[..., copied])
        scale = rotated(x, *args, **keywords, magnitudes=True)
        self.assert_close(found, rotated(x, *args, **keywords), COMPUTED, scale)

    def __call__(self, q, k, cos, sin, positions=None, interleaved=False):
        args, keywords = (cos, sin, positions), {"interleaved": interleaved}
        found = on(self.device, op())(q, k, *args, **keywords)
        for x, one in zip((q, k), found, strict=True):
            self.compare(one, x, *args, **keywords)
        back = on(self.device, op("rope_backward"))(q, k, *args, **keywords)
        for x, one in zip((q, k), back, strict=True):
            self.compare(one, x, *args, **keywords, inverse=True)
        return found


@pytest.fixture
def check(device, assert_close):
    return Check(device, assert_close)


def heads(tokens, dtype, queries=4, keys=2, size=64, seed=0):
    shape = tokens if isinstance(tokens, tuple) else (tokens,)
    q = random((*shape, queries, size), dtype, seed)
    return q, random((*shape, keys, size), dtype, seed + 1)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(("size", "turned"), HEADS)
def test_rope(check, dtype, size, turned, interleaved):
    q, k = heads(5, dtype, size=size)
    for narrow in (torch.float32, dtype):
        cos, sin = tables(turned // 2, narrow)
        check(q, k, cos, sin, some_positions(5), interleaved)


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (3, 1), (8, 8), (32, 8), (71, 1), (64, 8)])
@pytest.mark.parametrize("tokens", [1, 3, 33])
def test_grouped_queries(check, dtype, queries, keys, tokens):
    q, k = heads(tokens, dtype, queries, keys, 32)
    check(q, k, *tables(16), some_positions(tokens))


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("turned", [4100, 1100, 512, 514])
def test_large_heads(check, dtype, turned, interleaved):
    """More pairs than a block has threads, and than the CPU loads angles for at a time."""
    q, k = heads(3, dtype, 3, 1, 4104)
    check(q, k, *tables(turned // 2), some_positions(3), interleaved)


def test_many_tokens(several_threads, check, dtype):
    q, k = heads(2000, dtype, 2, 1, 16)
    check(q, k, *tables(8), some_positions(2000))
    check(q[:, :1, :2], k[:, :, :2], *tables(1), some_positions(2000))


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("begin", [0, 1])
@pytest.mark.parametrize("turned", [64, 32])
def test_many_heads_of_many_tokens(check, dtype, begin, turned, interleaved):
    """More heads than a GPU runs at once: a thread has four heads, or the two that remain."""
    tokens, size = 800, 64
    packed = random((tokens, 24 * size + 1), dtype)[:, begin : begin + 24 * size]
    q, k = packed.unflatten(-1, (-1, size)).split([18, 6], -2)
    check(q, k, *tables(turned // 2), some_positions(tokens), interleaved)


@pytest.mark.parametrize("interleaved", [False, True])
def test_positions(check, dtype, interleaved):
    cos, sin = tables(32)
    q, k = heads((3, 7), dtype)
    for positions in (
        some_positions(3, 7),
        some_positions(3, 7, dtype=torch.int32),
        some_positions(7),  # the same positions in each sequence
        some_positions(1, 7).expand(3, 7),
        some_positions(7, 3).t(),
        some_positions(6, 14)[::2, ::2],
        torch.arange(LENGTH - 1, LENGTH - 8, -1).flip(0),
        None,
    ):
        check(q, k, cos, sin, positions, interleaved)
    q, k = heads(LENGTH, dtype)
    check(q, k, cos, sin, None, interleaved)
    check(q, k, cos, sin, some_positions(2 * LENGTH)[::2], interleaved)


@pytest.mark.parametrize("interleaved", [False, True])
def test_strided_tables(check, dtype, interleaved):
    """The tables are halves of one table, as vLLM and FlashInfer keep them, and parts of a table
    that repeats them."""
    q, k = heads(9, dtype)
    for kind in (torch.float32, dtype):
        cache = torch.cat(tables(32, kind), -1)
        check(q, k, *cache.chunk(2, -1), some_positions(9), interleaved)
        cos, sin = (torch.cat([table, table], -1) for table in tables(32, kind))
        check(q, k, cos[:, :32], sin[:, 32:], some_positions(9), interleaved)
        check(q, k, cos[:, 1:33], sin[:, 31:63], some_positions(9), interleaved)
        for odd in (torch.cat([sin, sin[:, :1]], -1), torch.cat([sin, sin], -1)):
            check(q, k, cos[:, :32], odd[:, :32], some_positions(9), interleaved)
            check(q, k, odd[:, :32], cos[:, :32], some_positions(9), interleaved)
        check(q, k, cos[:, 5:6].expand(-1, 1), sin[:, 5:6], some_positions(9), interleaved)
    one = tables(32, length=1)
    check(q, k, one[0].expand(LENGTH, 32), one[1].expand(LENGTH, 32), some_positions(9))


def views(dtype, begin, size):
    """Yields (q, k) as views: of a packed qkv, with heads before tokens, with gaps, of one
    token."""
    packed = random((2, 5, 8 * size + 24), dtype)[..., begin : begin + 8 * size]
    split = packed.split([4 * size, 2 * size, 2 * size], -1)
    yield tuple(part.unflatten(-1, (-1, size)) for part in split[:2])
    grouped = packed.unflatten(-1, (2, 4, size))
    yield grouped[..., :2, :].flatten(-3, -2), grouped[..., 2, :]
    wide = random((2, 6, 9, size + 8), dtype, 1)[..., begin % 8 : begin % 8 + size]
    yield wide.transpose(1, 2)[:, :, :4], wide.transpose(1, 2)[:, :, 4:]
    # One token of each sequence.
    yield wide.transpose(1, 2)[:, 3:4, :4], wide.transpose(1, 2)[:, :1, 4:]
    yield wide[0, :, :4].transpose(0, 1), wide[1, :, 4:8].transpose(0, 1)
    yield wide[0, ::2, ::3], wide[1, 1::2, 2::3]
    odd = random((5, 8, size + 1), dtype, 3)
    yield odd[:, :4, :size], odd[:, 4:6, :size]
    odd = random((5, 6 * size + 1), dtype, 4)[:, : 6 * size].unflatten(-1, (6, size))
    yield odd[:, :4], odd[:, 4:]
    one = random((3, 1, size + 8), dtype, 2)[..., begin % 8 : begin % 8 + size]
    yield one.expand(3, 5, size), one


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("begin", row_cases.OFFSETS)
def test_views(check, dtype, begin, interleaved):
    for size, turned in ((64, 64), (64, 32), (18, 18)):
        for q, k in views(dtype, begin, size):
            positions = some_positions(*q.shape[:-2])
            check(q, k, *tables(turned // 2), positions, interleaved)
            check(q, k, *tables(turned // 2), positions[..., :1].expand_as(positions), interleaved)
            check(q, k, *tables(turned // 2, dtype), None, interleaved)


@pytest.mark.parametrize("begin", [1, 8])
@pytest.mark.parametrize("turned", [64, 24])
def test_in_place_of_a_packed_qkv(check, device, dtype, begin, turned):
    packed = random((9, 8 * 64 + 16), dtype)
    before = packed.clone()

    def parts(qkv):
        split = qkv[:, begin : begin + 512].split([256, 128, 128], -1)
        return [part.unflatten(-1, (-1, 64)) for part in split]

    q, k, _ = parts(packed)
    args = (*tables(turned // 2), some_positions(9))
    for name in ("rope", "rope_backward"):
        wanted = on(device, op(name))(*parts(packed.clone())[:2], *args)
        found = on(device, op(name))(q, k, *args, out=(q, k))
        assert found[0] is q and found[1] is k
        assert torch.equal(q, wanted[0]) and torch.equal(k, wanted[1])
    outside = torch.ones(9, 8 * 64 + 16, dtype=torch.bool)
    for part in parts(outside)[:2]:
        part.fill_(False)
    assert torch.equal(packed[outside], before[outside])


def test_outputs_with_gaps(check, device, dtype):
    q, k = heads(6, dtype)
    args = (*tables(16), some_positions(6))
    wanted = on(device, op())(q, k, *args)
    for begin in (1, 8):
        wide = torch.zeros(6, 9, 80, dtype=dtype)
        outs = (wide[:, :4, begin : begin + 64], wide[:, 5:7, begin : begin + 64])
        assert on(device, op())(q, k, *args, out=outs)[0] is outs[0]
        assert all(torch.equal(one, two) for one, two in zip(outs, wanted, strict=True))
        assert wide.count_nonzero() == sum(out.count_nonzero() for out in outs)
    # Only one of the two is in place, and it has elements that are only copied.
    own, out = q.clone(), torch.empty_like(k)
    on(device, op())(own, k, *args, out=(own, out))
    assert torch.equal(own, wanted[0]) and torch.equal(out, wanted[1])


@pytest.mark.parametrize(
    ("tokens", "queries", "keys", "size", "pairs"),
    [
        (0, 4, 2, 8, 4),
        ((2, 0), 4, 2, 8, 4),
        ((0, 2), 4, 2, 8, 4),
        (3, 0, 2, 8, 4),
        (3, 4, 0, 8, 4),
        (3, 0, 0, 8, 4),
        (3, 4, 2, 8, 0),
        (3, 4, 2, 0, 0),
    ],
)
def test_zero_sizes(check, dtype, tokens, queries, keys, size, pairs):
    q, k = heads(tokens, dtype, queries, keys, size)
    check(q, k, *tables(pairs), some_positions(*q.shape[:-2]))
    check(q, k, *tables(pairs))
    check(q[..., :0, :, :], k[..., :0, :, :], *tables(pairs, length=0))


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("size", [64, 10])
def test_quarter_turns_are_exact(check, device, dtype, size, interleaved):
    """A rotation by 0 keeps every bit except the sign of 0, and a quarter turn swaps elements; also
    for subnormal numbers."""
    info = torch.finfo(dtype)
    q, k = heads(2, dtype, size=size)
    q[:, 0] = info.smallest_normal / 4
    q[:, 1] = -info.max
    q[:, 2, ::3] = 0
    cos, sin = torch.zeros(2, 2, size // 2).unbind()
    cos[0], sin[1] = 1, 1
    found = on(device, op())(q, k, cos, sin, interleaved=interleaved)
    for x, one in zip((q, k), found, strict=True):
        split = x[1].unflatten(-1, (-1, 2) if interleaved else (2, -1))
        a, b = split.unbind(-1 if interleaved else -2)
        turned = torch.stack([-b, a], -1 if interleaved else -2).flatten(-2)
        assert (one[0] == x[0]).all() and (one[1] == turned).all()


def test_special_values(check, dtype):
    """Infinities and NaN spread as in the oracle, and disturb no other pair."""
    inf, nan = float("inf"), float("nan")
    q, k = heads(4, dtype)
    q[0, 0, 3], q[1, 1, 40], q[2, 2, 63], k[3, 1, 0] = inf, -inf, nan, inf
    for interleaved in (False, True):
        found = on(check.device, op())(q, k, *tables(32), interleaved=interleaved)
        for x, one in zip((q, k), found, strict=True):
            # PyTorch's complex numbers treat infinity by rules of their own.
            wanted = rotated(x.nan_to_num(0, 0, 0), *tables(32), interleaved=interleaved)
            bad = ~rotated(x, *tables(32), interleaved=interleaved, magnitudes=True).isfinite()
            assert torch.equal(~one.isfinite(), bad)
            check.assert_close(one[~bad], wanted[~bad], 1e-6, torch.tensor(10.0))
    small = q.nan_to_num(0, 0, 0) * torch.finfo(dtype).smallest_normal / 16
    check(small, small, *tables(32))


@pytest.mark.parametrize("positions", [[0, LENGTH, 2], [0, 1, -1], [2**40, 1, 2]])
@pytest.mark.parametrize("interleaved", [False, True])
def test_positions_outside_of_the_tables(device, dtype, positions, interleaved):
    """On the CPU this is an error, before anything is written; on a GPU only the results of these
    tokens are NaN."""
    q, k = heads(3, dtype, size=40)
    args = (*tables(12), torch.tensor(positions))
    keywords = {"interleaved": interleaved}
    if device == "cpu":
        before = q.clone()
        row_cases.assert_refused(op(), "positions", q, k, *args, **keywords, out=(q, k))
        assert torch.equal(q, before)
        return
    found = on(device, op())(q, k, *args, **keywords)
    bad = [i for i, position in enumerate(positions) if not 0 <= position < LENGTH]
    good = [i for i in range(3) if i not in bad]
    for x, one in zip((q, k), found, strict=True):
        assert one[bad][..., :24].isnan().all() and one[good].isfinite().all()
        assert torch.equal(one[..., 24:], x[..., 24:])


@pytest.mark.parametrize("interleaved", [False, True])
def test_errors_are_not_above_torch(check, device, dtype, interleaved):
    """Compares the errors with those of PyTorch's formula in the same dtype, and for 16 bits also
    in float32."""
    q, k = heads(LENGTH, dtype, 16, 4, 128)
    cos, sin = tables(64, dtype)
    oracle = rotated(q, cos, sin, interleaved=interleaved)

    def usual(x, cos, sin):
        """Rotates x with the formula of the transformers package."""
        if interleaved:
            cos, sin = (table.repeat_interleave(2, -1)[:, None] for table in (cos, sin))
            other = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
        else:
            cos, sin = (torch.cat([table, table], -1)[:, None] for table in (cos, sin))
            other = torch.cat([-x[..., 64:], x[..., :64]], -1)
        return x * cos + other * sin

    found = on(device, op())(q, k, cos, sin, interleaved=interleaved)[0]
    peers = [usual(q, cos, sin), usual(q.float(), cos.float(), sin.float()).to(dtype)]
    scale = rotated(q, cos, sin, interleaved=interleaved, magnitudes=True)
    for peer in peers:
        ours, theirs = ((y.double() - oracle).abs() / scale for y in (found, peer))
        assert ours.max() <= theirs.max() * 1.001
        assert ours.square().mean() <= theirs.square().mean() * 1.001


def test_there_and_back(device):
    q, k = heads(LENGTH, torch.float32)
    cos, sin = tables(32)
    there = on(device, op())(q, k, cos, sin)
    back = on(device, op("rope_backward"))(*there, cos, sin)
    torch.testing.assert_close(back, (q, k), rtol=1e-5, atol=1e-6)


def test_bits_are_the_same_each_time(device, dtype):
    q, k = heads(40, dtype)
    first, *others = (on(device, op())(q, k, *tables(32)) for _ in range(3))
    assert all(torch.equal(one[0], first[0]) and torch.equal(one[1], first[1]) for one in others)


@pytest.mark.parametrize("interleaved", [False, True])
def test_float64_is_for_the_cpu(device, reference, interleaved):
    q, k = heads(30, torch.float64, size=70)
    positions = some_positions(30)
    for kind in (torch.float32, torch.float64):
        args = (*tables(33, kind), positions)
        if device != "cpu":
            with pytest.raises(opdock.OpdockError, match="float64"):
                on(device, op())(q, k, *args)
            continue
        for name in ("rope", "rope_backward"):
            found = op(name)(q, k, *args, interleaved=interleaved)
            wanted = getattr(reference, name)(q, k, *args, interleaved=interleaved)
            torch.testing.assert_close(found, wanted, rtol=1e-14, atol=1e-14)
            oracle = rotated(q, *args, interleaved=interleaved, inverse=name != "rope")
            torch.testing.assert_close(found[0], oracle, rtol=1e-14, atol=1e-14)


def bad_inputs():
    q, k = torch.ones(3, 4, 8), torch.ones(3, 2, 8)
    cos, sin = torch.ones(5, 4), torch.ones(5, 4)
    at = torch.tensor([0, 1, 2])
    return [
        ("q", (q.long(), k.long(), cos, sin, at)),
        ("q", (q[0], k[0], cos, sin, at)),
        ("q", (q[None, None], k[None, None], cos, sin, at)),
        ("q", (q[..., :7], k[..., :7], cos[:, :3], sin[:, :3], at)),
        ("q", (q.transpose(1, 2), k, cos, sin, at)),
        ("k", (q, k.half(), cos, sin, at)),
        ("k", (q, k[:2], cos, sin, at)),
        ("k", (q, k[None], cos, sin, at)),
        ("k", (q, k[..., :6], cos, sin, at)),
        ("k", (q, torch.ones(3, 8, 2).mT, cos, sin, at)),
        ("cos", (q, k, cos.half(), sin.half(), at)),
        ("cos", (q, k, cos[0], sin[0], at)),
        ("cos", (q, k, torch.ones(5, 8), torch.ones(5, 8), at)),
        ("cos", (q, k, torch.ones(4, 5).t(), sin, at)),
        ("cos", (q, k, cos[:2], sin[:2])),
        ("sin", (q, k, cos, sin[:4], at)),
        ("sin", (q, k, cos, sin[:, :3], at)),
        ("sin", (q.half(), k.half(), cos, sin.half(), at)),
        ("sin", (q, k, cos, torch.ones(4, 5).t(), at)),
        ("positions", (q, k, cos, sin, at[:2])),
        ("positions", (q, k, cos, sin, at[None])),
        ("positions", (q, k, cos, sin, at.float())),
        ("positions", (q, k, cos, sin, at.short())),
        ("positions", (q[None], k[None], cos, sin, at[:2])),
        ("positions", (q[None], k[None], cos, sin, at[None].expand(2, 3))),
    ]


@pytest.mark.parametrize("number", range(25))
def test_bad_inputs_name_the_argument(device, number):
    name, args = bad_inputs()[number]
    row_cases.assert_refused(on(device, op()), name, *args)
    own = {"q": "grad_q", "k": "grad_k"}.get(name, name)
    row_cases.assert_refused(on(device, op("rope_backward")), own, *args)


def test_outputs_that_take_the_other_argument(device):
    """An element of q may still be needed after a result for k has overwritten it."""
    q, k = heads(3, torch.float32, 2, 2)
    args = tables(32)
    for one, two, out in ((q, k, (k, q)), (q, q, (q, k))):
        with pytest.raises(opdock.OpdockError, match="output"):
            on(device, op())(one, two, *args, out=out)


@pytest.mark.gpu
def test_on_another_stream_and_in_a_graph(cuda):
    x = random((64, 8, 128), torch.float16).to(cuda)
    cos, sin = (table.to(cuda) for table in tables(64, length=64))

    def turn(x):
        return op()(x[:, :6], x[:, 6:], cos, sin)[0]

    assert torch.equal(row_cases.on_another_stream(turn, x), turn(x))
    assert torch.equal(row_cases.in_a_graph(turn, x), turn(x))


@pytest.mark.gpu
def test_more_than_2_to_the_31_elements(check, cuda):
    x, last = row_cases.huge_rows(1024, cuda, copies=2)
    q, k = x[:, :896].unflatten(-1, (7, 128)), x[:, 896:].unflatten(-1, (1, 128))
    cos, sin = (table.to(cuda) for table in tables(64))
    positions = torch.arange(len(x), device=cuda) % LENGTH
    found = op()(q, k, cos, sin, positions)
    own = last.cpu()[:, :896].unflatten(-1, (7, 128))
    check.compare(found[0][-40:].cpu(), own, *tables(64), positions[-40:].cpu())
