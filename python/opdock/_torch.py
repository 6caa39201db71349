# SPDX-License-Identifier: Apache-2.0
"""What the extension module asks torch about. Imported only once a torch tensor has been seen."""

import os
import sys
import threading

import torch


def samples():
    """Tensors in which the extension looks for torch's key set and its autograd data.

    Returns a list of (tensor, address of its implementation, its key set as an int, whether it has
    autograd data or None if that is not known), or an empty list where this torch does not tell.
    """
    try:
        from torch.utils._python_dispatch import _disable_current_modes

        with _disable_current_modes(), torch.inference_mode(False), torch.enable_grad():
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
                (tracked * 2, True),
                (torch.nn.Parameter(torch.empty(1, **cpu)), True),
            ]
            return [
                (tensor, tensor._cdata, torch._C._dispatch_keys(tensor).raw_repr(), grad)
                for tensor, grad in tensors
            ]
    except (AttributeError, ImportError, RuntimeError, TypeError):
        return []


def tracked_key():
    """The bit of a key set that tensors made in inference mode lack, as an int; 0: not known."""
    try:
        from torch.utils._python_dispatch import _disable_current_modes

        bit = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView).raw_repr()
        with _disable_current_modes(), torch.inference_mode(False):
            plain = torch.empty(1, device="cpu")
            with torch.inference_mode():
                inference = torch.empty(1, device="cpu")
        found = [bool(torch._C._dispatch_keys(x).raw_repr() & bit) for x in (plain, inference)]
        return bit if found == [True, False] else 0
    except (AttributeError, ImportError, RuntimeError, TypeError):
        return 0


def recording_keys(read):
    """The keys, as bits of an int, of which torch includes one in a thread that records; 0: not
    known.

    read: gives the thread's included keys and the excluded ones as the extension reads them, which
    must change as torch is told to change them.
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
    """What of torch's records the operators of this thread now, as a name, or None."""
    if torch.jit.is_tracing():
        tracer = torch._C._dispatch_key_parse("Tracer")
        # Within an operator of its own nothing is traced.
        if not torch._C._dispatch_tls_is_dispatch_key_excluded(tracer):
            return "torch.jit.trace"
    # Where a proxy mode is active, its module has been imported.
    proxies = sys.modules.get("torch.fx.experimental.proxy_tensor")
    if proxies is not None and proxies.get_proxy_mode() is not None:
        return "make_fx (a proxy mode)"
    return None


def has_own_function(kind):
    """Whether a type of tensors has a __torch_function__ of its own, and not the disabled one."""
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
    """Why the extension must not read this tensor's memory as it lies there, or None."""
    for is_odd, what, advice in _ODD:
        if is_odd(tensor):
            return f"found a torch tensor with {what}, wanted plain dense memory; {advice}"
    return None


def write_refusal(tensor):
    """Why a tensor must not be written here, or None: torch's own rule for in-place operators."""
    if not tensor.is_inference() or torch.is_inference_mode_enabled():
        return None
    return (
        "found a tensor that was made in inference mode, wanted one of outside of it, as it is to "
        "be written; pass x.clone(), or call under torch.inference_mode()"
    )


#: Held while a GPU's generator is read and moved on, which torch offers as two calls.
_moving = threading.Lock()


def _renew_lock():
    global _moving
    _moving = threading.Lock()  # a thread that held it has not come along


os.register_at_fork(after_in_child=_renew_lock)


def reserve_random(generator, count, device):
    """Takes `count` 32-bit numbers from a generator of torch's; None: that of the device.

    device: DLPack's pair. Returns (seed, offset, address of a seed in the device's memory or 0, the
    tensor that it lies in or None); a text with what is wrong for a generator of another device.
    While a graph is being captured the seed is drawn by a kernel of torch's, which the graph
    repeats with torch's own state on each replay. Calls of several threads get numbers of their
    own; kernels of torch's that draw from the same generator at the same moment may get them too.
    """
    kind, index = device
    where = torch.device("cpu") if kind == 1 else torch.device("cuda", index)
    found = where if generator is None else generator.device
    if found.type != where.type or found.index not in (None, where.index):  # "cuda" has no index
        return (
            f"found a torch.Generator of {found}, wanted one of {where}; "
            f'pass torch.Generator("{where}")'
        )
    if kind == 1:  # torch's generator there has no position
        seed = torch.empty((), dtype=torch.int64, device=where)
        return int(seed.random_(generator=generator)), 0, 0, None
    if torch.cuda.is_current_stream_capturing():
        seed = torch.empty((), dtype=torch.int64, device=where).random_(generator=generator)
        return 0, 0, seed.data_ptr(), seed
    if generator is None:
        generator = torch.cuda.default_generators[index]
    with _moving:
        offset = generator.get_offset()
        generator.set_offset(offset + (count + 3) // 4 * 4)  # torch takes multiples of 4 only
    return generator.initial_seed(), offset, 0, None
