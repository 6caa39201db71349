# SPDX-License-Identifier: Apache-2.0
"""OpBuilder: one op with sources of its own, built by Opdock."""

import importlib
import os
import shutil
import sys
from abc import ABC, abstractmethod

from opdock.compat.deepspeed import _probe, _versions
from opdock.compat.deepspeed._say import say


class OpBuilder(ABC):
    """The base of DeepSpeed's builders, with their methods. A subclass says what is built.

    name: of the op. error_log: why it is not compatible, or None. jit_mode: whether the arguments
    are asked for by jit_load(). build_for_cpu: without nvcc. Any thread; is_compatible() compiles,
    loads and starts nothing of CUDA's.
    """

    _loaded = {}  # (class, name) -> module

    def __init__(self, name):
        self.name = name
        self.jit_mode = False
        self.build_for_cpu = False
        self.enable_bf16 = False
        self.error_log = None
        self._lacks_tools = False  # is all that is_compatible() has against it

    @abstractmethod
    def absolute_name(self):
        """The module that the op is installed as: "deepspeed.ops.adam.fused_adam_op"."""

    @abstractmethod
    def sources(self):
        """The files to compile, as deepspeed_src_path() takes them."""

    def include_paths(self):
        """Folders for #include, as deepspeed_src_path() takes them."""
        return []

    def cxx_args(self):
        """Arguments of the C++ compiler; those for the linker among them go to it."""
        return []

    def nvcc_args(self):
        """Arguments of nvcc. Architectures among them decide which images are made."""
        return []

    def extra_ldflags(self):
        """Arguments of the linker."""
        return []

    def libraries_args(self):
        """Names of libraries: "curand" for -lcurand."""
        return []

    def is_compatible(self, verbose=False):
        """Whether the op can be built here: its files, a compiler, Meson and Ninja are there.

        verbose: the reason against it is printed as well; error_log has it anyway.
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
        """The op's module: the installed one where it fits, else jit_load()'s; made once."""
        key = type(self), self.name
        if key not in OpBuilder._loaded:
            # Of threads that come here together, Opdock's build lets one build.
            module = self._installed() or self.jit_load(verbose)
            OpBuilder._loaded.setdefault(key, module)
        return OpBuilder._loaded[key]

    def _installed(self):
        """The module of that absolute name, if it was installed and loads with this torch."""
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

        verbose: says the seconds. Raises IncompatibleError with what is_compatible() says against
        it or the compiler's first error. Ctrl-C stops a build.
        """
        from opdock.compat.deepspeed._jit import jit_load

        return jit_load(self, verbose)

    def builder(self):
        """A setuptools Extension: BuildExtension builds it and installs it as absolute_name()."""
        from opdock.compat.deepspeed._extension import OpdockExtension

        return OpdockExtension(self)

    def warning(self, msg):
        """Keeps the text in error_log and prints it."""
        self.error_log = f"{msg}"
        say(f"warning: {msg}")

    def deepspeed_src_path(self, code_path):
        """The absolute path of a file: beside the file that defines the builder, else in DeepSpeed.

        Where neither is, it stays as it would be beside the builder.
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
        """Whether a C program that calls the function links with the libraries.

        error_log says why not; verbose: it is printed as well.
        """
        why = _probe.why_not_linked(funcname, libraries, library_dirs or ())
        if why is not None:
            self._refuse(why, verbose)
        return why is None

    def command_exists(self, cmd):
        """Whether a program of that name, or one of "a|b", is in PATH."""
        names = [name.strip() for name in cmd.split("|")]
        found = any(shutil.which(name) for name in names)
        if not found:
            self._refuse(f"found no {' or '.join(names)} in PATH, wanted the program", True)
        return found

    def cpu_arch(self):
        """The compiler's argument for exactly this processor; such a build is for its kind only."""
        return _probe.cpu_arch()

    def simd_width(self):
        """The define of this processor's vectors: -D__AVX512__, -D__AVX256__, -D__SCALAR__, …"""
        return _probe.simd_width()

    def strip_empty_entries(self, args):
        """The arguments without empty ones."""
        return [argument for argument in args if len(argument) > 0]

    def hipify_extension(self):  # noqa: B027 (subclasses need not have one)
        """Nothing: what is built for ROCm is translated in the build's folder, never in place."""

    def sycl_extension(self):  # noqa: B027 (as above)
        """Nothing: there is no SYCL here."""

    @staticmethod
    def is_rocm_pytorch():
        """Whether torch is built for ROCm."""
        return _versions.is_rocm_pytorch()

    @staticmethod
    def is_sycl_enabled():
        """False."""
        return False

    @staticmethod
    def installed_rocm_version():
        """(major, minor) of the ROCm here; (0, 0) for none."""
        return _versions.installed_rocm_version()

    @staticmethod
    def get_rocm_gpu_arch():
        """The processors of the AMD GPUs here, "gfx90a;gfx1030"; an empty text for none."""
        if os.environ.get("PYTORCH_ROCM_ARCH"):
            return os.environ["PYTORCH_ROCM_ARCH"]
        import opdock

        gpus = opdock.doctor()["machine"]["gpus"]
        names = [gpu["arch"].partition(":")[0] for gpu in gpus if gpu["backend"] == "rocm"]
        return ";".join(dict.fromkeys(names))

    @staticmethod
    def get_rocm_wavefront_size():
        """Threads of a wavefront, as a text: 64 for gfx9 and before, else 32."""
        return "64" if OpBuilder.get_rocm_gpu_arch().startswith(("gfx9", "gfx8")) else "32"
