# SPDX-License-Identifier: Apache-2.0
"""A software GPU that fails: each failure gives its exception and its message, and no result that
is wrong; the process lives on, and so does the CPU."""

import pytest

LAUNCH = "cuLaunchKernel"
CALL = """
    x = torch.randn(9, 200)
    first = error(lambda: show(before=wrong(on("cuda", softmax)(x), x)))
    found = None
    def again():
        global found
        found = on("cuda", softmax)(x)
    second = error(again)
    show(first=first, second=second, after=None if found is None else wrong(found, x),
         cpu=wrong(softmax(x), x))
"""


def failing(soft, function, **rule):
    """Two calls of softmax on a GPU whose `function` fails as the rule says."""
    done = soft(CALL, failures=[{"function": function, **rule}])
    assert done.shown["cpu"] == 0, "the CPU is as it was"
    # What was given was right.
    assert done.shown.get("before", 0) == 0 and done.shown["after"] in (None, 0)
    return done


# What opdock makes of CUDA's code.
@pytest.mark.parametrize(
    ("error", "exception", "name"),
    [
        (2, "OutOfMemoryError", "CUDA_ERROR_OUT_OF_MEMORY"),
        (701, "UnsupportedError", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"),
        (1, "DeviceError", "CUDA_ERROR_INVALID_VALUE"),
    ],
)
def test_a_launch_that_fails_once(soft, error, exception, name):
    done = failing(soft, LAUNCH, call=1, error=error)
    assert done.shown["first"].startswith(exception), done.shown
    assert name in done.shown["first"] and "softmax" in done.shown["first"]
    assert done.shown["second"] is None and done.shown["after"] == 0


@pytest.mark.parametrize("call", [1, 2])
def test_a_sticky_error_stays(soft, call):
    done = failing(soft, LAUNCH, call=call, error=719, sticky=True)
    assert (done.shown["first"] is None) == (call == 2)
    # Once it is lost, even the copy of the argument fails.
    at = done.shown["first" if call == 1 else "second"]
    assert at.startswith("DeviceLostError"), done.shown
    assert all("CUDA_ERROR_LAUNCH_FAILED" in text for text in (at, done.shown["second"]))


@pytest.mark.parametrize("call", [1, 2, 3, 4])
def test_out_of_memory_at_the_nth_allocation(soft, call):
    """The driver's own allocations: those of opdock.testing (an argument) and of the host (a
    result, a workspace)."""
    done = failing(soft, "cuMemAlloc_v2", call=call, error=2)
    shown = [text for text in (done.shown["first"], done.shown["second"]) if text]
    assert len(shown) <= 1
    assert all("CUDA_ERROR_OUT_OF_MEMORY" in text for text in shown), shown


def test_a_device_that_is_too_small(soft):
    done = soft(
        """
        x = torch.randn(4, 1000)
        small = error(lambda: wrong(on("cuda", softmax)(x), x))
        large = error(on("cuda", softmax), torch.randn(4, 40000))
        show(small=small, large=large, again=error(on("cuda", softmax), x))
        """,
        gpus=[{"arch": "sm_90", "memory": 1_000_000}],
    )
    assert done.shown["small"] is None and done.shown["again"] is None
    assert done.shown["large"].startswith("OutOfMemoryError"), done.shown


def test_an_image_that_does_not_load(soft):
    done = failing(soft, "cuLibraryLoadData", error=209)
    assert done.shown["first"] and done.shown["second"]
    assert "CUDA_ERROR_NO_BINARY_FOR_GPU" in done.shown["first"]


def test_a_kernel_that_nothing_is_known_of_fails(soft, tmp_path):
    """An image whose source the code folder does not have is not silently left out."""
    done = soft(
        """
        x = torch.randn(9, 200)
        show(error=error(on("cuda", softmax), x))
        """,
        code=tmp_path,
        variables={"OPDOCK_JIT_KEEP": ""},
    )
    assert "CUDA_ERROR_NOT_FOUND" in done.shown["error"]
    assert "is not executed" in done.stderr and "softmax" in done.stderr


WILD = """
    x = torch.randn(3, 64)
    kernel = opdock.compile('''
    #include "opdock/device.cuh"
    using namespace opdock;
    extern "C" OPDOCK_KERNEL(64) wild(float* x, int at) {
      if (thread_index() == 5) x[at] = 1;
    }''').kernel("wild")
    there = move(x, "cuda")
    called = error(kernel, 1, 64, there, int(os.environ["AT"]))  # waits for the device
    show(called=called, read=error(to_cpu, there), second=error(on("cuda", softmax), x),
         cpu=wrong(softmax(x), x))
"""


def test_a_kernel_that_writes_outside_of_its_memory(soft):
    """An illegal access, as a GPU would report it: at the next synchronisation, and for good."""
    good = soft(WILD, variables={"AT": "191"})
    assert good.shown == {"called": None, "read": None, "second": None, "cpu": 0}
    assert good.findings == []
    bad = soft(WILD, variables={"AT": "192"})
    assert bad.shown["cpu"] == 0
    assert bad.shown["called"].startswith("DeviceLostError: wild(): waiting for the device failed")
    assert "CUDA_ERROR_ILLEGAL_ADDRESS (700)" in bad.shown["called"]
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in bad.shown["read"]
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in bad.shown["second"]
    (finding, *_) = bad.findings
    assert "wild" in finding and "program.cu:5" in finding, finding
