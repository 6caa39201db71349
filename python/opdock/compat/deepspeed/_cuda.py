# SPDX-License-Identifier: Apache-2.0
"""The base classes CUDAOpBuilder (nvcc's arguments, architectures), TorchCPUOpBuilder,
CPUOpBuilder."""

import os

from opdock._errors import IncompatibleError
from opdock.compat.deepspeed import _archs, _environment, _versions
from opdock.compat.deepspeed._builder import OpBuilder
from opdock.compat.deepspeed._say import say_once


def _torch_version():
    import torch

    numbers = torch.__version__.split(".")[:2]
    return tuple(int(number) for number in numbers)


def get_default_compute_capabilities():
    """Returns the default architectures of builds ahead of time, "8.0;9.0": those that nvcc here
    knows."""
    return _archs.default_list()


class CUDAOpBuilder(OpBuilder):
    """A builder whose sources may need nvcc (on ROCm, hipcc)."""

    def compute_capability_args(self, cross_compile_archs=None):
        """Returns nvcc's -gencode arguments.

        The architectures come from the first of these that is given: TORCH_CUDA_ARCH_LIST;
        cross_compile_archs, a list as text; under jit_mode the GPUs here, with PTX for the newest;
        get_default_compute_capabilities(). filter_ccs() then removes some. The environment is not
        changed. Raises InvalidArgumentError for text that is no architecture, IncompatibleError if
        no architecture remains.
        """
        listed = os.environ.get("TORCH_CUDA_ARCH_LIST", "").strip()
        if listed:
            if cross_compile_archs is not None and not self.jit_mode:
                say_once(
                    ("archs", listed, cross_compile_archs),
                    f"TORCH_CUDA_ARCH_LIST={listed} is used, not {cross_compile_archs}",
                )
            origin, ccs = f"TORCH_CUDA_ARCH_LIST={listed!r}", _archs.split_list(listed)
        elif cross_compile_archs is not None:
            origin, ccs = "cross_compile_archs", _archs.split_list(cross_compile_archs)
        else:
            visible = _archs.visible_list() if self.jit_mode else []
            origin = "the GPUs here" if visible else "the default architectures"
            ccs = visible or _archs.split_list(get_default_compute_capabilities())
        for cc in ccs:
            _archs.parse(cc, origin)
        kept = [_archs.joined(cc) for cc in self.filter_ccs(list(ccs))]
        if not kept:
            raise IncompatibleError(
                f"Unable to load {self.name} op due to no compute capabilities remaining after "
                f"filtering: found {';'.join(ccs)} by {origin}, wanted one that filter_ccs() "
                "keeps; set TORCH_CUDA_ARCH_LIST"
            )
        self.enable_bf16 = all(_archs.parse(cc, origin)[0] >= 8 for cc in kept)
        return _archs.gencode(kept, origin)

    def filter_ccs(self, ccs):
        """Returns those of the architectures, texts such as "9.0a" or "8.6+PTX", that the op
        supports.

        A subclass may return texts, or pairs such as ["9", "0a"].
        """
        return ccs

    def cuda_capability_major(self):
        """Returns the major compute capability of the oldest GPU here; None without one. Does not
        start CUDA."""
        visible = _archs.visible_list()
        return int(visible[0].partition(".")[0]) if visible else None

    def version_dependent_macros(self):
        """Returns the macros that tell DeepSpeed's sources that torch is at least 1.5."""
        return ["-DVERSION_GE_1_1", "-DVERSION_GE_1_3", "-DVERSION_GE_1_5"]

    def cxx_args(self):
        """Returns the arguments for DeepSpeed's host code, with the C++ standard that torch
        needs."""
        standard = "-std=c++20" if _torch_version() >= (2, 12) else "-std=c++17"
        return ["-O3", standard, "-g", "-Wno-reorder"]

    def nvcc_args(self):
        """Returns the arguments for DeepSpeed's kernels; on ROCm, hipcc's. An empty list if
        build_for_cpu."""
        if self.build_for_cpu:
            return []
        if self.is_rocm_pytorch():
            major, minor = self.installed_rocm_version()
            self.enable_bf16 = True
            return [
                "-O3",
                "-std=c++17",
                "-U__HIP_NO_HALF_OPERATORS__",
                "-U__HIP_NO_HALF_CONVERSIONS__",
                "-U__HIP_NO_HALF2_OPERATORS__",
                f"-DROCM_VERSION_MAJOR={major}",
                f"-DROCM_VERSION_MINOR={minor}",
            ]
        major, minor = _versions.installed_cuda_version(self.name)
        threads = _environment.number("DS_NVCC_THREADS") or min(os.cpu_count() or 1, 8)
        return [
            "-O3",
            "--use_fast_math",
            "-std=c++20" if (major, minor) >= (12, 5) else "-std=c++17",
            "-U__CUDA_NO_HALF_OPERATORS__",
            "-U__CUDA_NO_HALF_CONVERSIONS__",
            "-U__CUDA_NO_HALF2_OPERATORS__",
            f"--threads={threads}",
            *(["--ptxas-options=-v"] if _environment.is_on("DS_DEBUG_CUDA_BUILD") else []),
            *self.compute_capability_args(),
        ]

    def hipify_extension(self):
        """Translates the sources and their headers for ROCm, if torch is built for it.

        DeepSpeed writes the translations beside the sources; here they are copies in the folder
        build/hipify/NAME of the current one, to be read: a build makes its own from the sources. So
        a source that cannot be translated is an error when setup.py runs. Returns {source: its
        translation}, absolute paths; an empty dict with another torch. Raises NotFoundError for
        sources that do not exist, and if no tool can translate them.
        """
        if not self.is_rocm_pytorch():
            return {}
        # Imported here, because most programs translate nothing.
        from opdock.compat.deepspeed._folder import translate

        return translate(self, os.path.join(os.getcwd(), "build", "hipify", self.name))

    def is_compatible(self, verbose=False):
        """As OpBuilder.is_compatible(). If there are files for nvcc, nvcc must also match torch's
        CUDA."""
        if not super().is_compatible(verbose):
            return False
        cuda = any(path.endswith(".cu") for path in self.sources())
        if cuda and not self.is_rocm_pytorch():
            try:
                _versions.assert_no_cuda_mismatch(self.name)
            except _versions.CUDAMismatchException as error:
                self._refuse(str(error), verbose)
                return False
            except _versions.MissingCUDAException as error:
                if not _environment.is_on("DS_SKIP_CUDA_CHECK"):
                    self._refuse(str(error), verbose)
                    return False
        return True


class CPUOpBuilder(OpBuilder):
    """A builder for this processor: the base class of CPU ops in DeepSpeed 0.19."""

    def cxx_args(self):
        """Returns -O3, OpenMP and the arguments for this processor's vectors, among others."""
        return ["-O3", "-g", "-Wno-reorder", self.cpu_arch(), "-fopenmp", self.simd_width()]


class TorchCPUOpBuilder(CUDAOpBuilder):
    """A builder for this processor whose sources may copy to GPUs: the base class in DeepSpeed
    0.7."""

    def cxx_args(self):
        """Returns CUDAOpBuilder's arguments, and those for OpenMP and this processor's vectors."""
        return [*super().cxx_args(), self.cpu_arch(), "-fopenmp", self.simd_width()]
