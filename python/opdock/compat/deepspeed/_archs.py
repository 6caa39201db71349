# SPDX-License-Identifier: Apache-2.0
"""Converts GPU architectures between texts, pairs of texts and nvcc's arguments."""

import os
import re

from opdock import _reports
from opdock._errors import InvalidArgumentError
from opdock.compat.deepspeed._versions import nvcc_archs, tool

# Default architectures for builds ahead of time; those that nvcc does not know are left out.
_USUAL = ((6, 0), (6, 1), (7, 0), (7, 5), (8, 0), (8, 6), (9, 0), (10, 0), (12, 0))

_ONE = re.compile(r"(\d+)\.(\d)([af]?)(\+PTX)?", re.IGNORECASE)
_NAMED = {  # PyTorch's names
    "pascal": "6.0;6.1+PTX",
    "volta": "7.0+PTX",
    "turing": "7.5+PTX",
    "ampere": "8.0;8.6+PTX",
    "ada": "8.9+PTX",
    "hopper": "9.0+PTX",
    "blackwell": "10.0;10.3;12.0;12.1+PTX",
}


def split_list(text):
    """Splits "8.0;9.0a 9.0+PTX" into ["8.0", "9.0a", "9.0+PTX"]; replaces PyTorch's names by their
    architectures."""
    found = []
    for word in re.split(r"[;,\s]+", text.strip()):
        if word:
            found += split_list(_NAMED[word.lower()]) if word.lower() in _NAMED else [word]
    return found


def joined(cc):
    """Returns one architecture as text, from a text or from a pair such as ["9", "0a"]."""
    return cc if isinstance(cc, str) else ".".join(str(part) for part in cc)


def parse(text, origin):
    """Returns (major, minor, suffix, is PTX wanted) of one architecture.

    origin: where the text comes from, for the message. Raises InvalidArgumentError for text that is
    no architecture.
    """
    match = _ONE.fullmatch(text)
    if match is None:
        raise InvalidArgumentError(
            f"{origin}: found {text!r}, wanted an architecture such as 8.0, 9.0a or 8.6+PTX"
        )
    return int(match[1]), int(match[2]), match[3].lower(), bool(match[4])


def default_list():
    """Returns the architectures for builds ahead of time as text: the usual ones that nvcc
    knows."""
    nvcc, _ = tool("nvcc")
    known = nvcc_archs(nvcc) if nvcc else frozenset()
    usual = [arch for arch in _USUAL if arch in known] or [a for a in _USUAL if a >= (7, 5)]
    return ";".join(f"{major}.{minor}" for major, minor in usual)


def visible_list():
    """Returns the architectures of the GPUs here as texts, with PTX for the newest. Makes no CUDA
    context."""
    found = set()
    for gpu in _reports.doctor()["machine"]["gpus"]:
        match = re.fullmatch(r"sm_(\d+)(\d)[af]?", gpu["arch"])
        if gpu["backend"] == "cuda" and match:
            found.add((int(match[1]), int(match[2])))
    texts = [f"{major}.{minor}" for major, minor in sorted(found)]
    return [*texts[:-1], texts[-1] + "+PTX"] if texts else []


def rocm_list():
    """Returns the architectures of the AMD GPUs here, "gfx90a;gfx1030"; an empty text for none. The
    variable PYTORCH_ROCM_ARCH overrides them."""
    if os.environ.get("PYTORCH_ROCM_ARCH"):
        return os.environ["PYTORCH_ROCM_ARCH"]
    gpus = _reports.doctor()["machine"]["gpus"]
    names = [gpu["arch"].partition(":")[0] for gpu in gpus if gpu["backend"] == "rocm"]
    return ";".join(dict.fromkeys(names))


def rocm_wavefront_size():
    """Returns the threads of a wavefront as text: "64" for gfx8 and gfx9, else "32"."""
    return "64" if rocm_list().startswith(("gfx9", "gfx8")) else "32"


def gencode(ccs, origin):
    """Returns nvcc's arguments for the architectures: one image for each, and PTX where it is
    wanted."""
    wanted = {}
    for cc in ccs:
        major, minor, suffix, ptx = parse(joined(cc), origin)
        key = major, minor, suffix
        wanted[key] = wanted.get(key, False) or ptx
    arguments = []
    for (major, minor, suffix), ptx in sorted(wanted.items()):
        name = f"{major}{minor}{suffix}"
        arguments.append(f"-gencode=arch=compute_{name},code=sm_{name}")
        if ptx:
            arguments.append(f"-gencode=arch=compute_{name},code=compute_{name}")
    return arguments


_FLAG = re.compile(r"(-gencode|--generate-code|-arch|--gpu-architecture)(=.*)?")
_CODE = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)")


def _codes(flag):
    """Returns the images that one such argument makes: ["sm_90", "compute_90"]. nvcc's -arch=sm_90
    makes both."""
    name, _, text = flag.partition("=")
    if "code=" in text:
        return text.partition("code=")[2].strip("[]\"'").split(",")
    if name in ("-arch", "--gpu-architecture"):
        return [text, text.replace("sm_", "compute_")]
    return []


def from_arguments(arguments):
    """Returns (the architectures that nvcc's arguments name, as texts; the other arguments)."""
    wanted, others, arguments = {}, [], list(arguments)
    while arguments:
        word = arguments.pop(0)
        match = _FLAG.fullmatch(word)
        if match is None:
            others.append(word)
            continue
        if match[2] is None and arguments:
            word += "=" + arguments.pop(0)
        for code in map(_CODE.fullmatch, _codes(word)):
            if code is not None:
                key = int(code[2]), int(code[3]), code[4]
                wanted[key] = wanted.get(key, False) or code[1] == "compute"
    texts = [f"{a}.{b}{s}" + ("+PTX" if ptx else "") for (a, b, s), ptx in sorted(wanted.items())]
    return texts, others
