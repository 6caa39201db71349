# SPDX-License-Identifier: Apache-2.0
"""The process's own runtime, made on first use."""

import os
import sys
import threading
import warnings

from opdock import _names, _opdock

_lock = threading.Lock()
_default = None
_policies = {}
_noted = None  # the torch version that libopdock knows of


def _renew_lock():
    """A forked child has no thread to release what another one held."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def parse(text):
    """json.loads, which is imported only once somebody asks for a report."""
    import json

    return json.loads(text)


def _package_folders(name):
    """The folders of the package of that name, without importing it or its parents."""
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
                # Folders without __init__.py, which finders tell of a parent that is imported only.
                inner = [os.path.join(place, full.rpartition(".")[2]) for place in places]
                below = [folder for folder in inner if os.path.isdir(folder)] or None
            places = below
        if places is None:
            return []
    return list(places)


def _find_spec(name, places):
    """What Python's finders say of a module in these folders, or None."""
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
    """Folders of plugins that installed Python packages announce, in a stable order.

    A package announces one by an entry point of the group "opdock.plugins" whose value is the
    package in whose folder the plugin files lie. Neither it nor its parents are imported.
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
    """The version of the torch that the program has imported, or an empty text."""
    return str(getattr(sys.modules.get("torch"), "__version__", ""))


def _note_libraries(version):
    """Tells libopdock which Python and torch are in this process. version: of torch, or ""."""
    if _noted is None:
        _opdock.note_library("python", ".".join(map(str, sys.version_info[:3])))
    if version[:1].isdigit():
        _opdock.note_library("torch", version)


def _note_folders():
    """Tells libopdock of this Python's packages, among which compilers may be."""
    for folder in sys.path:
        if os.path.isdir(os.path.join(folder, "nvidia")):
            _opdock._add_compiler_folder(os.path.abspath(folder))


def default():
    """The runtime that opdock.load() and opdock.ops use, until configure() replaces it."""
    global _default, _noted
    # Read once: configure() may take it away at any time.
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


def function(name):
    """The function of that name in the default runtime: the same object each time."""
    from opdock import ops

    runtime = default()
    known = vars(ops).get(name)
    if isinstance(known, _opdock.Function):
        return known
    found = _opdock.get_function(runtime, name)
    with _lock:
        # What configure() has just replaced is kept for nobody else.
        known = vars(ops).setdefault(name, found) if runtime is _default else found
    return known if isinstance(known, _opdock.Function) else found


def manual_seed(seed):
    """Seeds the generators, one a device, that ops draw from where they are given none.

    With torch tensors they draw from torch's, which torch.manual_seed seeds. seed: an int, of which
    64 bits count. configure() makes new generators. Any thread.
    """
    default().manual_seed(seed)


def configure(*, build=None, jit=None, fallback=None, tf32=False):
    """Decides what is done where no compatible plugin is there, for this process.

    build: "auto", "never", or "always" (source plugins are built and preferred). jit: "auto" or
    "never". fallback: "warn", "error" or "silent". None: what the environment (OPDOCK_BUILD,
    OPDOCK_JIT, OPDOCK_FALLBACK) or a configuration file says. Functions looked up before keep the
    policies they were made with. tf32: whether products of float32 on NVIDIA's GPUs may round to
    TF32 what they multiply; of torch's tensors torch.backends.cuda.matmul.allow_tf32 says that
    instead. Any thread. Raises InvalidArgumentError for any other text.
    """
    global _default, _policies
    from opdock import ops

    given = {"build": build, "jit": jit, "fallback": fallback}
    for name, value in given.items():
        if value is not None:
            _names.text("configure", name, value, "a str or None")
    _opdock.Runtime(plugin_path=":", **given)  # refuses what is none
    _opdock._allow_tf32(tf32)
    with _lock:
        _policies = given
        _default = None
        kept = [n for n, value in vars(ops).items() if isinstance(value, _opdock.Function)]
        for name in kept:
            del vars(ops)[name]
