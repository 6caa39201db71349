# SPDX-License-Identifier: Apache-2.0
"""Tests failing software GPUs of each kind: each failure gives its exception and message and no
wrong result; the process and the CPU continue to work."""

import types

import pytest

# Each driver's names of the functions that fail here, and its error codes.
CUDA = types.SimpleNamespace(
    launch="cuLaunchKernelEx",
    allocate="cuMemAlloc_v2",
    allocate_ordered="cuMemAllocAsync",
    load="cuLibraryLoadData",
    errors={
        1: "CUDA_ERROR_INVALID_VALUE",
        2: "CUDA_ERROR_OUT_OF_MEMORY",
        209: "CUDA_ERROR_NO_BINARY_FOR_GPU",
        500: "CUDA_ERROR_NOT_FOUND",
        700: "CUDA_ERROR_ILLEGAL_ADDRESS",
        701: "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
        719: "CUDA_ERROR_LAUNCH_FAILED",
    },
)
HIP = types.SimpleNamespace(
    launch="hipModuleLaunchKernel",
    allocate="hipMalloc",
    allocate_ordered="hipMallocAsync",
    load="hipModuleLoadData",
    errors={
        1: "hipErrorInvalidValue",
        2: "hipErrorOutOfMemory",
        209: "hipErrorNoBinaryForGpu",
        500: "hipErrorNotFound",
        700: "hipErrorIllegalAddress",
        701: "hipErrorLaunchOutOfResources",
        719: "hipErrorLaunchFailure",
    },
)
CALL = """
    x = torch.randn(9, 200)
    first = error(lambda: show(before=wrong(on(device, softmax)(x), x)))
    found = None
    def again():
        global found
        found = on(device, softmax)(x)
    second = error(again)
    show(first=first, second=second, after=None if found is None else wrong(found, x),
         cpu=wrong(softmax(x), x))
"""


@pytest.fixture
def names(arch):
    return HIP if arch.startswith("gfx") else CUDA


@pytest.fixture
def failing(soft, arch):
    """Returns failing(function, **rule), which calls softmax twice on a GPU whose function fails by
    the rule."""

    def run(function, **rule):
        done = soft(CALL, gpus=[{"arch": arch}], failures=[{"function": function, **rule}])
        assert done.shown["cpu"] == 0, "the CPU is as it was"
        # The results that were given were right.
        assert done.shown.get("before", 0) == 0 and done.shown["after"] in (None, 0)
        return done

    return run


# How Opdock reports each of the driver's codes.
@pytest.mark.parametrize(
    ("error", "exception"), [(2, "OutOfMemoryError"), (701, "UnsupportedError"), (1, "DeviceError")]
)
def test_a_launch_that_fails_once(failing, names, error, exception):
    done = failing(names.launch, call=1, error=error)
    assert done.shown["first"].startswith(exception), done.shown
    assert names.errors[error] in done.shown["first"] and "softmax" in done.shown["first"]
    assert done.shown["second"] is None and done.shown["after"] == 0


@pytest.mark.parametrize("call", [1, 2])
def test_a_sticky_error_stays(failing, names, call):
    done = failing(names.launch, call=call, error=719, sticky=True)
    assert (done.shown["first"] is None) == (call == 2)
    # Once the device is lost, even the copy of the argument fails.
    at = done.shown["first" if call == 1 else "second"]
    assert at.startswith("DeviceLostError"), done.shown
    assert all(names.errors[719] in text for text in (at, done.shown["second"]))


@pytest.mark.parametrize("call", [1, 2])
@pytest.mark.parametrize("whose", ["allocate", "allocate_ordered"])
def test_out_of_memory_at_the_nth_allocation(failing, names, whose, call):
    """The failing allocation is one of opdock.testing (an argument), or one of the host in a
    stream's order (a result)."""
    done = failing(getattr(names, whose), call=call, error=2)
    shown = [done.shown["first"], done.shown["second"]]
    assert [text is None for text in shown] == [call == 2, call == 1], shown
    assert names.errors[2] in shown[call - 1]
    if whose == "allocate_ordered":
        assert shown[call - 1].startswith("OutOfMemoryError"), shown


def test_a_device_that_is_too_small(soft, arch):
    done = soft(
        """
        x = torch.randn(4, 1000)
        small = error(lambda: wrong(on(device, softmax)(x), x))
        large = error(on(device, softmax), torch.randn(4, 40000))
        show(small=small, large=large, again=error(on(device, softmax), x))
        """,
        gpus=[{"arch": arch, "memory": 1_000_000}],
    )
    assert done.shown["small"] is None and done.shown["again"] is None
    assert done.shown["large"].startswith("OutOfMemoryError"), done.shown


def test_an_image_that_does_not_load(failing, names):
    done = failing(names.load, error=209)
    assert done.shown["first"] and done.shown["second"]
    assert names.errors[209] in done.shown["first"]


def test_a_kernel_that_nothing_is_known_of_fails(soft, arch, names, tmp_path):
    """An image whose source is not in the code folder is not silently skipped; the caller's message
    gives the reason."""
    done = soft(
        """
        x = torch.randn(9, 200)
        show(error=error(on(device, softmax), x))
        """,
        gpus=[{"arch": arch}],
        code=tmp_path,
        variables={"OPDOCK_JIT_KEEP": ""},
    )
    assert names.errors[500] in done.shown["error"]
    for text in (done.shown["error"], done.stderr):
        assert "is not executed: cannot open" in text and "softmax" in text, text


WILD = """
    x = torch.randn(3, 64)
    kernel = opdock.compile('''
    #include "opdock/device.cuh"
    using namespace opdock;
    extern "C" OPDOCK_KERNEL(64) wild(float* x, int at) {
      if (thread_index() == 5) x[at] = 1;
    }''', device=device).kernel("wild")
    there = move(x, device)
    called = error(kernel, 1, 64, there, int(os.environ["AT"]))  # waits for the device
    show(called=called, read=error(to_cpu, there), second=error(on(device, softmax), x),
         cpu=wrong(softmax(x), x))
"""


def test_a_kernel_that_writes_outside_of_its_memory(soft, arch, names):
    """An illegal access is reported as a GPU would do it: at the next synchronisation, and for
    good."""
    gpus = [{"arch": arch}]
    good = soft(WILD, gpus=gpus, variables={"AT": "191"})
    assert good.shown == {"called": None, "read": None, "second": None, "cpu": 0}
    assert good.findings == []
    bad = soft(WILD, gpus=gpus, variables={"AT": "192"})
    assert bad.shown["cpu"] == 0
    assert bad.shown["called"].startswith("DeviceLostError: wild(): waiting for the device failed")
    assert f"{names.errors[700]} (700)" in bad.shown["called"]
    assert names.errors[700] in bad.shown["read"]
    assert names.errors[700] in bad.shown["second"]
    (finding, *_) = bad.findings
    assert "wild" in finding and "program.cu:5" in finding, finding


def test_too_much_static_shared_memory_does_not_compile(soft, arch):
    """Shared memory up to a block's limit compiles and runs: 64 KiB on AMD, 227 KiB in code for
    sm_90a, which is what is compiled for a device that is present."""
    most = 64 * 1024 if arch.startswith("gfx") else 227 * 1024
    done = soft(
        """
        def run(bytes):
            kernel = opdock.compile('''
            #include "opdock/device.cuh"
            using namespace opdock;
            extern "C" OPDOCK_KERNEL(64) tile(float* x) {
              OPDOCK_SHARED(float, tile, COUNT);
              for (int i = thread_index(); i < COUNT; i += block_threads()) tile[i] = x[i % 64];
              block_barrier();
              x[thread_index()] = tile[COUNT - 1 - thread_index()];
            }'''.replace("COUNT", str(bytes // 4)), device=device).kernel("tile")
            there = move(torch.arange(64.0), device)
            kernel(1, 64, there)
            return to_cpu(there).tolist()
        show(good=run(MOST), bad=error(run, MOST + 4))
        """.replace("MOST", str(most)),
        gpus=[{"arch": arch}],
    )
    assert done.shown["good"] == [float(i) for i in reversed(range(64))], done.findings
    assert done.shown["bad"].startswith("InvalidArgumentError"), done.shown["bad"]
    assert done.findings == []
