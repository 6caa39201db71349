# SPDX-License-Identifier: Apache-2.0
"""Tests the bench of formulas: that the chains are the same in each language, and which bars are
said to hold. The peers that are not installed are replaced by NumPy."""

import math
import sys
import types

import formulas_bars as bars
import numpy
import pytest
import record
import summary
import table

torch = pytest.importorskip("torch", reason="torch is not installed")

import formulas  # noqa: E402
import formulas_chains as chains  # noqa: E402
import formulas_peers  # noqa: E402

SHAPE = (3, 256)
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
erf = numpy.vectorize(math.erf, otypes=[numpy.float32])
each_chain = pytest.mark.parametrize("chain", chains.CHAINS, ids=lambda chain: chain.name)


def made(chain, dtype=torch.float32):
    """Returns a chain's tensors, and the results that are wanted."""
    tensors = chains.tensors_of(chain, SHAPE, dtype, "cpu")
    return tensors, chains.expected(chain, tensors)


def found_by(maker, chain, dtype=torch.float32, exact=False):
    """Returns what is wrong with a peer's results, or None."""
    tensors, wanted = made(chain, dtype)
    peer = maker(chain, tensors)
    return chains.problem(peer.results(peer.call()), wanted, dtype, exact)


@each_chain
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_formula_is_its_torch_code(chain, dtype):
    assert found_by(formulas_peers.opdock_peer, chain, dtype, exact=True) is None
    assert found_by(formulas_peers.torch_peer, chain, dtype) is None


def test_there_are_twelve_chains_one_of_twenty_operations():
    assert len(chains.BY_NAME) == 12
    text = chains.BY_NAME["polynomial"].text
    assert text.count(" * ") + text.count(" + ") == 20


def test_a_call_moves_what_it_reads_and_writes():
    sizes = {}
    for name in ("adam", "mixed_dtypes", "transpose", "broadcast_row"):
        chain = chains.BY_NAME[name]
        tensors, _ = made(chain, torch.float16)
        sizes[name] = chain.moved(tensors, chains.many(chain.torch(*chain.fresh(tensors))))
    n, (rows, columns) = math.prod(SHAPE), SHAPE
    assert sizes == {
        "adam": 7 * 2 * n,
        "mixed_dtypes": n + 4 * rows + 2 * 2 * n,
        "transpose": 3 * 2 * n,
        "broadcast_row": 2 * 2 * n + 2 * 2 * columns,
    }


def test_only_adam_overwrites_its_tensors():
    for chain in chains.CHAINS:
        tensors, _ = made(chain)
        before = [x.clone() for x in tensors]
        own = chain.fresh(tensors)
        chain.torch(*own)
        assert all(torch.equal(x, y) for x, y in zip(tensors, before, strict=True))
        changed = [not torch.equal(x, y) for x, y in zip(own, before, strict=True)]
        assert changed == [i < chain.in_place for i in range(len(own))]


@each_chain
def test_the_code_for_cupy(chain, monkeypatch):
    cupy = types.SimpleNamespace(**{k: getattr(numpy, k) for k in numpy.__all__})
    cupy.from_dlpack = lambda x: x.numpy()
    cupy.fuse = lambda kernel_name: lambda function: function
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    special = types.SimpleNamespace(erf=erf)
    monkeypatch.setitem(sys.modules, "cupyx", types.SimpleNamespace())
    monkeypatch.setitem(sys.modules, "cupyx.scipy", types.SimpleNamespace(special=special))
    monkeypatch.setitem(sys.modules, "cupyx.scipy.special", special)
    for dtype in DTYPES[:2]:
        assert found_by(formulas_peers.cupy_peer, chain, dtype) is None


@each_chain
def test_the_code_for_mlx(chain, monkeypatch):
    mx = types.SimpleNamespace(**{k: getattr(numpy, k) for k in numpy.__all__ if k != "rint"})
    mx.erf, mx.gpu = erf, "gpu"
    mx.is_available, mx.compile = lambda _: True, lambda function: function
    mx.eval = mx.async_eval = mx.synchronize = lambda *_: None
    monkeypatch.setitem(sys.modules, "mlx", types.SimpleNamespace(core=mx))
    monkeypatch.setitem(sys.modules, "mlx.core", mx)
    assert found_by(formulas_peers.mlx_peer, chain) is None
    tensors, _ = made(chain)
    assert formulas_peers.mlx_peer(chain, tensors).wall(2) > 0


@each_chain
def test_the_code_for_numexpr(chain, monkeypatch):
    known = {"exp": numpy.exp, "sqrt": numpy.sqrt, "round": numpy.rint}
    known |= {"minimum": numpy.minimum, "maximum": numpy.maximum}

    def evaluate(text, local_dict, out):
        value = eval(text, known, local_dict)
        assert value.dtype == numpy.float32
        if out is not None:
            out[...] = value
        return value

    module = types.SimpleNamespace(evaluate=evaluate, set_num_threads=lambda _: None)
    monkeypatch.setitem(sys.modules, "numexpr", module)
    if isinstance(chain.numexpr, str):
        with pytest.raises(TypeError, match="has no "):
            formulas_peers.numexpr_peer(chain, made(chain)[0])
    else:
        assert found_by(formulas_peers.numexpr_peer, chain) is None


def test_wrong_results_are_noticed():
    wanted = (torch.tensor([1.0, 2.0], dtype=torch.float64),)
    one = torch.tensor([1.0, 2.0])
    problem = chains.problem
    assert problem((one,), wanted, torch.float32, True) is None
    assert "1 results, wanted 0" in problem((one,), (), torch.float32, True)
    assert "1 elements" in problem((one * torch.tensor([1, 1.001]),), wanted, torch.float32, True)
    assert "1 elements" in problem((one / torch.tensor([1, 0]),), wanted, torch.float32, False)
    assert "2 elements" in problem((one * math.nan,), wanted, torch.float32, False)
    assert "the shape [1, 2]" in problem((one[None],), wanted, torch.float32, True)
    assert "torch.float32, wanted torch.float16" in problem((one,), wanted, torch.float16, True)
    rounded = (one * 1.004,)
    assert problem(rounded, wanted, torch.bfloat16, False) is None
    assert "elements are wrong" in problem((one.half() * 1.004,), wanted, torch.float16, True)


def timed(name, **times):
    return [{"name": name, "peer": peer.replace("_", "."), "us": us} for peer, us in times.items()]


def test_a_bar_holds_if_it_holds_in_the_worst_case():
    rows = timed("a 1x2 float32", opdock=100, torch=200, torch_compile=99)
    rows += timed("b 1x2 float32", opdock=100, torch=101)
    rows += timed("c 1x2 float32", opdock=100, CuPy=150)
    within, most, *_ = bars.lines(rows, "cuda")
    assert "DOES NOT HOLD: within 1% of the best peer's time: 2 of 3 cases" in within
    assert within.endswith("worst: 1.010 of torch.compile's time, a 1x2 float32")
    assert "bar holds: ahead of the best peer on most cases: 2 of 3" in most
    rows[2]["us"] = 99.5
    assert "bar holds: within 1%" in bars.lines(rows, "cuda")[0]
    rows[2]["us"] = rows[4]["us"] = 99.5
    assert "DOES NOT HOLD: ahead of the best peer on most" in bars.lines(rows, "cuda")[1]


def test_the_bars_of_first_results_and_of_the_host():
    def of(first, warm, host):
        rows = []
        for chain, factor in (("a", 1), ("b", 0.5)):
            rows += [
                {"name": f"{chain}, first result", "peer": "opdock", "ms": first * factor},
                {"name": f"{chain}, first result", "peer": "torch.compile", "ms": 1000},
                {"name": f"{chain}, compiler open", "peer": "opdock", "ms": first * factor},
                {"name": f"{chain}, warm start", "peer": "opdock", "ms": warm * factor},
                {"name": f"{chain}, warm start", "peer": "torch.compile", "ms": 1},
                *timed(f"{chain}, host time", opdock=host * factor, torch_compile=20),
            ]
        return bars.lines(rows, "cuda")

    held = of(100, 3, 5)
    assert "not measured: the time of a call" in held[0]
    assert [line.startswith("  bar holds") for line in held[1:]] == [True] * 4
    assert held[1].endswith("0.100 of torch.compile's, a")
    missed = of(101, 3.1, 5.1)
    assert ["DOES NOT HOLD" in line for line in missed[1:]] == [True] * 4
    assert all(": 1 of 2 chains; worst: " in line and line.endswith(", a") for line in missed[1:])
    assert all("not measured" in line for line in bars.lines([], "cuda"))


def test_on_the_cpu_torch_eager_does_not_count_for_the_bar():
    name = "a 1x2 float32, 1 thread"
    rows = timed(name, opdock=100, torch=50, torch_compile=110, numexpr=120)
    assert "bar holds" in bars.lines(rows, "cpu")[0]
    rows[3]["us"] = 99
    (line, *_) = bars.lines(rows, "cpu")
    assert "0 of 1 cases" in line and line.endswith(f"worst: 1.010 of numexpr's time, {name}")


def test_the_pages_have_the_cases_and_what_is_left_out(tmp_path, monkeypatch):
    where = {"gpu": None, "cpu": "a", "cores": 2, "python": "3", "versions": {}, "commit": "one"}
    monkeypatch.setattr(record, "environment", lambda: where | {"date": "2026-11-30"})
    rows = timed("swiglu 8x8 float16", opdock=2, torch=3)
    rows[0]["of_copy"] = 0.987
    rows += timed("swiglu 8x8 float16, 2 threads", opdock=2, torch=5)
    rows += [
        {"name": "swiglu, first result", "peer": "opdock", "ms": 10},
        {"name": "swiglu, first result", "peer": "torch.compile", "ms": 1000},
        {"name": "swiglu 8x8 float16", "peer": "CuPy", "left_out": "has none"},
    ]
    record.append(tmp_path, "formulas", rows)
    newest = record.newest(record.read(tmp_path))
    assert {
        what: [(c.name, c.ratio) for c in of] for what, of in summary.groups(newest).items()
    } == {
        "formula swiglu": [("8x8 float16", 1.5)],
        "formulas on the CPU, 2 threads": [("swiglu 8x8 float16", 2.5)],
        "formulas, first result": [("swiglu", 100)],
    }
    text = table.tables("cpu", newest)
    assert "- CuPy, swiglu 8x8 float16: has none\n" in text
    assert "| swiglu 8x8 float16 | 2.00 µs, 98.7% | 3.00 µs |" in text


def test_arguments():
    arguments = formulas.parse(["--device", "cuda"])
    assert arguments.shapes == [(8192, 8192), (65536, 1024), (2048, 32768)]
    assert arguments.chains == chains.CHAINS and len(arguments.dtypes) == 3
    assert arguments.parts == ["times", "first", "host"]
    assert set(formulas.parse(["--device", "cpu"]).threads) >= {1}
    arguments = formulas.parse(["--device", "cpu", "--chains", "adam,softmax", "--shapes", "2x128"])
    assert [chain.name for chain in arguments.chains] == ["adam", "softmax"]
    assert arguments.shapes == [(2, 128)] and arguments.parts == ["times", "first"]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (["--chains", "adam,adan"], "found --chains adan, wanted some of bias_gelu, "),
        (["--shapes", "8x100"], "found --shapes 8x100, wanted ROWSxCOLUMNS"),
        (["--parts", "host"], "found --parts host, wanted some of times, first"),
        (["--peers", "CuPy"], "found --peers CuPy, wanted some of opdock, torch"),
        (["--cpu-time"], "--cpu-time is for --device cpu --threads 1"),
    ],
)
def test_faulty_arguments_are_refused(given, found, capsys):
    with pytest.raises(SystemExit):
        formulas.parse(["--device", "cpu", "--threads", "2", *given])
    assert found in capsys.readouterr().err


def test_a_run_on_a_gpu(tmp_path, monkeypatch, capsys):
    """Everything but the GPU: events are replaced by a constant, and tensors lie on the CPU."""
    tensors_of = chains.tensors_of
    monkeypatch.setattr(chains, "tensors_of", lambda c, s, d, _: tensors_of(c, s, d, "cpu"))
    monkeypatch.setattr(formulas, "timed_ms", lambda call, _: (0.5, call() is None))
    monkeypatch.setattr(formulas, "copy_of", lambda moved: lambda: None)
    given = ["--device", "cuda", "--parts", "times", "--shapes", "2x256", "--peers", "torch,CuPy"]
    arguments = formulas.parse([*given, "--chains", "adam,softmax"])
    monkeypatch.setitem(sys.modules, "cupy", None)
    run = formulas.Run(tmp_path)
    formulas.times(run, arguments)
    rows = record.read(tmp_path)
    assert [row.get("left_out", "")[:27] for row in rows[:1]] == ["ModuleNotFoundError: import"]
    names = [f"{c} 2x256 {d}" for d in arguments.dtypes for c in ("adam", "softmax")]
    wanted = [(name, peer, 500.0, 1.0, True) for name in names for peer in ("opdock", "torch")]
    members = ("name", "peer", "us", "of_copy", "host")
    assert [tuple(row.get(m) for m in members) for row in rows[1:]] == wanted
    assert "within 1% of the best peer's time: 6 of 6" in bars.lines(rows, "cuda")[0]


def test_a_peer_with_wrong_results_is_left_out_and_opdock_ends_the_bench(capsys):
    chain = chains.BY_NAME["softmax"]

    def wrong(chain, tensors):
        return formulas_peers.Peer(lambda: tensors[0] * 0)

    def checked(**makers):
        run = formulas.Run(None)
        found, _ = formulas.checked(run, makers, chain, SHAPE, "float32", "cpu", "a")
        return list(found), [row["left_out"] for row in run.rows]

    own = formulas_peers.opdock_peer
    peers, (why,) = checked(opdock=own, CuPy=wrong)
    assert peers == ["opdock"] and why.startswith("wrong results: result 0: ")
    assert checked(opdock=own, torch=formulas_peers.torch_peer) == (["opdock", "torch"], [])
    with pytest.raises(SystemExit, match="formula a: result 0: "):
        checked(opdock=wrong)
