# SPDX-License-Identifier: Apache-2.0
"""Creates the process's default runtime on first use, and configures it."""

import os
import sys
import threading
import warnings

from opdock import _names, _opdock

_lock = threading.Lock()
_default = None
_policies = {}
_functions = {}  # name -> function of the default runtime; ops.py replaces it by its own namespace
_noted = None  # the torch version last reported to libopdock; None before the first report


def _renew_lock():
    """Replaces the lock in a forked child, where the thread that may have held it does not
    exist."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def parse(text):
    """Returns json.loads(text). json is imported here, so that programs without reports do not
    pay."""
    import json

    return json.loads(text)


def _package_folders(name):
    """Returns the folders of the package `name`, without importing it or its parents."""
    places = None
    parents = name.split(".")
    for count in range(1, len(parents) + 1):
        full = ".".join(parents[:count])
        loaded = sys.modules.get(full)
        if loaded is not None:
            places = getattr(loaded, "__path__", None)
        else:
            spec = _find_spec(full, places)
            below = getattr(spec, "submodule_search_locations", None)
            if spec is None and places is not None:
                # Namespace packages: finders report these only if the parent is imported, so search
                # here.
                inner = [os.path.join(place, full.rpartition(".")[2]) for place in places]
                below = [folder for folder in inner if os.path.isdir(folder)] or None
            places = below
        if places is None:
            return []
    return list(places)


def _find_spec(name, places):
    """Returns the module spec that Python's finders give for `name` in the folders, or None."""
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        try:
            spec = None if find is None else find(name, places, None)
        except (ImportError, KeyError, ValueError):
            spec = None
        if spec is not None:
            return spec
    return None


def package_folders():
    """Returns the plugin folders that installed Python packages announce, in a stable order.

    A package announces its folder by an entry point of the group "opdock.plugins" whose value is
    the name of the package whose folder has the plugin files. Neither that package nor its parents
    are imported.
    """
    from importlib import metadata

    folders = []
    for entry in sorted(metadata.entry_points(group="opdock.plugins"), key=lambda e: e.value):
        found = [os.path.abspath(folder) for folder in _package_folders(entry.value)]
        if not found:
            warnings.warn(
                f"entry point {entry.name!r} of the group opdock.plugins names {entry.value!r}, "
                "which is no package here; reinstall or remove the package that declares it",
                stacklevel=2,
            )
        folders += [folder for folder in found if folder not in folders]
    return folders


def _torch_version():
    """Returns the version of the torch that the program has imported, or an empty text."""
    return str(getattr(sys.modules.get("torch"), "__version__", ""))


def _note_libraries(version):
    """Tells libopdock which Python and torch this process has. version: torch's, or ""."""
    if _noted is None:
        _opdock.note_library("python", ".".join(map(str, sys.version_info[:3])))
    if version[:1].isdigit():
        _opdock.note_library("torch", version)


def _note_folders():
    """Tells libopdock the folders of this Python's packages, which may contain NVIDIA's
    compilers."""
    for folder in sys.path:
        if os.path.isdir(os.path.join(folder, "nvidia")):
            _opdock._add_compiler_folder(os.path.abspath(folder))


def default():
    """Returns the runtime that opdock.load() and opdock.ops use; configure() replaces it."""
    global _default, _noted
    # Read the variable once: another thread's configure() may reset it at any time.
    runtime = _default
    if runtime is not None and _noted == _torch_version():
        return runtime
    with _lock:
        version = _torch_version()
        if _noted != version:
            _note_libraries(version)
            if _default is not None and version:  # plugins that need torch are checked again
                _default.list_json(rescan=True)
            _noted = version
        if _default is None:
            _note_folders()
            folders = ":".join(package_folders()) or None
            _default = _opdock.Runtime(package_path=folders, **_policies)
        return _default


def keep_functions_in(namespace):
    """Makes function() keep what it finds in `namespace`, the dict of the module opdock.ops, so
    that later look-ups are plain attributes of that module."""
    global _functions
    _functions = namespace


def function(name):
    """Returns the function called `name` of the default runtime: the same object each time."""
    runtime = default()
    known = _functions.get(name)
    if isinstance(known, _opdock.Function):
        return known
    found = _opdock.get_function(runtime, name)
    with _lock:
        # Do not keep a function of a runtime that configure() has just replaced.
        known = _functions.setdefault(name, found) if runtime is _default else found
    return known if isinstance(known, _opdock.Function) else found


def manual_seed(seed):
    """Seeds the default generators, one for each device, of ops that are given no generator.

    With torch tensors ops draw from torch's generators instead, which torch.manual_seed() seeds.
    seed: an int; only its low 64 bits are used. configure() creates new generators. Any thread.
    """
    default().manual_seed(seed)


def configure(*, build=None, jit=None, fallback=None, tf32=False, deterministic=False):
    """Sets this process's policy for ops without a compatible plugin.

    build: "auto", "never", or "always" (source plugins are built and preferred). jit: "auto",
    "never", or "always" (formulas are compiled at their first call on the CPU). fallback: "warn",
    "error" or "silent". None stands for the value of the environment
    (OPDOCK_BUILD, OPDOCK_JIT, OPDOCK_FALLBACK) or of a configuration file. Functions looked up
    earlier keep their policies. tf32: whether float32 products on NVIDIA's GPUs may round their
    factors to TF32; for torch tensors torch.backends.cuda.matmul.allow_tf32 decides instead.
    deterministic: whether equal calls have to give equal bits where that takes longer; for torch
    tensors torch.use_deterministic_algorithms() decides. Any thread. Raises InvalidArgumentError
    for any other text.
    """
    global _default, _policies
    given = {"build": build, "jit": jit, "fallback": fallback}
    for name, value in given.items():
        if value is not None:
            _names.text("configure", name, value, "a str or None")
    _opdock.Runtime(plugin_path=":", **given)  # raises for an invalid value
    _opdock._allow_tf32(tf32)
    _opdock._want_deterministic(deterministic)
    with _lock:
        _policies = given
        _default = None
        kept = [n for n, value in _functions.items() if isinstance(value, _opdock.Function)]
        for name in kept:
            del _functions[name]
