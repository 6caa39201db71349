# SPDX-License-Identifier: Apache-2.0
"""Tests the state between calls: the counter, the caches, results that are still held, threads."""

import collections
import contextlib
import gc
import threading
import types
import weakref

import pytest
import torch
from attention_cases import Case, Oracle
from inference_cases import exact, random

import opdock
from opdock.compat.deepspeed import inference
from opdock.compat.deepspeed.inference import arenas, workspace

__all__ = ["random"]
CASE = Case("fp32")


@pytest.fixture(autouse=True)
def fresh():
    inference.release_workspace()
    allocate()
    yield
    inference.release_workspace()


def allocate(batch=2, layers=2, tokens=16, external=False, least=1):
    inference.allocate_workspace_fp32(64, 4, 10, batch, layers, 1, external, 0, tokens, least)


def layers(qkv, count=2, oracles=None):
    """Runs all layers of a step; layer i gets qkv plus i."""
    found = [CASE.call(qkv + i, layer=i, layers=count) for i in range(count)]
    for i, oracle in enumerate(oracles or ()):
        oracle.check(found[i][0], qkv + i)
    return found


@contextlib.contextmanager
def own_place(device):
    """Gives the thread's calls an arena of their own: on the CPU each thread has one, on a GPU each
    stream. The new stream first waits for the work enqueued before."""
    if device == "cpu":
        yield
        return
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        inference.release_workspace()  # torch has few streams and reuses them in rotation
        yield


def test_the_counter_advances_with_the_last_layer(random):
    oracles = [Oracle(CASE), Oracle(CASE)]
    for step in (5, 1, 1, 1):
        layers(random((2, step, CASE.width)), 2, oracles)
    assert oracles[0].keys.shape[1] == 8


def test_a_step_that_is_repeated_writes_its_place_again(random):
    layers(random((2, 5, CASE.width)))
    first = CASE.call(random((2, 1, CASE.width)), layer=0, layers=2)
    again = CASE.call(random((2, 1, CASE.width)), layer=0, layers=2)
    assert first[1].shape[2] == again[1].shape[2] == 6


def test_layers_out_of_order_are_refused(random):
    """The refused layer has not seen the earlier tokens; DeepSpeed's reads uninitialised memory."""
    layers(random((2, 5, CASE.width)))
    one = random((2, 1, CASE.width))
    CASE.call(one, layer=1, layers=2)  # the last layer advances the counter
    with pytest.raises(
        opdock.InvalidArgumentError, match="found 5 tokens in layer 0, wanted the 6"
    ):
        CASE.call(one, layer=0, layers=2)


@pytest.mark.parametrize("count, reached", [(2, 1), (3, 1), (3, 2)])
def test_after_half_a_prompt_the_sequence_before_is_over(random, count, reached):
    """After an exception between layers, the other layers still have the previous sequence."""
    allocate(layers=count)
    layers(random((2, 8, CASE.width)), count)
    layers(random((2, 1, CASE.width)), count)
    prompt, one = random((2, 5, CASE.width)), random((2, 1, CASE.width))
    for layer in range(reached):
        CASE.call(prompt + layer, layer=layer, layers=count)
    for layer in range(reached):
        CASE.call(one, layer=layer, layers=count)
    with pytest.raises(
        opdock.InvalidArgumentError, match=f"the sequence before in layer {reached}, wanted this"
    ):
        CASE.call(one, layer=reached, layers=count)
    with pytest.raises(opdock.InvalidArgumentError, match="no completed prompt|sequence before"):
        inference.repeat_kv_cache_fp32(1, 2)
    oracles = [Oracle(CASE) for _ in range(count)]
    for step in (5, 1, 1):
        layers(random((2, step, CASE.width)), count, oracles)


def test_a_prompt_that_is_refused_ends_the_sequence_before_too(random):
    layers(random((2, 5, CASE.width)))
    with pytest.raises(opdock.InvalidArgumentError, match="found 17 tokens"):
        layers(random((2, 17, CASE.width)))
    with pytest.raises(opdock.InvalidArgumentError):
        layers(random((2, 1, CASE.width)))
    allocate(tokens=32)
    with pytest.raises(opdock.InvalidArgumentError, match="the sequence before in layer 0"):
        layers(random((2, 1, CASE.width)))
    oracles = [Oracle(CASE), Oracle(CASE)]
    for step in (5, 1):
        layers(random((2, step, CASE.width)), 2, oracles)


def test_a_prompt_may_be_computed_again(random):
    """Some or all layers may repeat it: the last prompt counts."""
    prompt = random((2, 5, CASE.width))
    oracles = [Oracle(CASE), Oracle(CASE)]
    CASE.call(random((2, 7, CASE.width)), layer=0, layers=2)
    layers(prompt, 2, oracles)
    layers(prompt, 2, oracles)
    layers(random((2, 1, CASE.width)), 2, oracles)


def test_a_model_has_keys_and_values_of_its_own(random):
    """Two models alternate in one thread, also with another number of layers than the calls
    state."""
    models = [arenas.Model(), arenas.Model()]
    models[0].last_layer, models[1].last_layer = 1, 2
    oracles = [[Oracle(CASE) for _ in range(count)] for count in (2, 3)]
    for step in (6, 1, 1):
        for model, own in zip(models, oracles, strict=True):
            qkv = random((2, step, CASE.width))
            with arenas.serving(model):
                for i, oracle in enumerate(own):
                    oracle.check(CASE.call(qkv + i, layer=i, layers=7)[0], qkv + i)
    with arenas.serving(models[0]):
        allocate(tokens=8)
        with pytest.raises(opdock.InvalidArgumentError, match="wanted at most 8"):
            layers(random((2, 1, CASE.width)))
            layers(random((2, 1, CASE.width)))
    assert arenas.shared.latest.tokens == 16
    inference.reset_cache()
    assert all(one.tokens == 1 for model in models for one in model.here())
    inference.release_workspace()
    assert not any(one.caches for one in arenas.all_here())


def test_a_model_that_is_gone_leaves_nothing(device, random):
    model = arenas.Model()
    with arenas.serving(model):
        layers(random((2, 5, CASE.width)))
        kept = weakref.ref(model.arena(torch.device(device)).caches[0])
    assert kept() is not None
    del model
    gc.collect()
    assert kept() is None


def test_reset_cache(random):
    layers(random((2, 5, CASE.width)))
    layers(random((2, 1, CASE.width)))
    assert inference.reset_cache() is None
    oracles = [Oracle(CASE), Oracle(CASE)]
    for _ in range(3):
        layers(random((2, 1, CASE.width)), 2, oracles)


def test_keys_stay_as_they_are_while_they_are_held(random):
    """Held keys do not change while the sequence continues, another one begins, or the workspace
    grows or is released."""
    held = layers(random((2, 5, CASE.width)))
    before = [[t.clone() for t in found] for found in held]
    layers(random((2, 1, CASE.width)))
    layers(random((2, 7, CASE.width)))
    allocate(batch=8, tokens=64)
    layers(random((8, 30, CASE.width)))
    inference.release_workspace()
    layers(random((8, 9, CASE.width)))
    for found, wanted in zip(held, before, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


def test_values_come_after_keys_in_one_tensor(random):
    """The layout is DeepSpeed's: [2, batch, heads, places, size]."""
    _, keys, values = CASE.call(random((2, 5, CASE.width)))
    places, size = 16, CASE.size
    assert keys.stride() == values.stride() == (4 * places * size, places * size, size, 1)
    assert values.storage_offset() - keys.storage_offset() == 2 * 4 * places * size
    assert keys.untyped_storage().data_ptr() == values.untyped_storage().data_ptr()


def test_growing_goes_on_with_the_sequence(random):
    """DeepSpeed 0.7.7 allocates the workspace before each token; here it grows each time."""
    oracles = [Oracle(CASE), Oracle(CASE)]
    allocate(tokens=5)
    layers(random((2, 5, CASE.width)), 2, oracles)
    with pytest.raises(opdock.InvalidArgumentError, match="found 6 tokens .* wanted at most 5"):
        layers(random((2, 1, CASE.width)))
    allocate(tokens=6)
    held = layers(random((2, 1, CASE.width)), 2, oracles)
    before = held[0][1].clone()
    for tokens in (20, 20, 30):
        allocate(tokens=tokens, batch=tokens)
        layers(random((2, 1, CASE.width)), 2, oracles)
    assert torch.equal(held[0][1], before)


def test_more_tokens_than_places_are_refused(random):
    """DeepSpeed's function writes them into the next layer's memory."""
    with pytest.raises(opdock.InvalidArgumentError, match="found 17 tokens .* wanted at most 16"):
        CASE.call(random((2, 17, CASE.width)))
    layers(random((2, 16, CASE.width)))
    with pytest.raises(opdock.InvalidArgumentError, match="max_out_tokens of at least that"):
        layers(random((2, 1, CASE.width)))


def test_a_larger_batch_than_was_asked_for(random):
    """DeepSpeed 0.19.8 allocates once, for the first batch, and later writes beyond the end."""
    oracles = [Oracle(CASE), Oracle(CASE)]
    for step in (3, 1):
        layers(random((5, step, CASE.width)), 2, oracles)
    with pytest.raises(opdock.InvalidArgumentError, match="layer 0's prompt"):
        layers(random((2, 1, CASE.width)))


def test_an_external_cache_keeps_nothing(random):
    """The caller keeps keys and values, as DeepSpeed's BLOOM does, and calls softmax."""
    allocate(external=True)
    with pytest.raises(opdock.InvalidArgumentError, match="external_cache=False"):
        CASE.call(random((2, 5, CASE.width)))


def test_release_and_retake(device, random):
    layers(random((2, 5, CASE.width)))
    assert inference.release_workspace() is None
    assert not arenas.shared.arena(torch.device(device)).caches
    assert inference.retake_workspace() is True
    oracles = [Oracle(CASE), Oracle(CASE)]
    for step in (5, 1):
        layers(random((2, step, CASE.width)), 2, oracles)


def test_nothing_was_allocated(device, random, monkeypatch):
    monkeypatch.setattr(arenas.shared, "latest", None)
    monkeypatch.setattr(arenas.shared.arena(torch.device(device)), "own_plan", None)
    with pytest.raises(opdock.InvalidArgumentError, match="call allocate_workspace_fp32"):
        CASE.call(random((2, 5, CASE.width)))
    assert inference.retake_workspace() is True


def test_sizes_are_checked():
    for arguments, message in (
        ((64, 5, 1, 1, 1), "'num_heads': found 5 of hidden_dim 64"),
        ((64, 4, 1, 1, 1, 3), "for mp_size 3"),
        ((64, 4, 1, 0, 1), "'batch_size': found 0"),
        ((64, 4, 1, 1, 1, 1, False, 0, 0), "'max_out_tokens': found 0"),
    ):
        with pytest.raises(opdock.InvalidArgumentError, match=message):
            inference.allocate_workspace_fp16(*arguments)
    with pytest.raises(opdock.OutOfMemoryError, match="memory for 4 tokens, wanted .* = 5"):
        inference.allocate_workspace_fp16(64, 4, 1, 1, 1, 1, False, 0, 4, 5)


def test_how_many_tokens_fit():
    """500 MB are left free, as in DeepSpeed."""
    free, reserve = 3 << 30, 500 << 20
    assert workspace.places(1024, 1 << 20, free) == 1024
    assert workspace.places(10000, 1 << 20, free) == (free - reserve) >> 20
    assert workspace.places(1024, 1 << 20, reserve - 1) == 0


class Gpu:
    """Replaces torch.cuda's functions about memory and streams with those of an imaginary GPU."""

    def __init__(self, monkeypatch, free):
        self.stream = 0
        made = {
            "is_initialized": lambda: True,
            "current_device": lambda: 1,
            "mem_get_info": lambda: (free, 80 << 30),
            "memory_reserved": lambda: 3 << 20,
            "memory_allocated": lambda: 1 << 20,
            "current_stream": self.current_stream,
        }
        for name, function in made.items():
            monkeypatch.setattr(torch.cuda, name, function)
        monkeypatch.setattr(arenas.shared, "_of_streams", collections.OrderedDict())

    def current_stream(self, device):
        return types.SimpleNamespace(device_index=device.index, cuda_stream=self.stream)


def test_each_stream_of_a_gpu_has_its_arena(monkeypatch):
    """There is one arena for each device and stream, whichever thread asks."""
    gpu = Gpu(monkeypatch, 1 << 30)
    device, other = torch.device("cuda", 1), torch.device("cuda", 0)
    first = arenas.shared.arena(device)
    gpu.stream = 77
    second = arenas.shared.arena(device)
    assert len({id(first), id(second), id(arenas.shared.arena(other))}) == 3
    gpu.stream = 0
    found = []
    thread = threading.Thread(target=lambda: found.append(arenas.shared.arena(device)))
    thread.start()
    thread.join()
    assert found == [first] and arenas.shared.arena(torch.device("cpu")) not in (first, second)


def test_streams_that_nobody_uses_are_forgotten(monkeypatch):
    """A program's own streams come and go, and no event reports that one is gone."""
    gpu = Gpu(monkeypatch, 1 << 30)
    device = torch.device("cuda", 1)
    used = arenas.shared.arena(device)
    for address in range(1, 2000):
        gpu.stream = address
        arenas.shared.arena(device)
        gpu.stream = 0
        assert arenas.shared.arena(device) is used
    assert len(arenas.shared._of_streams) <= 256


def test_a_gpus_memory_says_how_many_tokens_there_are(monkeypatch):
    """A token takes 2 KiB: keys and values of 2 layers, 2 rows and 64 elements of 4 bytes. For
    another stream, and for a device without a workspace of its own, the last allocation counts."""
    free = (500 << 20) - (2 << 20) + 100 * 2048
    gpu = Gpu(monkeypatch, free)
    allocate(tokens=16)
    device = torch.device("cuda", 1)
    assert arenas.shared.arena(device).plan.tokens == 16
    allocate(tokens=1000)
    assert arenas.shared.arena(device).plan.tokens == 100
    allocate(tokens=1000, external=True)
    assert arenas.shared.arena(device).plan.tokens == 1000
    gpu.stream = 5
    assert arenas.shared.arena(device).plan.tokens == 1000
    with pytest.raises(opdock.OutOfMemoryError, match="memory for 100 tokens, wanted"):
        allocate(tokens=1000, least=101)


def test_the_cpu_beside_a_gpu(monkeypatch):
    """A workspace counts for the CPU and the GPU, whichever of them existed when an earlier one was
    allocated."""
    allocate(tokens=5)
    Gpu(monkeypatch, (500 << 20) - (2 << 20) + 100 * 2048)
    allocate(tokens=200)
    assert arenas.shared.arena(torch.device("cpu")).plan.tokens == 200
    assert arenas.shared.arena(torch.device("cuda", 1)).plan.tokens == 100


def test_each_thread_has_its_sequence(device, random):
    """The threads alternate, token by token; neither sees the other's sequence."""
    turn = threading.Barrier(2, timeout=60)
    given = [[random((2, step, CASE.width)) for step in (3 + i, 1, 1, 1)] for i in range(2)]
    errors = []

    def run(steps):
        try:
            oracles = [Oracle(CASE), Oracle(CASE)]
            with own_place(device):
                for qkv in steps:
                    turn.wait()
                    layers(qkv, 2, oracles)
        except BaseException as error:
            errors.append(error)
            turn.abort()

    threads = [threading.Thread(target=run, args=(steps,)) for steps in given]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


def test_a_thread_without_a_workspace_of_its_own(random):
    """The last allocation in the process counts, even if the same one was made before."""
    done = []

    def run():
        layers(random((2, 5, CASE.width)))
        done.append(True)

    other = threading.Thread(target=allocate, kwargs={"external": True})
    other.start()
    other.join()
    allocate()
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert done


def test_another_thread_does_not_go_on_with_a_sequence(device, random):
    """The mask states that there are earlier tokens."""
    layers(random((2, 5, CASE.width)))
    qkv, errors = random((2, 1, CASE.width)), []

    def run():
        try:
            with own_place(device):
                CASE.call(qkv, torch.zeros(2, 6, device=device))
        except opdock.InvalidArgumentError as error:
            errors.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert errors and "wanted [2, 1]" in errors[0]


def test_int8_weights_leave_the_caches_alone(device, random):
    """The weights are far larger than the workspace; DeepSpeed 0.7.7 widens them into it, and
    beyond its end."""
    allocate(tokens=8)
    oracles = [Oracle(CASE), Oracle(CASE)]
    layers(random((2, 5, CASE.width)), 2, oracles)
    weight = torch.ones(768, 1024, dtype=torch.int8, device=device)
    scale, x = torch.full((768,), 0.5, device=device), torch.ones(1, 3, 1024, device=device)
    for _ in range(3):
        product = inference.vector_matmul_fp32(x, weight, False, scale, True)
        assert (product == 512).all()
        layers(random((2, 1, CASE.width)), 2, oracles)


def test_repeat_kv_cache(random):
    """Each row of a prompt becomes several rows, which then continue independently."""
    prompt = random((2, 5, CASE.width))
    layers(prompt)
    with pytest.raises(opdock.InvalidArgumentError, match="found 2 rows 3 times"):
        inference.repeat_kv_cache_fp32(2, 3)
    allocate(batch=6)
    held = inference.repeat_kv_cache_fp32(2, 3)
    oracles = [Oracle(CASE), Oracle(CASE)]
    for i, oracle in enumerate(oracles):
        oracle.step(prompt.repeat_interleave(3, 0) + i)
        assert torch.equal(exact(held[2 * i]), oracle.keys.transpose(1, 2))
        assert torch.equal(exact(held[2 * i + 1]), oracle.values.transpose(1, 2))
    for _ in range(2):
        layers(random((6, 1, CASE.width)), 2, oracles)


def test_repeat_kv_cache_without_a_prompt(random):
    with pytest.raises(opdock.InvalidArgumentError, match="found no prompt"):
        inference.repeat_kv_cache_fp32(1, 2)
    layers(random((2, 5, CASE.width)))
    inference.reset_cache()
    with pytest.raises(opdock.InvalidArgumentError, match="no completed prompt"):
        inference.repeat_kv_cache_fp32(1, 2)
