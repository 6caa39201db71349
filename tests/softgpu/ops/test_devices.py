# SPDX-License-Identifier: Apache-2.0
"""Several software GPUs, and work that is made to wait for other work."""

FOUR = [{"arch": "sm_90"}, {"arch": "sm_90"}, {"arch": "sm_80"}, {"arch": "sm_75"}]


def test_each_device_gets_its_own_image_and_gives_its_own_results(soft):
    done = soft(
        """
        x = torch.randn(7, 300)
        found = [on(f"cuda:{i}", softmax)(x) for i in range(4)]
        show(wrong=[wrong(y, x) for y in found], same=[torch.equal(y, found[0]) for y in found])
        """,
        gpus=FOUR,
    )
    assert done.shown == {"wrong": [0] * 4, "same": [True] * 4}
    assert {load["arch"] for load in done.events("load")} == {"sm_75", "sm_80", "sm_90"}
    assert {launch["device"] for launch in done.events("launch")} == {0, 1, 2, 3}
    assert done.findings == []


def test_threads_on_four_devices(soft):
    done = soft(
        """
        import threading
        bad = []
        def work(index):
            for seed in range(5):
                x = torch.randn(20, 100 + seed, generator=torch.Generator().manual_seed(seed))
                if wrong(on(f"cuda:{index}", softmax)(x), x):
                    bad.append((index, seed))
        threads = [threading.Thread(target=work, args=(i % 4,)) for i in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        show(bad=bad)
        """,
        gpus=FOUR,
    )
    assert done.shown == {"bad": []} and done.findings == []
    assert len(done.events("launch")) == 40


def test_tensors_on_different_devices_are_refused(soft):
    done = soft(
        """
        x = torch.ones(2, 8)
        show(mask=error(softmax, move(x, "cuda:0"), mask=move(x[0], "cuda:1")),
             out=error(softmax, move(x, "cuda:0"), out=move(x, "cuda:1")))
        """,
        gpus=FOUR,
    )
    assert "'mask'" in done.shown["mask"] and "cuda:1" in done.shown["mask"]
    assert "cuda:1" in done.shown["out"]
    assert done.events("launch") == []


PENDING = """
    from opdock import _gpu
    from opdock._device_array import allocate_like, to_gpu
    gpu = _gpu.gpu("cuda")
    stream = gpu.stream()
    x = torch.randn(64, 1024)
    there = to_gpu(x, gpu, stream)  # a copy that is still under way
    {forget}
    y = to_cpu(softmax(there))
    gpu.synchronize(stream)
    show(wrong=wrong(y, x))
"""


def test_an_op_waits_for_the_stream_that_makes_its_argument(soft):
    """By the __dlpack__ handshake: the array makes the op's stream wait for its own."""
    done = soft(PENDING.format(forget=""))
    assert done.shown == {"wrong": 0} and done.findings == []


def test_an_op_that_did_not_wait_is_found(soft):
    done = soft(PENDING.format(forget="there.stream = None"), check=False)
    assert done.status != 0 or done.findings
    assert any("stream" in finding for finding in done.findings), done.stderr


def test_captured_copies_and_launches_run_when_the_graph_does(soft):
    """The driver's graphs, through the helpers of opdock.testing."""
    done = soft(
        """
        from opdock import _gpu
        from opdock._device_array import allocate_like, to_gpu
        gpu = _gpu.gpu("cuda")
        stream = gpu.stream()
        x = torch.arange(12.0).view(3, 4)
        kept = x.clone()
        there = allocate_like(x, gpu)
        graph = gpu.capture(stream, lambda: gpu.to_device(there.address, x.data_ptr(), 48, stream))
        x += 1  # read when the graph runs
        gpu.launch_graph(graph, stream)
        gpu.synchronize(stream)
        show(new=torch.equal(there.to_host(), kept + 1))
        """
    )
    assert done.shown == {"new": True} and done.findings == []
