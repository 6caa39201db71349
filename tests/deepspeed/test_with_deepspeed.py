# SPDX-License-Identifier: Apache-2.0
"""Tests DeepSpeed itself, unmodified: its optimizers, its I/O and its report on Opdock's
plugins."""

import re

import pytest
from conftest import needs_deepspeed, run_python

pytestmark = needs_deepspeed

# Besides transformer_inference, transformer and stochastic_transformer, which their table on the
# CPU does not have.
SERVED = (
    "async_io",
    "cpu_adagrad",
    "cpu_adam",
    "cpu_lion",
    "fused_adam",
    "fused_lamb",
    "fused_lion",
)

QUIET = {"DS_ACCELERATOR": "cpu", "DS_SKIP_CUDA_CHECK": "1"}
# Programs in which DeepSpeed may be imported before Opdock's install() are forked from one that has
# imported it.
IMPORTED = {"prelude": "import torch, deepspeed", "start": tuple(QUIET.items()), **QUIET}
INSTALL = "from opdock.compat import deepspeed as compat; compat.install()\n"


@pytest.mark.parametrize("after", [False, True])
def test_optimizers(after):
    code = """
import torch
from deepspeed.ops.adam import DeepSpeedCPUAdam, FusedAdam
INSTALL
x, y = (torch.nn.Parameter(torch.linspace(-1, 1, 100)) for _ in range(2))
for kind, named in ((DeepSpeedCPUAdam, {}), (FusedAdam, {})):
    theirs = torch.optim.AdamW([y], lr=1e-2, weight_decay=0.1)
    ours = kind([x], lr=1e-2, weight_decay=0.1)
    for _ in range(5):
        for p, optimizer in ((x, ours), (y, theirs)):
            p.grad = p.detach().sin() + 1
            optimizer.step()
    assert (x - y).abs().max() < 1e-6, (kind, (x - y).abs().max())
import sys
assert "opdock.compat.deepspeed.cpu_adam" in sys.modules
"""
    code = code.replace("INSTALL", INSTALL) if after else INSTALL + code.replace("INSTALL", "")
    # install() may also come before torch is imported.
    run_python(code, **(IMPORTED if after else {"prelude": None, **QUIET}))


# The program compares steps of DeepSpeed's optimizers with the same steps in float64. The gradient
# is p.sin() + 1.
OTHERS = """
import torch
from deepspeed.ops.adagrad import DeepSpeedCPUAdagrad
from deepspeed.ops.lamb import FusedLamb
from deepspeed.ops.lion import DeepSpeedCPULion, FusedLion

def lion(p, g, m):
    ahead, m = 0.9 * m + 0.1 * g, 0.99 * m + 0.01 * g
    return p * (1 - 0.01 * 0.1) - 0.01 * ahead.sign(), m

def adagrad(p, g, v):
    g = g + 0.1 * p
    v = v + g * g
    return p - 0.01 * g / (v.sqrt() + 1e-10), v

def lamb(p, g, m, v):
    step = lamb.step = lamb.step + 1
    g = g / 4
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    change = m / (v.sqrt() + 1e-8) + 0.1 * p
    ratio = (p.norm() / change.norm()).clamp(0.01, 10)
    rate = 0.01 * (1 - 0.999**step) ** 0.5 / (1 - 0.9**step)
    return p - rate * ratio * change, m, v

lamb.step = 0
options = dict(lr=0.01, weight_decay=0.1)
for kind, more, step, states in (
    (DeepSpeedCPUAdagrad, {}, adagrad, 1),
    (FusedLamb, {}, lamb, 2),
    (DeepSpeedCPULion, {"betas": (0.9, 0.99)}, lion, 1),
    (FusedLion, {"betas": (0.9, 0.99)}, lion, 1),
):
    x = torch.nn.Parameter(torch.linspace(-1, 1, 100))
    y, kept = x.detach().double(), [torch.zeros(100).double() for _ in range(states)]
    optimizer = kind([x], **options, **more)
    for _ in range(5):
        x.grad = x.detach().sin() + 1
        optimizer.step(**({"scale": 4.0} if kind is FusedLamb else {}))
        y, *kept = step(y, y.sin() + 1, *kept)
    assert (x - y).abs().max() < 1e-6, (kind, (x - y).abs().max())
"""


def test_other_optimizers():
    run_python(INSTALL + OTHERS, **IMPORTED)


def test_adagrad_with_sparse_gradients():
    run_python(
        INSTALL
        + """
import torch
from deepspeed.ops.adagrad import DeepSpeedCPUAdagrad
made = [torch.nn.Embedding(16, 5, sparse=True) for _ in range(2)]
made[1].load_state_dict(made[0].state_dict())
ours = DeepSpeedCPUAdagrad(made[0].parameters(), lr=0.1)
theirs = torch.optim.Adagrad(made[1].parameters(), lr=0.1)
for turn in range(4):
    for layer, optimizer in zip(made, (ours, theirs)):
        optimizer.zero_grad()
        layer(torch.tensor([3, 1, 3, turn])).square().sum().backward()
        layer.weight.grad = layer.weight.grad.coalesce()
        optimizer.step()
assert (made[0].weight - made[1].weight).abs().max() < 1e-6
""",
        **IMPORTED,
    )


def test_rollback_of_a_subgroup():
    run_python(
        INSTALL
        + """
import torch
from deepspeed.ops.adam import DeepSpeedCPUAdam
x = torch.nn.Parameter(torch.linspace(-1, 1, 100))
optimizer = DeepSpeedCPUAdam([x], lr=1e-2, weight_decay=0.1)
x.grad = x.detach().cos()
optimizer.step_subgroup(0)
before = x.detach().clone()
optimizer.step_subgroup(0)
optimizer.rollback_subgroup(0)
assert (x - before).abs().max() < 1e-5
""",
        **IMPORTED,
    )


def test_async_io(tmp_path):
    run_python(
        INSTALL
        + """
import sys, torch
from deepspeed.ops.op_builder import AsyncIOBuilder
assert AsyncIOBuilder().is_compatible()
handle = AsyncIOBuilder().load().aio_handle(1024, 2, False, True, 2)
x, y = torch.randn(1000), torch.zeros(1000)
assert handle.sync_pwrite(x, sys.argv[1]) == 1
assert handle.async_pread(y, sys.argv[1]) == 0 and handle.wait() == 1
assert torch.equal(x, y)
""",
        tmp_path / "x",
        **IMPORTED,
    )


def test_ds_report_shows_the_verdicts():
    """The verdicts are in DeepSpeed's own table. The variable is read when a program imports
    opdock, or when Python starts."""
    code = "import opdock\nfrom deepspeed.env_report import main\nmain()\n"

    def rows(**environment):
        text = re.sub(r"\x1b\[\d+m", "", run_python(code, **QUIET, **environment).stdout)
        assert "torch version" in text and "deepspeed info" in text  # all of ds_report
        row = r"^(\w+) \.+ \[(\w+)\] \.+ \[(\w+)\]$"
        return {name: (is_there, fits) for name, is_there, fits in re.findall(row, text, re.M)}

    theirs, ours = rows(OPDOCK_DEEPSPEED="0"), rows(OPDOCK_DEEPSPEED="1")
    assert set(theirs) == set(ours)
    for name, found in theirs.items():
        is_served = name in SERVED
        assert found[0] == "NO" and ours[name] == (("YES", "OKAY") if is_served else found), name


def test_suffixes_of_architectures():
    """DeepSpeed's own builder fails with TORCH_CUDA_ARCH_LIST=9.0a, but not after install()."""
    run_python(
        """
from deepspeed.ops.op_builder.fp_quantizer import FPQuantizerBuilder
from deepspeed.ops.op_builder.builder import CUDAOpBuilder
class Mine(CUDAOpBuilder):
    def absolute_name(self): return "no.such"
    def sources(self): return []
for kind in (lambda: FPQuantizerBuilder(), lambda: Mine("mine")):
    try:
        kind().compute_capability_args()
        raise AssertionError("their own builder takes 9.0a by now")
    except ValueError:
        pass
from opdock.compat import deepspeed as compat
compat.install()
wanted = ["-gencode=arch=compute_80,code=sm_80", "-gencode=arch=compute_90a,code=sm_90a"]
assert FPQuantizerBuilder().compute_capability_args() == wanted
assert Mine("mine").compute_capability_args()[-2:] == wanted
theirs, mine = FPQuantizerBuilder(), Mine("mine")
theirs.jit_mode = mine.jit_mode = True
assert theirs.compute_capability_args() == []
assert mine.compute_capability_args()[-2:] == wanted
compat.uninstall()
""",
        TORCH_CUDA_ARCH_LIST="7.0;8.0;9.0a",
        **IMPORTED,
    )


def test_every_builder_of_theirs_has_one_here():
    run_python(
        """
import importlib, pkgutil
from opdock.compat import deepspeed as compat
import deepspeed.ops.op_builder as theirs
kinds = {}
for folder in ("", ".cpu"):
    package = importlib.import_module(theirs.__name__ + folder)
    for _, name, is_package in pkgutil.iter_modules(package.__path__):
        if not is_package and name not in ("all_ops", "builder"):
            module = importlib.import_module(f"{package.__name__}.{name}")
            kinds |= {n: k for n, k in vars(module).items() if n.endswith("Builder")}
bases = {"OpBuilder", "CUDAOpBuilder", "CPUOpBuilder", "NotImplementedBuilder"}
assert set(kinds) - bases <= set(compat.BUILDERS), set(kinds) - bases - set(compat.BUILDERS)
for name in set(kinds) - bases:
    ours, kind = getattr(compat, name)(), kinds[name]()
    assert ours.name == kind.name and ours.BUILD_VAR == kind.BUILD_VAR, name
    assert ours.absolute_name() == kind.absolute_name(), name
""",
        **IMPORTED,
    )


def test_an_op_without_a_plugin_goes_to_theirs():
    done = run_python(
        """
from unittest import mock
from opdock.compat import deepspeed as compat
from deepspeed.ops.op_builder.builder import OpBuilder
with mock.patch.object(OpBuilder, "load", lambda self, verbose=False: f"theirs {self.name}"):
    assert compat.ShareMemCommBuilder().load() == "theirs deepspeed_shm_comm"
    assert compat.ShareMemCommBuilder().load() == "theirs deepspeed_shm_comm"
""",
        **IMPORTED,
    )
    said = "deepspeed_shm_comm: DeepSpeed's own builder serves it: no plugin of Opdock's has "
    assert done.stderr.count(said) == 1


def test_native_pinned_memory():
    """DeepSpeed's allocator of pinned memory, DS_PIN_MEMORY_BACKEND=native, on the locked memory.
    Where an op of DeepSpeed's own is loaded, its module of pin_memory is DeepSpeed's own too."""
    run_python(
        INSTALL
        + """
import gc
from unittest import mock
import torch
from deepspeed.ops.op_builder import AsyncIOBuilder, PinMemoryBuilder
from deepspeed.ops.op_builder.builder import OpBuilder
from deepspeed.utils.pin_memory import get_active_native_pinned_memory
from opdock.compat.deepspeed import pin_memory
assert PinMemoryBuilder().load() is pin_memory and PinMemoryBuilder().is_compatible()
pins = get_active_native_pinned_memory()
x = pins.pin(torch.arange(6.0).view(2, 3))
assert x.tolist() == [[0, 1, 2], [3, 4, 5]] and pins.is_pinned(x) and pins.is_pinned(x[1:])
assert pins._handle.is_pinned(x) and pins.unpin(x) is True and not pins._handle.is_pinned(x)
y = pins.pin_empty(torch.empty(0, dtype=torch.bfloat16), (4, 5))
begin, row = y.data_ptr(), y[1]
del y
gc.collect()
assert pins._handle.is_pinned(row)
del row
gc.collect()
assert not pins._handle.free_cpu_locked_tensor_by_ptr(begin) and not pins._ranges
compat.uninstall()
compat.install(exclude="async_io")
loaded = []
with mock.patch.object(OpBuilder, "jit_load", lambda self, verbose=True: loaded.append(self.name)):
    AsyncIOBuilder().load()
assert loaded == ["pin_memory", "async_io"], loaded
assert PinMemoryBuilder().load() is pin_memory
""",
        **IMPORTED,
        DS_PIN_MEMORY_BACKEND="native",
    )
