# SPDX-License-Identifier: Apache-2.0
"""Tests where ops that draw random numbers get them from, by the masks of dropout. The plugin's own
tests check which elements it keeps for a seed and an offset."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import opdock

SIZE = 1001  # no multiple of a block of numbers
ONES = np.ones(SIZE, np.float32)


def mask(x=ONES, **options):
    """Returns which elements a call keeps, as bytes: two calls with different numbers differ."""
    return np.asarray(opdock.ops.dropout(x, **options)[1]).tobytes()


def range_of(seed, offset, size=SIZE):
    return mask(np.ones(size, np.float32), generator=(seed, offset))


def test_a_seed_is_the_pair_with_offset_0():
    assert mask(generator=7) == range_of(7, 0) != range_of(7, 1)
    assert range_of(7, 0)[5:] == range_of(7, 5)[:-5]
    assert mask(generator=7) == mask(generator=7)
    assert mask(generator=-1) == range_of(2**64 - 1, 0)
    assert mask(generator=np.int64(7)) == range_of(7, 0)
    assert mask(generator=(np.uint8(7), np.int64(3))) == range_of(7, 3)
    # The sequence wraps around after 2^64.
    assert range_of(7, 2**64 - 2)[2:] == range_of(7, 0)[:-2]


def test_a_generator_advances_by_what_a_call_draws():
    generator = opdock.Generator(7, 5)
    assert mask(generator=generator) == range_of(7, 5)
    assert (generator.seed, generator.offset) == (7, 5 + SIZE)
    assert mask(generator=generator) == range_of(7, 5 + SIZE)
    for p in (0.0, 1.0):  # the numbers are drawn although the result does not depend on them
        mask(p=p, generator=generator)
    assert generator.offset == 5 + 4 * SIZE
    mask(np.ones((3, 0), np.float32), generator=generator)
    with pytest.raises(opdock.InvalidArgumentError, match="'p'"):
        mask(p=2.0, generator=generator)
    assert generator.offset == 5 + 4 * SIZE
    generator.offset = 5
    assert mask(generator=generator) == range_of(7, 5)
    generator.seed, generator.offset = -1, np.int64(2)
    assert (generator.seed, generator.offset) == (2**64 - 1, 2)
    assert mask(generator=generator) == range_of(-1, 2)


@pytest.mark.parametrize("wrong", ["7", 1.5, True, np.True_, None, np.array(7)])
def test_what_is_no_seed_is_refused(wrong):
    generator = opdock.Generator(7)

    def set_seed():
        generator.seed = wrong

    for name, call in [
        (r"manual_seed\(\): argument 'seed'", lambda: opdock.manual_seed(wrong)),
        (r"Generator\(\): argument 'seed'", lambda: opdock.Generator(wrong)),
        (r"Generator\(\): argument 'offset'", lambda: opdock.Generator(1, wrong)),
        (r"Generator\.seed", set_seed),
    ]:
        with pytest.raises(opdock.ArgumentError, match=name + ".*wanted an int"):
            call()
    with pytest.raises(AttributeError, match="deleted"):
        del generator.offset
    assert (generator.seed, generator.offset) == (7, 0)


def test_manual_seed_restarts_what_numpy_arrays_draw_from():
    opdock.manual_seed(11)
    first, second = mask(), mask()
    assert (first, second) == (range_of(11, 0), range_of(11, SIZE))
    mask(generator=3)  # does not advance the default generator
    assert mask() == range_of(11, 2 * SIZE)
    opdock.manual_seed(11)
    assert (mask(), mask()) == (first, second)
    opdock.manual_seed(12)
    assert mask() == range_of(12, 0) != first


def test_sixteen_threads_draw_from_one_generator():
    """Each call has a range of its own, and together they are one range without a gap."""
    size, calls = 16_387, 12  # 64 KiB and more, so that calls run without the GIL
    generator = opdock.Generator(99, 1)
    x = np.ones(size, np.float32)
    found = [[] for _ in range(16)]
    begin = threading.Barrier(len(found))

    def work(own):
        begin.wait()
        for _ in range(calls):
            own.append(mask(x, generator=generator))

    threads = [threading.Thread(target=work, args=(own,)) for own in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    count = len(found) * calls
    assert generator.offset == 1 + count * size
    whole = range_of(99, 1, count * size)
    wanted = [whole[i * size : (i + 1) * size] for i in range(count)]
    assert sorted(one for own in found for one in own) == sorted(wanted)


@pytest.mark.parametrize(
    "wrong", ["7", 1.5, True, np.True_, np.array(7), (1,), (1, 2, 3), (1, "2"), (True, 1), [1, 2]]
)
def test_what_is_no_generator_is_refused(wrong):
    with pytest.raises(opdock.ArgumentError, match=r"'generator'.*opdock\.Generator"):
        mask(generator=wrong)


def test_torch_manual_seed_restarts_what_its_tensors_draw_from(torch):
    x = torch.ones(SIZE)
    torch.manual_seed(5)
    first, second = mask(x), mask(x)
    assert first != second
    torch.manual_seed(5)
    assert (mask(x), mask(x)) == (first, second)
    torch.manual_seed(6)
    assert mask(x) != first
    # Opdock's own generator is independent.
    opdock.manual_seed(5)
    mask(x)
    assert mask() == range_of(5, 0)
    assert mask(x, generator=(5, 3)) == range_of(5, 3)


def test_a_generator_of_torchs(torch):
    generator = torch.Generator().manual_seed(5)
    for x in (torch.ones(SIZE), ONES):
        generator.manual_seed(5)
        first, second = mask(x, generator=generator), mask(x, generator=generator)
        assert first != second
        generator.manual_seed(5)
        torch.manual_seed(1)  # seeds another generator
        assert mask(x, generator=generator) == first


def test_the_seed_is_drawn_on_the_cpu_whatever_the_default_device(torch):
    x = torch.ones(SIZE)
    torch.manual_seed(5)
    expected = mask(x)
    torch.manual_seed(5)
    with torch.device("meta"):
        kept = opdock.ops.dropout(x)[1]
    assert np.asarray(kept).tobytes() == expected


class SlowGenerator:
    """A generator of a GPU, like torch's; reading its offset lets other threads run."""

    def __init__(self, torch, device="cuda:0"):
        self.device = torch.device(device)
        self.offset = 0

    def initial_seed(self):
        return 1

    def get_offset(self):
        offset = self.offset
        time.sleep(0.001)
        return offset

    def set_offset(self, offset):
        self.offset = offset


def test_ranges_of_a_gpus_generator_do_not_overlap(torch, monkeypatch):
    from opdock._torch import reserve_random

    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    generator = SlowGenerator(torch, "cuda")  # the device as torch.Generator("cuda") names it
    with ThreadPoolExecutor(8) as pool:
        ranges = list(pool.map(lambda _: reserve_random(generator, 6, (2, 0)), range(40)))
    assert sorted(offset for _, offset, _, _ in ranges) == [8 * i for i in range(40)]


def test_a_generator_of_torchs_for_another_device_is_refused(torch):
    from opdock._torch import reserve_random

    for device, wanted in [((1, 0), "cpu"), ((2, 1), "cuda:1"), ((10, 1), "cuda:1")]:
        assert reserve_random(SlowGenerator(torch), 1, device) == (
            f"found a torch.Generator of cuda:0, wanted one of {wanted}; "
            f'pass torch.Generator("{wanted}")'
        )


@pytest.mark.gpu
def test_a_cpu_generator_is_refused_for_the_gpu(cuda):
    with pytest.raises(
        opdock.InvalidArgumentError,
        match=r"dropout\(\): argument 'generator': found a torch.Generator of cpu, "
        r"wanted one of cuda:0",
    ):
        opdock.ops.dropout(cuda.ones(SIZE, device="cuda"), generator=cuda.Generator())


@pytest.mark.gpu
def test_torch_manual_seed_on_the_gpu(cuda):
    x = cuda.ones(SIZE, device="cuda")

    def draw(**options):
        return opdock.ops.dropout(x, **options)[1].cpu().numpy().tobytes()

    cuda.manual_seed(5)
    first, second = draw(), draw()
    assert first != second
    assert (first, second) == (range_of(5, 0), range_of(5, (SIZE + 3) // 4 * 4))
    cuda.manual_seed(5)
    cuda.rand(3, device="cuda")  # takes some of the numbers
    assert draw() != first
    assert draw(generator=(5, 3)) == range_of(5, 3)
    generator = cuda.Generator("cuda").manual_seed(5)
    assert (draw(generator=generator), draw(generator=generator)) == (first, second)
    opdock.manual_seed(5)
    cuda.manual_seed(6)
    assert draw() == range_of(6, 0)


@pytest.mark.gpu
def test_a_replayed_graph_draws_new_numbers(cuda):
    dropout = opdock.load("dropout", device="cuda:0")
    x = cuda.ones(100_001, device="cuda")
    cuda.cuda.synchronize()
    graph = cuda.cuda.CUDAGraph()
    with cuda.cuda.graph(graph):
        y, kept = dropout(x, 0.25)
        z, kept_too = dropout(x, 0.25)

    def replay():
        graph.replay()
        cuda.cuda.synchronize()
        assert cuda.equal(y, kept / 0.75) and cuda.equal(z, kept_too / 0.75)
        assert abs(kept.double().mean().item() - 0.75) < 0.01
        return kept.clone(), kept_too.clone()

    cuda.manual_seed(5)
    masks = [*replay(), *replay()]
    for i, one in enumerate(masks):
        for other in masks[:i]:
            assert not cuda.equal(one, other)
    cuda.manual_seed(5)
    again = [*replay(), *replay()]
    assert all(cuda.equal(one, other) for one, other in zip(masks, again, strict=True))


@pytest.mark.gpu
def test_a_graph_with_a_seed_of_the_host_is_refused(cuda):
    dropout = opdock.load("dropout", device="cuda:0")
    x = cuda.ones(8, device="cuda")
    cuda.cuda.synchronize()
    for generator in (5, (5, 0), opdock.Generator(5)):
        with cuda.cuda.graph(cuda.cuda.CUDAGraph()):
            with pytest.raises(opdock.UnsupportedError, match="device_seed"):
                dropout(x, generator=generator)
            x + 1
