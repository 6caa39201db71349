# SPDX-License-Identifier: Apache-2.0
"""Reads the list of packages, and fetches them with pip.

A line of packages.txt is "NAME==VERSION PYTHON PLATFORM [GROUP]". PYTHON is a tag such as cp311,
cp27mu or pp311. PLATFORM is a processor (x86_64: manylinux), musl_PROCESSOR, win_amd64 or macosx.
Packages of one GROUP are unpacked into one folder, as in an environment."""

import dataclasses
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

LEGACY = {"manylinux1": 5, "manylinux2010": 12, "manylinux2014": 17}
NEWEST_GLIBC = 45
PYPY_ABI = "pp73"


@dataclasses.dataclass(frozen=True)
class Package:
    name: str  # as pip takes it, with the version: "numpy==2.3.5"
    python: str
    platform: str
    group: str = ""

    @property
    def folder(self):
        """The name of its folder in the cache."""
        return "-".join([self.name.replace("==", "-"), self.python, self.platform])

    def __str__(self):
        return " ".join(filter(None, [self.name, self.python, self.platform, self.group]))


def read_list(path):
    """Returns the packages of a list, without empty lines and those that begin with #."""
    packages = []
    for number, line in enumerate(Path(path).read_text().splitlines(), 1):
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        if not 3 <= len(words) <= 4:
            raise ValueError(f"{path}:{number}: found {len(words)} words, wanted 3 or 4: {line!r}")
        packages.append(Package(*words))
    return packages


def platform_tags(platform):
    """Returns the wheel platforms that a PLATFORM stands for, as pip's --platform takes them."""
    if platform == "macosx":
        return [
            f"macosx_{minor}_{cpu}"
            for cpu in ("arm64", "x86_64", "universal2")
            for minor in ("10_9", "10_12", "10_13", "10_15", "11_0", "12_0", "13_0", "14_0")
        ]
    if platform.startswith("win"):
        return [platform]
    if platform.startswith("musl_"):
        return [f"musllinux_1_{minor}_{platform[5:]}" for minor in range(1, 4)]
    tags = [f"linux_{platform}"]
    tags += [f"{name}_{platform}" for name in LEGACY]
    return tags + [f"manylinux_2_{minor}_{platform}" for minor in range(5, NEWEST_GLIBC)]


def python_arguments(python):
    """Returns pip's arguments for a PYTHON tag."""
    implementation, major, minor, flags = re.fullmatch(r"(cp|pp)(\d)(\d+)(\w*)", python).groups()
    abis = [python] if implementation == "cp" else [f"pypy{major}{minor}_{PYPY_ABI}"]
    if implementation == "cp" and major == "3" and int(minor) < 8 and not flags:
        abis.append(python + "m")
    if not flags:
        abis.append("abi3")
    arguments = ["--python-version", f"{major}.{minor}", "--implementation", implementation]
    for abi in [*abis, "none"]:
        arguments += ["--abi", abi]
    return arguments


def fetch(package, cache, timeout=1800):
    """Returns the path of the package's wheel in the folder `cache`, and fetches it if necessary.

    Raises RuntimeError with pip's message if that fails. May run in several processes at once."""
    folder = Path(cache) / package.folder
    if folder.is_dir():
        return next(folder.glob("*.whl"))
    Path(cache).mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--no-cache-dir",
        "--retries",
        "2",
    ]
    command += ["--only-binary=:all:", *python_arguments(package.python)]
    for tag in platform_tags(package.platform):
        command += ["--platform", tag]
    with tempfile.TemporaryDirectory(dir=cache, prefix=".fetch-") as temporary:
        done = subprocess.run(
            [*command, "--dest", f"{temporary}/wheel", package.name],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        wheels = list(Path(temporary).glob("wheel/*.whl"))
        if done.returncode != 0 or len(wheels) != 1:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            raise RuntimeError((errors or [done.stderr.strip() or "pip brought no wheel"])[-1])
        try:
            Path(temporary, "wheel").rename(folder)
        except OSError:  # another process was first
            shutil.rmtree(Path(temporary, "wheel"), ignore_errors=True)
    return next(folder.glob("*.whl"))
