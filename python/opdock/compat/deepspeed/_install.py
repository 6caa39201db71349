# SPDX-License-Identifier: Apache-2.0
"""Makes an unmodified DeepSpeed use Opdock, before or after it is imported, without changing files.

The methods of DeepSpeed's own builder classes are replaced, so it does not matter which builders
were imported or created before. Classes that are defined later are caught by the base class's
__init_subclass__.
"""

import contextlib
import functools
import importlib
import importlib.machinery
import importlib.metadata
import os
import re
import sys
import threading

from opdock.compat.deepspeed import _environment
from opdock.compat.deepspeed._archs import default_list
from opdock.compat.deepspeed._cuda import CUDAOpBuilder
from opdock.compat.deepspeed._ops import BUILDERS
from opdock.compat.deepspeed._own import is_installed, is_loading, no_stale_lock
from opdock.compat.deepspeed._plugin_ops import SERVED
from opdock.compat.deepspeed._say import say, say_once
from opdock.compat.deepspeed._served import say_own
from opdock.compat.deepspeed._verdict import Verdict, module_of, stand_in, verdict
from opdock.compat.deepspeed._versions import cuda_minor_mismatch_ok

# DeepSpeed's setup.py imports the builders as "op_builder".
_PACKAGES = ("deepspeed.ops.op_builder", "op_builder")
_BASES = tuple(f"{package}.builder" for package in _PACKAGES)
_VERSIONS = "deepspeed.git_version_info"
_LAYERS = "deepspeed.model_implementations.transformers.ds_transformer"

# Guards the variables below and the changes to DeepSpeed's classes: hold it to make or undo one. It
# is recursive because a change may cause another, when it defines a class.
_lock = threading.RLock()
_finder = None
_undo = []  # functions that each undo one change, in the order of the changes
_excluded = frozenset()


def _renew_lock():
    """Replaces the lock in a forked child, where the thread that may have held it does not
    exist."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


def _is_theirs(kind):
    """Returns whether the class is one of DeepSpeed's own and not a user's."""
    return any(kind.__module__ == p or kind.__module__.startswith(f"{p}.") for p in _PACKAGES)


def _served(builder):
    """Returns the Verdict on one of DeepSpeed's own builders; None for a user's builder."""
    if not _is_theirs(type(builder)):
        return None
    if builder.name in _excluded or builder.name in _environment.excluded():
        return Verdict(False, "it is excluded")
    if builder.name == "pin_memory" and is_loading():
        # DeepSpeed's own gds and async_io look for a symbol in the module that was compiled.
        return Verdict(False, "another op of DeepSpeed's own needs its own")
    return verdict(builder.name)


def _has_module(name):
    """Returns whether load() gives Opdock's module of the op: over a plugin or its references."""
    found = verdict(name)
    return found.serves or found.stands_in


def _verbose(arguments, named, otherwise=False):
    """Returns the value of `verbose`, the only argument of these methods of DeepSpeed."""
    return named.get("verbose", arguments[0] if arguments else otherwise)


def _is_compatible(original, builder, *arguments, **named):
    found = _served(builder)
    if found is not None and found.serves:
        builder.error_log = None
        return True
    if found is not None and builder.name in SERVED and _verbose(arguments, named):
        say_once(("verdict", builder.name), f"{builder.name}: {found.text}")
    if found is not None and found.reference is not None and not is_installed(builder):
        builder.error_log = f"{builder.name}: {found.text}"
        return False
    return original(builder, *arguments, **named)


def _load(original, builder, *arguments, **named):
    found = _served(builder)
    if found is None:
        return original(builder, *arguments, **named)
    if found.serves:
        if _verbose(arguments, named):
            say_once(("served", builder.name), f"{builder.name}: served by {found.text}")
        return module_of(builder.name)
    if found.reference is not None and not is_installed(builder):
        return stand_in(builder.name, found)
    say_own(builder.name, found.text)
    with no_stale_lock():
        return original(builder, *arguments, **named)


def _jit_load(original, builder, *arguments, **named):
    if _is_theirs(type(builder)):
        return _load(original, builder, *arguments, **named)
    # A user's builder that derives from DeepSpeed's base class.
    from opdock.compat.deepspeed._jit import jit_load

    return jit_load(builder, _verbose(arguments, named, True))


def _compute_capability_args(original, builder, *arguments, **named):
    """Uses Opdock's method for users' builders, and for DeepSpeed's own ones only if
    TORCH_CUDA_ARCH_LIST has architectures such as 9.0a, which DeepSpeed's method does not know."""
    is_theirs = _is_theirs(type(builder))
    if is_theirs and not re.search(r"\d[af]", os.environ.get("TORCH_CUDA_ARCH_LIST", "")):
        return original(builder, *arguments, **named)
    found = CUDAOpBuilder.compute_capability_args(builder, *arguments, **named)
    # For DeepSpeed's own builders torch's JIT build reads the list itself.
    return [] if is_theirs and builder.jit_mode else found


_REPLACED = {
    "compute_capability_args": _compute_capability_args,
    "is_compatible": _is_compatible,
    "load": _load,
    "jit_load": _jit_load,
}


def _replace(kind):
    """Replaces the methods that the class itself defines by Opdock's. The caller holds the lock."""
    for name, ours in _REPLACED.items():
        original = vars(kind).get(name)
        if not callable(original) or hasattr(original, "_opdock_original"):
            continue
        if not _is_theirs(kind):
            continue  # methods that a user has written stay

        def method(self, *arguments, _ours=ours, _original=original, **named):
            return _ours(_original, self, *arguments, **named)

        functools.update_wrapper(method, original)
        method._opdock_original = original
        setattr(kind, name, method)
        _undo.append(functools.partial(setattr, kind, name, original))


def _all_below(kind):
    yield kind
    for below in kind.__subclasses__():
        yield from _all_below(below)


def _patch_base(module):
    """Replaces the methods of DeepSpeed's base class and all subclasses, also those defined
    later."""
    base = module.OpBuilder
    before = vars(base).get("__init_subclass__")

    def meet(cls, **named):
        super(base, cls).__init_subclass__(**named)
        with _lock:
            if _finder is not None:
                _replace(cls)

    for kind in _all_below(base):
        _replace(kind)
    base.__init_subclass__ = classmethod(meet)
    if before is None:
        _undo.append(lambda: delattr(base, "__init_subclass__"))
    else:
        _undo.append(lambda: setattr(base, "__init_subclass__", before))
    # With CUDA 13 DeepSpeed's function names architectures that nvcc no longer supports, and its
    # table of versions that go together lacks 12.7 and all of 13.
    for name, ours in (
        ("get_default_compute_capabilities", default_list),
        ("cuda_minor_mismatch_ok", cuda_minor_mismatch_ok),
    ):
        theirs = getattr(module, name, None)
        if theirs is not None:
            setattr(module, name, ours)
            _undo.append(functools.partial(setattr, module, name, theirs))


def _patch_versions(module):
    """Marks the ops that Opdock serves as installed: ds_report and setup.py's checks read this."""
    # Not pin_memory: where DeepSpeed's own gds loads DeepSpeed's, that would not be compiled.
    ours = [name for name in SERVED if name != "pin_memory"]
    names = [n for n in ours if n in module.installed_ops and n not in _excluded]
    names = [n for n in names if n not in _environment.excluded() and verdict(n).serves]
    before = {name: module.installed_ops[name] for name in names}
    module.installed_ops.update(dict.fromkeys(names, True))
    _undo.append(lambda: module.installed_ops.update(before))


def _patch_package(module):
    """Replaces builders that DeepSpeed does not have for its accelerator, such as the inference
    functions on the CPU: Opdock's builder takes the place of the one that raises, in each module
    that imported it."""
    for class_name, ours in BUILDERS.items():
        theirs, name = getattr(module, class_name, None), ours.NAME
        if getattr(theirs, "__name__", None) != "NotImplementedBuilder" or name not in SERVED:
            continue
        if name in _excluded or name in _environment.excluded() or not _has_module(name):
            continue
        _swap(class_name, theirs, ours)
        _undo.append(functools.partial(_swap, class_name, ours, theirs))


def _patch_layers(module):
    """Gives each injected model its own workspace."""
    from opdock.compat.deepspeed import _models

    name = "transformer_inference"
    if name not in _excluded and name not in _environment.excluded() and _has_module(name):
        _undo.append(_models.patch(module))


def _swap(class_name, old, new):
    """Replaces `old` by `new` under the name `class_name` in each module of DeepSpeed."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "deepspeed" and vars(module).get(class_name) is old:
            setattr(module, class_name, new)


_PATCHES = {
    **dict.fromkeys(_BASES, _patch_base),
    _PACKAGES[0]: _patch_package,
    _VERSIONS: _patch_versions,
    _LAYERS: _patch_layers,
}


class _Loader:
    """Wraps a module's loader: patches the module after it was executed."""

    def __init__(self, loader):
        self._loader = loader

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        self._loader.exec_module(module)
        with _lock:
            if _finder is not None:  # else uninstall() ran meanwhile
                _patch(module)


# DeepSpeed 0.7.7's modules of sparse attention that need Triton 1.0.0, each with its class
_NEED_TRITON = {
    "deepspeed.ops.sparse_attention.matmul": "MatMul",
    "deepspeed.ops.sparse_attention.softmax": "Softmax",
}


class _BlockSparse:
    """A loader of a module in the place of one that needs Triton 1.0.0."""

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        from opdock.compat.deepspeed import _block_sparse

        name = _NEED_TRITON[module.__name__]
        setattr(module, name, getattr(_block_sparse, name))


def _needs_ours(name, path):
    """Returns whether the module is one of DeepSpeed's that cannot be imported without Triton 1.0.0
    here."""
    if name not in _NEED_TRITON or "sparse_attn" in _excluded | _environment.excluded():
        return False
    if importlib.machinery.PathFinder.find_spec(name, path) is None:
        return False  # a newer DeepSpeed, which has no such module
    try:
        return importlib.metadata.version("triton") != "1.0.0"
    except importlib.metadata.PackageNotFoundError:
        return True


class _Finder:
    """A meta path finder that wraps the loaders of the modules to patch."""

    def find_spec(self, name, path=None, target=None):
        if _needs_ours(name, path):
            return importlib.machinery.ModuleSpec(name, _BlockSparse())
        if name not in _PATCHES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


_patched = set()  # names of modules


def _patch(module):
    """Patches one of DeepSpeed's modules, once. If the module does not have the expected contents,
    it stays unchanged and a line is printed. The caller holds the lock."""
    if module.__name__ in _patched:
        return
    _patched.add(module.__name__)
    try:
        _PATCHES[module.__name__](module)
    except Exception as error:
        say(
            f"{module.__name__} is not as Opdock knows it, and stays as it is: "
            f"{type(error).__name__}: {error}; DeepSpeed's own builders serve"
        )


def _is_being_imported(module):
    return getattr(getattr(module, "__spec__", None), "_initializing", False)


def install(exclude=()):
    """Makes DeepSpeed's builders use Opdock's plugins first. Does nothing if it is already in
    effect.

    exclude: names of ops to leave to DeepSpeed, in addition to those in OPDOCK_DEEPSPEED_EXCLUDE.
    DeepSpeed may be imported before or later, or may not be installed. Any thread.
    """
    global _finder, _excluded
    with _lock:
        if _finder is not None:
            return
        _finder = _Finder()
        _excluded = frozenset([exclude] if isinstance(exclude, str) else exclude)
        sys.meta_path.insert(0, _finder)
        there = [name for name in _PATCHES if name in sys.modules]
        half = [name for name in there if _is_being_imported(sys.modules[name])]
        for name in there:
            if name not in half:
                _patch(sys.modules[name])
    for name in half:  # modules that another thread is importing; it may need the lock
        with contextlib.suppress(ImportError):
            module = importlib.import_module(name)
            with _lock:
                if _finder is not None:
                    _patch(module)


def uninstall():
    """Undoes install(). Modules of ops that were loaded stay as they are.

    If undoing one change raises, the others are still undone, and the first error is raised at the
    end. Any thread.
    """
    global _finder, _excluded
    errors = []
    with _lock:
        if _finder is None and not _undo:
            return
        if _finder in sys.meta_path:
            sys.meta_path.remove(_finder)
        _finder, _excluded = None, frozenset()
        _patched.clear()
        while _undo:
            try:
                _undo.pop()()
            except Exception as error:
                errors.append(error)
    if errors:
        raise errors[0]


def installed():
    """Returns whether install() is in effect."""
    return _finder is not None


def install_if_asked():
    """Calls install() if OPDOCK_DEEPSPEED=1; prints a line for any value other than 0, 1 or
    empty."""
    text = os.environ.get("OPDOCK_DEEPSPEED", "").strip()
    if text == "1":
        install()
        warning = _environment.serve_children()
        if warning:
            say_once("hook", warning)
    elif text not in ("", "0"):
        say_once("asked", f"OPDOCK_DEEPSPEED={text} is not used: found neither 0 nor 1")
