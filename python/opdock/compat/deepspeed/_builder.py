# SPDX-License-Identifier: Apache-2.0
"""OpBuilder: the base class of builders, whose sources Opdock builds."""

import importlib
import os
import shutil
import sys
from abc import ABC, abstractmethod

from opdock.compat.deepspeed import _archs, _probe, _versions
from opdock.compat.deepspeed._say import say

#: Where torch keeps its own builds of extensions. DeepSpeed's folder of this name lies in /tmp,
#: where any user can write. Opdock's builds are in its cache, which OPDOCK_CACHE_DIR moves.
DEFAULT_TORCH_EXTENSION_PATH = os.path.join(
    os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache"),
    "torch_extensions",
)


class OpBuilder(ABC):
    """The base class of DeepSpeed's builders, with their methods. A subclass defines what is built.

    name: the op's name. error_log: why the op is not compatible, or None. jit_mode: whether
    jit_load() asks for the arguments. build_for_cpu: whether to build without nvcc. Any thread may
    call the methods. is_compatible() compiles and loads nothing and does not start CUDA.
    """

    _loaded = {}  # (class, name) -> module

    def __init__(self, name):
        self.name = name
        self.jit_mode = False
        self.build_for_cpu = False
        self.enable_bf16 = False
        self.error_log = None
        # whether missing tools are the only problem that is_compatible() found
        self._lacks_tools = False

    @abstractmethod
    def absolute_name(self):
        """Returns the name of the op's installed module: "deepspeed.ops.adam.fused_adam_op"."""

    @abstractmethod
    def sources(self):
        """Returns the files to compile, as deepspeed_src_path() accepts them."""

    def include_paths(self):
        """Returns the folders for #include, as deepspeed_src_path() accepts them."""
        return []

    def cxx_args(self):
        """Returns arguments of the C++ compiler; any linker arguments among them go to the
        linker."""
        return []

    def nvcc_args(self):
        """Returns arguments of nvcc. The architectures among them decide which images are made."""
        return []

    def extra_ldflags(self):
        """Returns arguments of the linker."""
        return []

    def libraries_args(self):
        """Returns names of libraries: "curand" for -lcurand."""
        return []

    def is_compatible(self, verbose=False):
        """Returns whether the op can be built here: its files, a compiler, Meson and Ninja exist.

        verbose: also print the reason if it cannot; error_log has the reason in any case.
        """
        paths = [self.deepspeed_src_path(path) for path in self.sources()]
        missing = [path for path in paths if not os.path.isfile(path)]
        why = None
        self._lacks_tools = False
        if missing:
            why = f"found no {', '.join(missing)}, wanted the files that sources() names"
        else:
            why = _probe.why_not_built(paths, self.is_rocm_pytorch())
            self._lacks_tools = why is not None
        if why is not None:
            self._refuse(why, verbose)
        return why is None

    def _refuse(self, why, verbose):
        self.error_log = why if why.startswith(f"{self.name}: ") else f"{self.name}: {why}"
        if verbose:
            say(self.error_log)

    def load(self, verbose=False):
        """Returns the op's module: the installed one if it loads, else that of jit_load(). Loads it
        once."""
        key = type(self), self.name
        if key not in OpBuilder._loaded:
            # If several threads get here, Opdock's build lets only one of them build.
            module = self._installed() or self.jit_load(verbose)
            OpBuilder._loaded.setdefault(key, module)
        return OpBuilder._loaded[key]

    def _installed(self):
        """Returns the installed module absolute_name(), if it exists and loads with this torch,
        else None."""
        name = self.absolute_name()
        if name in sys.modules:
            return sys.modules[name]
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            return None
        except ImportError as error:
            say(f"{self.name}: the installed {name} is not used, and built anew: {error}")
            return None

    def jit_load(self, verbose=True):
        """Builds the module, or finds it in Opdock's cache, and imports it.

        verbose: print the seconds that it took. Raises IncompatibleError with is_compatible()'s
        reason or the compiler's first error. Ctrl-C stops a build. Returns the module.
        """
        # Imported here, because most programs build nothing.
        from opdock.compat.deepspeed._jit import jit_load

        return jit_load(self, verbose)

    def builder(self):
        """Returns a setuptools Extension, which BuildExtension builds and installs as
        absolute_name()."""
        # This module needs setuptools, which many programs lack.
        from opdock.compat.deepspeed._extension import OpdockExtension

        return OpdockExtension(self)

    def warning(self, msg):
        """Keeps the text in error_log and prints it."""
        self.error_log = f"{msg}"
        say(f"warning: {msg}")

    def deepspeed_src_path(self, code_path):
        """Returns the absolute path of a file: next to the file that defines the builder, else in
        DeepSpeed.

        If neither exists, returns the path next to the builder.
        """
        if os.path.isabs(code_path):
            return code_path
        own = getattr(sys.modules.get(type(self).__module__), "__file__", None)
        beside = os.path.join(
            os.path.dirname(os.path.abspath(own)) if own else os.getcwd(), code_path
        )
        folders = getattr(sys.modules.get("deepspeed"), "__path__", [])
        theirs = [os.path.join(folder, "ops", code_path) for folder in folders]
        for path in (beside, *theirs, os.path.abspath(code_path)):
            if os.path.exists(path):
                return path
        return beside

    def has_function(self, funcname, libraries, library_dirs=None, verbose=False):
        """Returns whether a C program that calls the function links with the libraries.

        If not, error_log has the reason; verbose: also print it.
        """
        why = _probe.why_not_linked(funcname, libraries, library_dirs or ())
        if why is not None:
            self._refuse(why, verbose)
        return why is None

    def command_exists(self, cmd):
        """Returns whether a program called `cmd`, or one of "a|b", is in PATH."""
        names = [name.strip() for name in cmd.split("|")]
        found = any(shutil.which(name) for name in names)
        if not found:
            self._refuse(f"found no {' or '.join(names)} in PATH, wanted the program", True)
        return found

    def cpu_arch(self):
        """Returns the compiler's argument for this processor; the result runs only on processors
        like it."""
        return _probe.cpu_arch()

    def simd_width(self):
        """Returns the define for this processor's vectors: -D__AVX512__, -D__AVX256__,
        -D__SCALAR__, …"""
        return _probe.simd_width()

    def strip_empty_entries(self, args):
        """Returns the arguments without empty ones."""
        return [argument for argument in args if len(argument) > 0]

    def hipify_extension(self):
        """Returns {}: only CUDAOpBuilder has sources that are translated for ROCm."""
        return {}

    def sycl_extension(self):  # noqa: B027 (subclasses need not have one)
        """Does nothing: SYCL is not supported."""

    @staticmethod
    def is_rocm_pytorch():
        """Returns whether torch is built for ROCm."""
        return _versions.is_rocm_pytorch()

    @staticmethod
    def is_sycl_enabled():
        """Returns False: SYCL is not supported."""
        return False

    @staticmethod
    def installed_rocm_version():
        """Returns (major, minor) of the installed ROCm; (0, 0) if there is none."""
        return _versions.installed_rocm_version()

    @staticmethod
    def get_rocm_gpu_arch():
        """Returns the architectures of the AMD GPUs here, "gfx90a;gfx1030"; an empty text for none.
        The variable PYTORCH_ROCM_ARCH overrides them."""
        return _archs.rocm_list()

    @staticmethod
    def get_rocm_wavefront_size():
        """Returns the threads of a wavefront as text: "64" for gfx8 and gfx9, else "32"."""
        return _archs.rocm_wavefront_size()
