# SPDX-License-Identifier: Apache-2.0
"""Tests opdock.torch.optim against torch's optimizers: the same parameters after some steps, and
state dicts that either continues."""

import copy

import pytest
import torch

import opdock.torch

OPTIMIZERS = {
    "adamw": (torch.optim.AdamW, opdock.torch.optim.AdamW),
    "adam": (torch.optim.Adam, opdock.torch.optim.Adam),
}


@pytest.fixture(params=OPTIMIZERS)
def classes(request):
    torch.manual_seed(3)
    return OPTIMIZERS[request.param]


def make_parameters(dtype=torch.float64):
    torch.manual_seed(4)
    shapes = (3, 5), (7,), (1, 2, 3), ()
    return [torch.nn.Parameter(torch.randn(s, dtype=torch.float64).to(dtype)) for s in shapes]


def set_gradients(parameters, turn, without=()):
    torch.manual_seed(100 + turn)
    for i, parameter in enumerate(parameters):
        gradient = torch.randn(parameter.shape, dtype=torch.float64).to(parameter.dtype)
        parameter.grad = None if i in without else gradient


def run(optimizer, parameters, turns, without=None):
    for turn in turns:
        set_gradients(parameters, turn, (without or {}).get(turn, ()))
        optimizer.step()


def assert_same(found, wanted, bound=1e-12):
    torch.testing.assert_close([*found], [*wanted], rtol=bound, atol=bound)


OPTIONS = {
    "default": {},
    "all": {"lr": 0.1, "betas": (0.7, 0.9), "eps": 1e-3, "weight_decay": 0.3, "maximize": True},
    "tensor-lr": {"lr": torch.tensor(0.05), "fused": True},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
    "amsgrad": {"amsgrad": True, "lr": 0.1},  # torch's own step
}


@pytest.mark.parametrize("options", OPTIONS)
def test_steps_and_state_are_torchs(classes, options):
    sets, made = [make_parameters() for _ in classes], []
    for cls, parameters in zip(classes, sets, strict=True):
        optimizer = cls(parameters, **OPTIONS[options])
        run(optimizer, parameters, range(4))
        made.append(optimizer)
    assert_same(*sets)
    theirs, mine = (optimizer.state_dict() for optimizer in made)
    assert mine["param_groups"] == theirs["param_groups"]
    for key, state in theirs["state"].items():
        assert mine["state"][key].keys() == state.keys()
        for name in state:
            # float64 rounds the learning rate of a tensor of float32 the same way
            torch.testing.assert_close(
                mine["state"][key][name].double(), state[name].double(), rtol=1e-9, atol=1e-12
            )
    counters = [state["step"] for state in mine["state"].values()]
    assert len({one.data_ptr() for one in counters}) == len(counters)


def test_either_continues_the_others_state(classes):
    wanted_parameters = make_parameters()
    wanted = classes[0](wanted_parameters, lr=0.05)
    run(wanted, wanted_parameters, range(6))
    for first, second in (classes, classes[::-1]):
        parameters = make_parameters()
        optimizer = first(parameters, lr=0.05)
        run(optimizer, parameters, range(3))
        state = copy.deepcopy(optimizer.state_dict())
        optimizer = second(parameters, lr=0.9)
        optimizer.load_state_dict(state)
        run(optimizer, parameters, range(3, 6))
        assert_same(parameters, wanted_parameters)


def test_one_call_updates_all_also_after_a_state_was_loaded(classes, monkeypatch):
    name = f"{classes[0].__name__.lower()}_"
    op, calls = getattr(torch.ops.opdock, name), []

    def call(params, *args, **options):
        calls.append(len(params))
        op(params, *args, **options)

    parameters = make_parameters()
    theirs = classes[0](parameters)
    run(theirs, parameters, range(2))
    mine = classes[1](parameters)
    mine.load_state_dict(theirs.state_dict())
    monkeypatch.setattr(torch.ops.opdock, name, call)
    run(mine, parameters, range(2, 4))
    assert calls == [4, 4]
    assert {float(state["step"]) for state in mine.state_dict()["state"].values()} == {4.0}


def test_a_parameter_without_a_gradient_is_not_counted(classes):
    sets, without = [make_parameters() for _ in classes], {1: (0,), 3: (0, 2), 4: (1, 2, 3)}
    made = []
    for cls, parameters in zip(classes, sets, strict=True):
        made.append(cls(parameters, lr=0.1))
        run(made[-1], parameters, range(6), without)
    assert_same(*sets)
    counts = [[float(s["step"]) for s in o.state_dict()["state"].values()] for o in made]
    assert counts[0] == counts[1] == [4, 5, 4, 5]


def test_groups_schedules_hooks_and_closures(classes):
    sets, counts = [make_parameters() for _ in classes], []
    for cls, parameters in zip(classes, sets, strict=True):
        optimizer = cls([{"params": parameters[:2]}], lr=0.1)
        optimizer.add_param_group({"params": parameters[2:], "lr": 0.01, "weight_decay": 0.5})
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        called = []
        optimizer.register_step_post_hook(lambda *_: called.append(1))  # noqa: B023
        for turn in range(3):

            def closure():
                set_gradients(parameters, turn)  # noqa: B023
                assert torch.is_grad_enabled()
                return 5.0

            assert optimizer.step(closure) == 5.0
            schedule.step()
        counts.append(len(called))
    assert counts == [3, 3]
    assert_same(*sets)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_dtypes(classes, dtype):
    sets = [make_parameters(dtype) for _ in classes]
    for cls, parameters in zip(classes, sets, strict=True):
        run(cls(parameters, lr=0.1, fused=True), parameters, range(3))
    assert_same(*sets, bound=1e-5 if dtype == torch.float32 else 2e-2)
    mixed = [*make_parameters(torch.float32)[:2], *make_parameters(torch.float64)[2:]]
    run(classes[1](mixed), mixed, range(2))


def test_other_layouts(classes):
    sets = []
    for cls in classes:
        torch.manual_seed(5)
        parameter = torch.nn.Parameter(
            torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
        )
        gaps = torch.nn.Parameter(torch.randn(4, 6)[:, ::2])  # torch's own step
        optimizer = cls([{"params": [parameter]}, {"params": [gaps]}])
        for _ in range(3):
            parameter.grad = torch.randn(2, 3, 4, 5)  # contiguous
            gaps.grad = torch.ones(4, 1).expand(4, 3)
            optimizer.step()
        sets.append([parameter, gaps])
    assert_same(*sets, bound=1e-6)


def test_the_gradient_scaler_leaves_its_work_to_the_step(classes):
    sets, scales = [make_parameters(torch.float32) for _ in classes], []
    for cls, parameters in zip(classes, sets, strict=True):
        optimizer = cls(parameters, lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
        for turn in range(5):
            loss = sum((p * (turn + i)).sum() for i, p in enumerate(parameters))
            if turn == 2:
                loss = loss * float("inf")  # this step is skipped
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            if turn == 3:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
        scales.append(scaler.get_scale())
        steps = {float(state["step"]) for state in optimizer.state_dict()["state"].values()}
        assert steps == {4.0}
    assert scales[0] == scales[1]
    assert_same(*sets, bound=1e-5)
    assert not classes[1](sets[1], amsgrad=True)._step_supports_amp_scaling


def test_copies_and_sparse_gradients(classes):
    parameters = make_parameters()
    optimizer = classes[1](parameters, lr=0.1)
    run(optimizer, parameters, range(2))
    other_parameters, other = copy.deepcopy((parameters, optimizer))
    run(optimizer, parameters, range(2, 4))
    run(other, other_parameters, range(2, 4))
    assert_same(parameters, other_parameters)
    assert isinstance(optimizer, classes[0])
    parameters[0].grad = torch.eye(3, 5, dtype=torch.float64).to_sparse()
    with pytest.raises(RuntimeError, match="found a sparse gradient, wanted a dense one"):
        optimizer.step()


def test_parts_of_sharded_parameters(classes, tmp_path):
    """A DTensor, as FSDP2 makes of parameters, in a group of one process."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    store = f"file://{tmp_path}/store"
    torch.distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    try:
        mesh, sets = init_device_mesh("cpu", (1,)), []
        for cls in classes:
            made = [distribute_tensor(p.detach(), mesh, [Shard(0)]) for p in make_parameters()[:3]]
            parameters = [torch.nn.Parameter(p) for p in made]
            optimizer = cls(parameters, lr=0.1, foreach=False)
            for turn in range(3):
                plain = make_parameters()[:3]
                set_gradients(plain, turn)
                for p, other in zip(parameters, plain, strict=True):
                    p.grad = distribute_tensor(other.grad, mesh, [Shard(0)])
                optimizer.step()
            state = optimizer.state_dict()["state"][0]
            assert type(state["exp_avg"]) is type(parameters[0].data)
            sets.append([p.to_local() for p in parameters])
        assert_same(*sets)
    finally:
        torch.distributed.destroy_process_group()
