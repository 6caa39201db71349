# SPDX-License-Identifier: Apache-2.0
"""Tests `opdock inspect` on files that real tools made: their kind, and the contents of bundles."""

import bz2
import gzip
import io
import lzma
import shutil
import struct
import subprocess
import tarfile
import zipfile
import zlib

import pytest
from conftest import CASES


def tool(name):
    return shutil.which(name) or pytest.skip(f"{name} is not installed")


@pytest.fixture
def reason(opdock, tmp_path):
    """Returns the only reason that `opdock inspect` gives for a file of these bytes, and the
    report."""

    def inspect(content):
        path = tmp_path / "file.so"
        path.write_bytes(content)
        result = opdock("inspect", "--json", path)
        assert result.status == 1
        (reason,) = result.json["reasons"]
        return reason, result.json

    return inspect


def zipped(name):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("package/kernel.so", bytes(100))
        archive.writestr(name, "text")
    return file.getvalue()


def tarred():
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("kernel.so"), io.BytesIO())
    return file.getvalue()


PACKED = {
    "a gzip file": gzip.compress(b"x"),
    "an xz file": lzma.compress(b"x"),
    "a bzip2 file": bz2.compress(b"x"),
    "a zip archive": zipped("README"),
    "a Python wheel": zipped("package-1.0.dist-info/RECORD"),
    "a tar archive": tarred(),
}


@pytest.mark.parametrize("kind", PACKED)
def test_what_python_packs(reason, kind):
    found, report = reason(PACKED[kind])
    assert (found["code"], found["found"]) == ("not-elf", kind)
    assert not report["is_elf"] and report["machine_name"] == report["byte_order"] == ""


def compiled(tmp_path, *arguments):
    source, made = tmp_path / "f.c", tmp_path / "f.o"
    source.write_text("int f(void) { return 1; }\n")
    done = subprocess.run([*arguments, source, "-o", made], capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"{' '.join(arguments)} does not compile here")
    return made


def test_object_files_and_archives(reason, tmp_path):
    made = compiled(tmp_path, tool("cc"), "-c")
    found, report = reason(made.read_bytes())
    assert (found["code"], found["found"]) == ("elf-type", "an object file (.o)")
    assert report["elf_bits"] == 64 and report["byte_order"] == "little"
    for options, kind in (("rc", "a static archive (ar)"), ("rcT", "a thin archive (ar)")):
        archive = tmp_path / f"{options}.a"
        subprocess.run([tool("ar"), options, archive, made], check=True)
        found, report = reason(archive.read_bytes())
        assert (found["code"], found["found"]) == ("not-elf", kind)


@pytest.mark.parametrize(
    "target, code, found",
    [
        ("i386-linux-gnu", "elf-class", "a 32-bit i386 file"),
        ("riscv32-linux-gnu", "elf-class", "a 32-bit riscv32 file"),
        ("s390x-linux-gnu", "elf-class", "a big-endian 64-bit s390x file"),
        ("mips-linux-gnu", "elf-class", "a big-endian 32-bit mips file"),
        ("powerpc64-linux-gnu", "elf-class", "a big-endian 64-bit ppc64 file"),
        ("x86_64-pc-windows-msvc", "not-elf", "a Windows object file (COFF, x86-64)"),
        ("arm64-apple-macos", "not-elf", "a Mach-O object file (arm64)"),
        ("wasm32-unknown-unknown", "not-elf", "a WebAssembly module"),
    ],
)
def test_what_clang_compiles_for_others(reason, tmp_path, target, code, found):
    made = compiled(tmp_path, tool("clang"), f"--target={target}", "-c")
    given, _ = reason(made.read_bytes())
    assert (given["code"], given["found"]) == (code, found)


@pytest.mark.parametrize("target", ["riscv64", "powerpc64le", "mips64el"])
def test_a_shared_object_of_another_processor(reason, tmp_path, target):
    tool("ld.lld")
    options = ["-shared", "-nostdlib", "-fPIC", "-fuse-ld=lld", f"--target={target}-linux-gnu"]
    found, report = reason(compiled(tmp_path, tool("clang"), *options).read_bytes())
    assert found["code"] == "elf-machine"
    assert found["found"] == report["machine_name"] == target.replace("powerpc", "ppc")


# ---- HIP bundles, written here as clang writes them

TARGETS = ["host-x86_64-unknown-linux-gnu-", "hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-"]
TARGETS += [f"hipv4-amdgcn-amd-amdhsa--gfx{number}" for number in (906, 942, 1100, 1201)]


def plain_bundle():
    image, at, table = bytes(range(256)) * 40, 4096, b""
    for i, target in enumerate(TARGETS):
        size = len(image) if i > 0 else 0
        table += struct.pack("<QQQ", at, size, len(target)) + target.encode()
        at += (size + 4095) // 4096 * 4096
    head = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(TARGETS)) + table
    return head.ljust(4096, b"\0") + image.ljust(12288, b"\0") * (len(TARGETS) - 1)


def compress(method, data):
    if method == 0:
        return zlib.compress(data)
    zstandard = pytest.importorskip("zstandard", reason="the package zstandard is not installed")
    return zstandard.ZstdCompressor().compress(data)


@pytest.mark.parametrize("method", [0, 1], ids=["zlib", "zstd"])
def test_the_architectures_in_compressed_bundles(opdock, tmp_path, method):
    plain = plain_bundle()
    packed = compress(method, plain)
    total = {2: len(packed) + 24, 3: len(packed) + 32}
    heads = [
        struct.pack("<IQ", len(plain), 0),
        struct.pack("<IIQ", total[2], len(plain), 0),
        struct.pack("<QQQ", total[3], len(plain), 0),
    ]
    section = b""
    for version, head in enumerate(heads, 1):
        bundle = b"CCOB" + struct.pack("<HH", version, method) + head + packed
        section += bundle.ljust((len(bundle) + 4095) // 4096 * 4096, b"\0")
    (tmp_path / "section").write_bytes(section)
    path = tmp_path / "with_bundles.so"
    added = f"--add-section=.hip_fatbin={tmp_path / 'section'}"
    subprocess.run([tool("objcopy"), added, CASES / "good.so", path], check=True)
    report = opdock("inspect", "--json", path).json
    wanted = [target.split("--")[1] for target in TARGETS[1:]]
    assert [image["arch"] for image in report["images"]] == 3 * wanted
    assert all(image["compressed"] for image in report["images"])
    sizes = [image["size"] for image in report["images"]][len(wanted) :: len(wanted)]
    assert sizes == [total[2], total[3]]
