# SPDX-License-Identifier: Apache-2.0
"""Answers the extension module's questions about torch. Imported with the first torch tensor."""

import contextlib
import os
import sys
import threading

import torch


def _without_modes():
    """Returns a context in which none of torch's dispatch modes is active.

    torch's own function for that imports its fake tensors' modules, which takes a millisecond of
    the first call. Without a mode there is nothing to do."""
    try:
        counts = (
            torch._C._len_torch_dispatch_stack,
            torch._ops._len_torch_dispatch_stack_pre_dispatch,
        )
        if not any(count() for count in counts):
            return contextlib.nullcontext()
    except AttributeError:
        pass  # another torch
    from torch.utils._python_dispatch import _disable_current_modes

    return _disable_current_modes()


def samples():
    """Makes tensors in which the extension searches for the offsets of torch's internal fields: the
    dispatch key set and the autograd data.

    Returns a list of (tensor, address of its TensorImpl, its key set as an int, whether it has
    autograd data, or None if that is unknown); an empty list if this torch does not offer these.
    """
    try:
        with _without_modes(), torch.inference_mode(False), torch.enable_grad():
            cpu = {"device": "cpu"}
            tracked = torch.empty(5, requires_grad=True, **cpu)
            with torch.inference_mode():
                inference = torch.empty(2, 2, **cpu)
            tensors = [
                (torch.empty(3, **cpu), False),
                (torch.empty(2, 0, 4, dtype=torch.int32, **cpu), False),
                (torch.empty(2, 3, dtype=torch.complex64, **cpu).conj(), None),
                (torch._neg_view(torch.empty(7, **cpu)), None),
                (torch._efficientzerotensor((4,)), False),
                (inference, False),
                (tracked, True),
                (tracked.unsqueeze(0), True),  # The process's first product takes 0.15 ms.
                (torch.nn.Parameter(torch.empty(1, **cpu)), True),
            ]
            return [
                (tensor, tensor._cdata, torch._C._dispatch_keys(tensor).raw_repr(), grad)
                for tensor, grad in tensors
            ]
    except (AttributeError, ImportError, RuntimeError, TypeError):
        return []


def tracked_key():
    """Returns, as an int, the key set's bit that tensors made in inference mode lack; 0 if
    unknown."""
    try:
        bit = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView).raw_repr()
        with _without_modes(), torch.inference_mode(False):
            plain = torch.empty(1, device="cpu")
            with torch.inference_mode():
                inference = torch.empty(1, device="cpu")
        found = [bool(torch._C._dispatch_keys(x).raw_repr() & bit) for x in (plain, inference)]
        return bit if found == [True, False] else 0
    except (AttributeError, ImportError, RuntimeError, TypeError):
        return 0


def recording_keys(read):
    """Returns the dispatch keys that mark a recording thread, as bits of an int; 0 if unknown.
    torch includes one of them in each thread whose operators are traced or recorded.

    read: returns the thread's included and excluded keys as the extension reads them. The result is
    trusted only if these follow each change that torch is told to make.
    """
    try:
        included = torch._C._dispatch_tls_is_dispatch_key_included
        excluded = torch._C._dispatch_tls_is_dispatch_key_excluded
        bits = 0
        for name in ("Tracer", "Python", "PreDispatch"):
            key = torch._C._dispatch_key_parse(name)
            alone = torch._C.DispatchKeySet(key)
            bit = alone.raw_repr()

            def agrees(key=key, bit=bit):
                words = [bool(word & bit) for word in read()]
                return words == [included(key), excluded(key)]

            states = [agrees()]
            with torch._C._IncludeDispatchKeyGuard(key):
                states += [agrees(), included(key)]
            with torch._C._ExcludeDispatchKeyGuard(alone):
                states += [agrees(), excluded(key)]
            if bit.bit_count() != 1 or not all(states):
                return 0
            bits |= bit
        return bits
    except (AttributeError, RuntimeError, TypeError):
        return 0


def recorder():
    """Returns the name of the part of torch that records this thread's operators now, or None."""
    if torch.jit.is_tracing():
        tracer = torch._C._dispatch_key_parse("Tracer")
        # Inside one of torch's own operators nothing is traced.
        if not torch._C._dispatch_tls_is_dispatch_key_excluded(tracer):
            return "torch.jit.trace"
    # If a proxy mode is active, its module has been imported.
    proxies = sys.modules.get("torch.fx.experimental.proxy_tensor")
    if proxies is not None and proxies.get_proxy_mode() is not None:
        return "make_fx (a proxy mode)"
    return None


def has_own_function(kind):
    """Returns whether a tensor type overrides __torch_function__ with an enabled function."""
    for base in kind.__mro__:
        if base in torch.Tensor.__mro__:
            return False
        if "__torch_function__" in vars(base):
            return vars(base)["__torch_function__"] is not torch._C._disabled_torch_function_impl
    return False


def _functional(tensor):
    return torch._is_functional_tensor(tensor)


def _transformed(tensor):
    return torch._C._functorch.is_functorch_wrapped_tensor(tensor)


_ODD = [
    (torch.is_conj, "its conjugate bit set", "pass x.resolve_conj()"),
    (torch.is_neg, "its negative bit set", "pass x.resolve_neg()"),
    (lambda x: x._is_zerotensor(), "no memory (an all-zero tensor)", "pass x.clone()"),
    (_functional, "a functionalisation wrapper", "call outside the transform"),
    (_transformed, "a vmap or grad wrapper", "call outside torch.func's transforms"),
    (lambda x: x.is_nested, "a nested layout", "pass x.to_padded_tensor(…) or its parts"),
    (lambda x: x.is_quantized, "a quantised dtype", "pass x.dequantize()"),
    (lambda x: x.is_mkldnn, "an mkldnn layout", "pass x.to_dense()"),
    (lambda x: x.layout is not torch.strided, "a sparse layout", "pass x.to_dense()"),
    (lambda x: x.is_meta, "no memory (device meta)", "pass a tensor on a real device"),
]


def refusal(tensor):
    """Returns why the extension must not read this tensor's memory directly, or None if it may."""
    for is_odd, what, advice in _ODD:
        if is_odd(tensor):
            return f"found a torch tensor with {what}, wanted plain dense memory; {advice}"
    return None


def write_refusal(tensor):
    """Returns why a tensor must not be written here, or None: torch's rule for in-place
    operators."""
    if not tensor.is_inference() or torch.is_inference_mode_enabled():
        return None
    return (
        "found a tensor that was made in inference mode, wanted one of outside of it, as it is to "
        "be written; pass x.clone(), or call under torch.inference_mode()"
    )


#: Held while a GPU generator's offset is read and advanced, which are two calls in torch.
_generator_lock = threading.Lock()


def _renew_lock():
    global _generator_lock
    _generator_lock = threading.Lock()  # the thread that held it does not exist here


os.register_at_fork(after_in_child=_renew_lock)


def reserve_random(generator, count, device):
    """Reserves `count` 32-bit random numbers of a torch generator; None means the device's default.

    device: DLPack's (type, index). Returns (seed, offset, address of a seed in device memory or 0,
    the tensor that holds that seed or None), or a text with the problem if the generator is for
    another device. During graph capture a torch kernel draws the seed; each replay repeats that
    kernel with torch's own state. Several threads that call this get distinct numbers; torch's own
    kernels that use the same generator at the same moment may get the same numbers.
    """
    kind, index = device
    where = torch.device("cpu") if kind == 1 else torch.device("cuda", index)
    found = where if generator is None else generator.device
    if found.type != where.type or found.index not in (None, where.index):  # "cuda" has no index
        return (
            f"found a torch.Generator of {found}, wanted one of {where}; "
            f'pass torch.Generator("{where}")'
        )
    if kind == 1:  # torch's CPU generator has no position
        seed = torch.empty((), dtype=torch.int64, device=where)
        return int(seed.random_(generator=generator)), 0, 0, None
    if torch.cuda.is_current_stream_capturing():
        seed = torch.empty((), dtype=torch.int64, device=where).random_(generator=generator)
        return 0, 0, seed.data_ptr(), seed
    if generator is None:
        generator = torch.cuda.default_generators[index]
    with _generator_lock:
        offset = generator.get_offset()
        generator.set_offset(offset + (count + 3) // 4 * 4)  # torch takes multiples of 4 only
    return generator.initial_seed(), offset, 0, None
