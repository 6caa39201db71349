# SPDX-License-Identifier: Apache-2.0
"""Tests how opdock.testing moves tensors to a device and back where torch does not support it."""

import pytest

TENSORS = """
    wide = torch.randn(7, 40)
    tensors = [
        torch.randn(5, 7), wide[:, 3:20], wide[::2, 8:20], wide.t(), wide[:1, :9].expand(3, 9),
        torch.randn(3, 4, 2, 5).permute(2, 0, 1, 3), torch.zeros(0, 3), torch.tensor(3.0),
        torch.randn(16)[::2], torch.ones(3, dtype=torch.bool), wide.bfloat16()[:, 1:],
        wide.half()[2:], torch.arange(5), wide[:3].to(torch.complex64),
    ]
"""


@pytest.mark.parametrize("device", ["cuda:0", "cuda:1"])
def test_there_and_back(soft, device):
    done = soft(
        TENSORS
        + f"""
    there = [move(x, "{device}") for x in tensors]
    back = [to_cpu(y) for y in there]
    show(device=list({{y.device for y in there}}),
         pairs=list({{y.__dlpack_device__() for y in there}}),
         equal=[torch.equal(x, y) for x, y in zip(tensors, back)],
         strides=[x.stride() == y.stride() == tuple(a.strides) for x, y, a in
                  zip(tensors, back, there)],
         aligned=[(x.storage_offset() * x.element_size() - y.address) % 256 == 0
                  for x, y in zip(tensors, there) if x.numel()])
    """,
        gpus=[{"arch": "sm_90"}] * 2,
    )
    assert done.shown["device"] == [device] and done.shown["pairs"] == [[2, int(device[-1])]]
    for name in ("equal", "strides", "aligned"):
        assert all(done.shown[name]), name
    assert len(done.shown["equal"]) == 14 and done.findings == []


def test_memory_is_given_back(soft):
    done = soft(
        """
        from opdock._author import driver
        import gc
        gpu = driver.gpu("cuda")
        op = on("cuda", softmax)
        x = torch.randn(64, 1024)
        def after(times):
            for _ in range(times):
                y = op(x)
            gc.collect()
            return gpu.free_bytes()
        show(same=after(1) == after(5))
        """,
        leaks=True,
    )
    assert done.shown == {"same": True} and done.findings == []


def test_results_arguments_and_out(soft):
    done = soft(
        """
        op = on("cuda", softmax)
        x = torch.randn(6, 50)
        kept, wanted = x.clone(), op(x)
        assert torch.equal(x, kept) and not wrong(wanted, x)
        out = torch.empty(6, 50)
        assert op(x, out=out) is out and torch.equal(out, wanted)
        spread = torch.full((6, 100), 7.0)[:, ::1][:, :50]
        assert op(x, out=spread) is spread and torch.allclose(spread, wanted, rtol=1e-6)
        assert op(x, out=x) is x and torch.equal(x, wanted)
        add = on("cuda", opdock.ops.add_layer_norm)
        y, total = add(kept, kept)
        assert torch.equal(total, kept + kept) and y.shape == (6, 50)
        # Views of one tensor share memory there too.
        memory = torch.randn(80)
        problem = error(op, memory[:64].view(8, 8), out=memory[8:72].view(8, 8))
        assert "out" in problem, problem
        show(good=True)
        """
    )
    assert done.shown == {"good": True} and done.findings == []


def test_an_element_that_is_never_written_shows(soft):
    done = soft(
        """
        from opdock._author.device_array import allocate_like
        from opdock._author import driver
        array = allocate_like(torch.ones(4, 4), driver.gpu("cuda"))
        show(error=error(array.to_host))
        """,
        check=False,
    )
    assert done.findings and "uninitialised" in done.findings[0], done.stderr


def test_an_op_that_writes_its_input_shows(soft, arch):
    """Arguments that the schema does not mark are read-only to the op; marked ones and `out` are
    not."""
    done = soft(
        """
        from opdock._author.device_array import to_gpu
        class Op:
            def __init__(self, schema, write):
                self.schema, self.write = schema, write
            def __call__(self, x, y, out=None):
                for array in (x, y):
                    array.gpu.to_device(array.address, zeros.data_ptr(), 4 if array is y else 0)
                if self.write is not None:
                    target = {"x": x, "y": y, "out": out}[self.write]
                    target.gpu.to_device(target.address, zeros.data_ptr(), 4)
                return y
        zeros = torch.zeros(4)
        def call(schema, write, same=False):
            x, y = torch.ones(4), torch.ones(4)
            on(device, Op(schema, write))(x, y, out=x if same else None)
        marked = "f(Tensor x, Tensor(a!) y) -> Tensor(a)"
        call(marked, None)
        call(marked, "y")
        call(marked, "out", same=True)
        call(marked, "x", same=True)
        show(before=True)
        show(error=error(call, marked, "x"))
        """,
        gpus=[{"arch": arch}],
        check=False,
    )
    assert done.shown["before"] and done.shown["error"], done.stderr
    (found,) = done.findings
    assert "in memory that is only to be read: an input of f(Tensor x, Tensor(a!) y)" in found


def test_no_gpu_is_said(soft):
    done = soft(
        """
        from opdock import testing
        from opdock._author import driver
        show(error=error(move, torch.ones(3), "cuda:1"), count=driver.count("cuda")[0],
             none=testing._why_not("rocm"))
        """
    )
    assert "found no cuda:1 (1 devices)" in done.shown["error"] and done.shown["count"] == 1
    assert "rocm" in done.shown["none"]
