# SPDX-License-Identifier: Apache-2.0
"""Collects the sources and arguments of a builder, with those that a torch extension needs."""

import hashlib
import os
import platform
import re
import sys
import sysconfig

from opdock._errors import InvalidArgumentError, NotFoundError
from opdock.compat.deepspeed import _archs, _environment

HOST = (".c", ".cc", ".cpp", ".cxx")
# torch's own extension build passes these, and sources rely on them.
_NVCC = (
    "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "--expt-relaxed-constexpr",
)

_BF16 = ("_OPERATORS", "2_OPERATORS", "_CONVERSIONS")


class Recipe:
    """The files and arguments of one module. Paths are absolute; each argument is one word."""

    def __init__(self):
        self.name = self.module = ""  # the op's name; the name to import the file by
        self.sources, self.includes = [], []
        self.cxx, self.nvcc, self.link = [], [], []
        self.archs = []  # named in nvcc's arguments
        self.kind = "cpu"  # or "cuda", "rocm"
        self.links_torch_cuda = False
        self.made_for = ""  # other facts that the result depends on

    def has(self, *endings):
        """Returns the sources with one of these endings."""
        return [source for source in self.sources if source.endswith(endings)]


def identifier(text):
    """Returns the text as a valid name in C and in Python."""
    name = re.sub(r"\W", "_", text, flags=re.ASCII)[:60]
    return f"_{name}" if not name or name[0].isdigit() else name


def _cpu_digest():
    """Returns a digest that changes with the meaning of -march=native."""
    text = platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            wanted = ("flags", "features", "model name", "cpu part", "isa")
            found = [line for line in lines if line.lower().startswith(wanted)]
            text += "".join(sorted(set(found)))
    except OSError:
        pass
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _is_for_this_cpu(argument):
    return argument.startswith(("-march=", "-mcpu=", "-mtune=", "-mavx", "-msse", "-mfma")) or (
        re.fullmatch(r"-D__(AVX\w*|SVE|NEON)__", argument) is not None
    )


def _words(builder, method):
    """Returns the method's list without empty words; an empty list if the builder lacks the
    method."""
    found = getattr(builder, method, list)()
    return [str(word) for word in found if str(word).strip()]


def _split_cxx(words):
    """Splits into (compiler arguments, linker arguments): builders put libraries among the former
    too."""
    compiler, linker, words = [], [], list(words)
    while words:
        word = words.pop(0)
        if word in ("-I", "-D", "-U", "-isystem", "-include", "-L", "-l") and words:
            word += words.pop(0)
        if word.startswith(("-L", "-l", "-Wl,")):
            linker.append(word)
        elif word not in ("-shared", "-fPIC", "-fpic"):  # Opdock's build adds these itself
            compiler.append(word)
            if word.startswith("-fopenmp"):
                linker.append(word)
    return compiler, linker


def _one_word_each(words):
    """Joins ["-Xcompiler", "-fopenmp"] to ["-Xcompiler=-fopenmp"]; nvcc accepts both."""
    joined, words = [], list(words)
    while words:
        word = words.pop(0)
        if (
            re.fullmatch(r"-(Xcompiler|Xptxas|Xlinker|Xcudafe|isystem|maxrregcount)", word)
            and words
        ):
            word += "=" + words.pop(0)
        elif word in ("-I", "-D", "-U") and words:
            word += words.pop(0)
        joined.append(word)
    return joined


def _paths(builder, words, what):
    """Returns absolute paths. Missing sources raise NotFoundError, which lists all of them; other
    missing paths are left out."""
    resolve = getattr(builder, "deepspeed_src_path", os.path.abspath)
    paths = [os.path.abspath(resolve(word)) for word in words]
    missing = [path for path in paths if not os.path.exists(path)]
    if missing and what == "sources":
        raise NotFoundError(
            f"{builder.name}: found no {', '.join(missing)}, wanted the files that sources() "
            "names; give absolute paths, or paths relative to the file that defines the builder"
        )
    return [path for path in paths if path not in missing]


def _add_torch(recipe, wants_cuda):
    import torch

    root = os.path.dirname(os.path.abspath(torch.__file__))
    folders = ["include", "include/torch/csrc/api/include"]
    python = sysconfig.get_paths()["include"]
    includes = [f"-isystem{root}/{folder}" for folder in folders] + [f"-isystem{python}"]
    defines = [
        f"-DTORCH_EXTENSION_NAME={recipe.module}",
        "-DTORCH_API_INCLUDE_EXTENSION_H",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
    ]
    libraries = ["c10", "torch_cpu", "torch", "torch_python"]
    if wants_cuda and torch.version.cuda:
        libraries += ["c10_cuda", "torch_cuda"]
        recipe.links_torch_cuda = True
    if wants_cuda and torch.version.hip:
        libraries += ["c10_hip", "torch_hip"]
    recipe.cxx = [*includes, *defines, *recipe.cxx]
    plain = [include.replace("-isystem", "-I") for include in includes]
    own = _NVCC if recipe.kind == "cuda" else ()
    recipe.nvcc = [*plain, *defines, *own, *recipe.nvcc]
    recipe.link = [f"-L{root}/lib", *(f"-l{name}" for name in libraries), *recipe.link]
    recipe.made_for = (
        f"torch {torch.__version__}, {sys.implementation.cache_tag} "
        f"{sysconfig.get_config_var('SOABI')}"
    )


def _add_kind(made, has_bf16):
    """Adds the macros by which DeepSpeed's sources recognise a GPU compiler."""
    made.cxx.append("-UC10_USE_GLOG")
    if made.kind == "cpu":
        return
    words = ["-UC10_USE_GLOG"]
    if made.kind == "rocm":
        size = f"-DROCM_WAVEFRONT_SIZE={_archs.rocm_wavefront_size()}"
        made.cxx += ["-D__HIP_PLATFORM_AMD__=1", size]
        words.append(size)
    if has_bf16:
        made.cxx.append("-DBF16_AVAILABLE")
        words.append("-DBF16_AVAILABLE")
        if made.kind == "cuda":
            words += [f"-U__CUDA_NO_BFLOAT16{what}__" for what in _BF16]
    made.nvcc += words


def recipe(builder, module=None):
    """Returns the Recipe of a builder: any object with a name, sources() and OpBuilder's other
    methods.

    module: the name to import the result by; the builder's name by default. Raises NotFoundError
    for sources that do not exist, InvalidArgumentError for files that no compiler here accepts.
    """
    made = Recipe()
    made.name = identifier(builder.name)
    made.module = identifier(module or builder.name)
    made.sources = _paths(builder, _words(builder, "sources"), "sources")
    made.includes = _paths(builder, _words(builder, "include_paths"), "include_paths")
    strange = [s for s in made.sources if not s.endswith((*HOST, ".cu", ".hip"))]
    if strange or not made.sources:
        raise InvalidArgumentError(
            f"{builder.name}: found {', '.join(strange) or 'no file'} in sources(), wanted files "
            f"that end in {', '.join(HOST)}, .cu or .hip"
        )
    for_cpu = getattr(builder, "build_for_cpu", False)
    if made.has(".cu", ".hip"):
        is_rocm = getattr(builder, "is_rocm_pytorch", lambda: False)()
        made.kind = "rocm" if is_rocm or made.has(".hip") else "cuda"
    cxx = [*_words(builder, "cxx_args"), *_environment.words("CFLAGS")]
    made.cxx, link = _split_cxx(cxx)
    libraries = [f"-l{name}" for name in _words(builder, "libraries_args")]
    made.link = [*_words(builder, "extra_ldflags"), *libraries, *link]
    made.link += _environment.words("LDFLAGS")
    if made.kind != "cpu":
        words = _one_word_each(_words(builder, "nvcc_args"))
        made.archs, made.nvcc = _archs.from_arguments(words)
    _add_kind(made, getattr(builder, "enable_bf16", False))
    is_gpu = made.kind != "cpu" or hasattr(builder, "compute_capability_args")
    _add_torch(made, is_gpu and not for_cpu)
    if any(map(_is_for_this_cpu, made.cxx)):
        made.made_for += f", processor {_cpu_digest()}"
    return made
