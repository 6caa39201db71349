# SPDX-License-Identifier: Apache-2.0
"""Tests that a plugin works unchanged after tools have rewritten its file. Oracles: the plugin
before, NumPy, and the loader."""

import base64
import hashlib
import platform
import shutil
import struct
import sys
import zipfile

import pytest
from conftest import (
    BUILD,
    CALL_SOFTMAX,
    CALL_TWICE,
    LOAD,
    SOFTMAX,
    SOURCE,
    check,
    codes,
    python,
    run,
    run_well,
)
from shift import shift

import opdock

LONG = ":".join(f"/opt/rocm/packages/number-{i}/lib" for i in range(300))
assert len(LONG) > 10000

LIBGCC = run_well("cc", "-print-file-name=libgcc_s.so.1").strip()

# Requests to patchelf that make parts of the file longer, and so move them.
REQUESTS = {
    "short-rpath": ["--set-rpath", "/x"],
    "long-rpath": ["--set-rpath", LONG],
    "old-rpath": ["--force-rpath", "--set-rpath", LONG],
    "needed": ["--add-needed", "libm.so.6"],
    "other-needed": ["--replace-needed", "libgcc_s.so.1", LIBGCC],
    "soname": ["--set-soname", "lib" + "softmax" * 30 + ".so"],
    "large-pages": ["--page-size", "65536", "--set-rpath", LONG],
}
PATCHELFS = [
    line
    for line in (SOURCE / "tests/requirements-beside.txt").read_text().splitlines()
    if line.startswith("patchelf==")
]


def patchelf_of(release):
    path = BUILD / "beside" / release / "bin" / "patchelf"
    if not path.exists():
        pytest.skip(f"{release} is not installed (./dev test does it, into build/beside)")
    return path


def tool(name, package):
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"no {name} (Debian: {package})")
    return path


def segments_of(data):
    """Returns the offsets of the headers of the PT_LOAD segments."""
    (begin,), (count,) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<H", data, 56)
    headers = range(begin, begin + 56 * count, 56)
    return [at for at in headers if struct.unpack_from("<I", data, at) == (1,)]


def loader_refuses(path):
    return python(LOAD, path).returncode != 0


@pytest.fixture
def softmax(tmp_path):
    return shutil.copy(SOFTMAX, tmp_path / "softmax.so")


def test_the_plugin_has_images_to_lose(softmax):
    assert len(opdock.inspect(softmax)["images"]) > 5
    check(softmax, CALL_SOFTMAX, SOFTMAX)


@pytest.mark.parametrize("request_", REQUESTS)
@pytest.mark.parametrize("release", PATCHELFS)
def test_patchelf(softmax, release, request_):
    run_well(patchelf_of(release), *REQUESTS[request_], softmax)
    check(softmax, CALL_SOFTMAX, SOFTMAX)


@pytest.mark.parametrize("release", PATCHELFS)
def test_patchelf_twice_and_strip(softmax, release):
    program = patchelf_of(release)
    run_well(program, "--set-rpath", LONG, softmax)
    run_well(program, "--set-rpath", LONG + LONG, softmax)
    run_well("strip", softmax)
    check(softmax, CALL_SOFTMAX, SOFTMAX)


@pytest.mark.parametrize("release", PATCHELFS)
def test_patchelf_of_a_plugin_in_c(twice, tmp_path, release):
    original = twice("plain")
    path = shutil.copy(original, tmp_path / "twice.so")
    run_well(patchelf_of(release), "--set-rpath", LONG, path)
    check(path, CALL_TWICE, original)


BINUTILS = [
    ["strip"],
    ["strip", "--strip-all"],
    ["strip", "--strip-debug"],
    ["strip", "--strip-unneeded"],
    ["objcopy", "--strip-all"],
    ["objcopy", "--remove-section=.comment", "--remove-section=.symtab"],
    ["objcopy", "--compress-debug-sections"],
    ["objcopy", "--add-gnu-debuglink=/dev/null"],
]


@pytest.mark.parametrize("command", BINUTILS, ids=" ".join)
def test_binutils(softmax, command):
    run_well(*command, softmax)
    check(softmax, CALL_SOFTMAX, SOFTMAX)


@pytest.mark.parametrize(
    "command", [["eu-strip"], ["eu-strip", "--strip-sections"], ["eu-elfcompress"]], ids=" ".join
)
def test_elfutils(softmax, command):
    tool(command[0], "elfutils")
    run_well(*command, softmax)
    check(softmax, CALL_SOFTMAX, SOFTMAX)


@pytest.mark.parametrize("distance", [0x10000, 0x3000000, 1 << 32])
def test_other_addresses(softmax, distance):
    before = run_well("readelf", "-lW", softmax)
    shift(softmax, distance)
    assert before != run_well("readelf", "-lW", softmax)
    check(softmax, CALL_SOFTMAX, SOFTMAX)


def test_other_addresses_after_patchelf(softmax):
    run_well(patchelf_of(PATCHELFS[-1]), "--set-rpath", LONG, softmax)
    shift(softmax, 0x10000)
    check(softmax, CALL_SOFTMAX, SOFTMAX)


def write_wheel(folder, plugin):
    """Writes a wheel for this machine with one plugin: a package of two files."""
    info = "plugged-1.0.dist-info"
    tag = f"py3-none-linux_{platform.machine()}"
    files = {
        "plugged/__init__.py": b"",
        "plugged/softmax.so": plugin.read_bytes(),
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: plugged\nVersion: 1.0\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
    }
    record = ""
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    path = folder / f"plugged-1.0-{tag}.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, data in files.items():
            wheel.writestr(name, data)
        wheel.writestr(f"{info}/RECORD", record + f"{info}/RECORD,,\n")
    return path


def test_auditwheel_repair(softmax, tmp_path, monkeypatch):
    """The plugin needs a library that no system has, so auditwheel puts it into the wheel and gives
    the plugin an RPATH."""
    pytest.importorskip("auditwheel", reason="auditwheel is not installed")
    program = patchelf_of(PATCHELFS[-1])
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    source = tmp_path / "beside.c"
    source.write_text("int beside(void) { return 1; }\n")
    library = tmp_path / "libbeside.so"
    run_well("cc", "-shared", "-fPIC", source, "-o", library, "-Wl,-soname,libbeside.so")
    run_well(program, "--add-needed", "libbeside.so", softmax)
    wheel = write_wheel(tmp_path, softmax)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    output = tmp_path / "repaired"
    done = run(sys.executable, "-m", "auditwheel", "repair", "-w", output, wheel)
    assert done.returncode == 0, done.stdout + done.stderr
    monkeypatch.delenv("LD_LIBRARY_PATH")
    with zipfile.ZipFile(next(output.glob("*.whl"))) as repaired:
        repaired.extractall(tmp_path / "site")
    plugin = tmp_path / "site" / "plugged" / "softmax.so"
    assert opdock.inspect(plugin)["rpath"] == "$ORIGIN/../plugged.libs"
    assert plugin.read_bytes() != softmax.read_bytes()
    check(plugin, CALL_SOFTMAX, SOFTMAX)


# ---- changes that no loader notices

FOREIGN_NOTES = {
    "a descriptor that leaves its segment": '.long 4, 0x100000, 1\n.asciz "GNU"\n.zero 16\n',
    "sizes that overflow": ".long 0xfffffff0, 0xfffffff0, 1\n.zero 32\n",
    "bytes that are no note": '.ascii "not a note at all."\n',
}


@pytest.mark.parametrize("name", FOREIGN_NOTES)
def test_a_damaged_note_of_another_owner(twice, name):
    assembly = '\n.section .note.a, "a", %note\n.balign 4\n' + FOREIGN_NOTES[name]
    path = twice("note", assembly)
    assert ".note.a" in run_well("readelf", "-SW", path)
    check(path, CALL_TWICE, twice("plain"))


def test_a_runpath_of_ten_thousand_bytes(twice):
    path = twice("runpath", "", f"-Wl,-rpath,{LONG}", "-Wl,--enable-new-dtags")
    assert opdock.inspect(path)["runpath"] == LONG
    check(path, CALL_TWICE, twice("plain"))


def test_a_file_without_its_last_bytes(softmax):
    """Linkers put the section headers last, outside of all segments."""
    data = softmax.read_bytes()
    end = max(
        struct.unpack_from("<Q", data, at + 8)[0] + struct.unpack_from("<Q", data, at + 32)[0]
        for at in segments_of(data)
    )
    assert end < len(data) - 1
    for size in (len(data) - 1, end):
        softmax.write_bytes(data[:size])
        check(softmax, CALL_SOFTMAX, SOFTMAX, ["sections-cut"])
    softmax.write_bytes(data[: end - 1])
    report = opdock.inspect(softmax)
    assert (report["verdict"], codes(report)) == ("rejected", ["elf-truncated"])


@pytest.mark.parametrize("alignment", [0, 1, 16, 0x1000, 0x10000, 0x200000])
def test_alignments_are_judged_as_the_loader_does(softmax, alignment):
    """glibc up to 2.34 refuses some of these."""
    data = bytearray(softmax.read_bytes())
    for at in segments_of(data):
        struct.pack_into("<Q", data, at + 48, alignment)
    softmax.write_bytes(data)
    if loader_refuses(softmax):
        assert codes(opdock.inspect(softmax)) == ["elf-malformed"] * 4
    else:
        check(softmax, CALL_SOFTMAX, SOFTMAX)


LINKERS = ("bfd", "gold", "lld")
LINKINGS = [
    (linker, options.split())
    for options, linkers in {
        "": LINKERS,
        "--hash-style=sysv": LINKERS,
        "-z noseparate-code": ("bfd", "lld"),
        "-z max-page-size=0x200000": LINKERS,
        "-z nognustack": ("bfd", "lld"),
        "-z pack-relative-relocs": ("bfd", "lld"),
        "-Ttext-segment=0x10000000": ("bfd", "gold"),
        "-Tbss=0x900010": LINKERS,
        "-z norelro --build-id=none": LINKERS,
        "--section-start=.note.opdock=0x700000": LINKERS,
        "--pack-dyn-relocs=android": ("lld",),
    }.items()
    for linker in linkers
]


@pytest.mark.parametrize(
    ("linker", "options"),
    LINKINGS,
    ids=lambda value: value if value in LINKERS else " ".join(value),
)
def test_linkers(twice, linker, options):
    tool(f"ld.{linker}", "lld" if linker == "lld" else "binutils")
    words = [f"-fuse-ld={linker}", *(word for option in options for word in ("-Xlinker", option))]
    name = "-".join([linker, *options])
    try:
        path = twice(name, "", *words)
    except AssertionError:
        pytest.skip(f"ld.{linker} does not know {' '.join(options)}")
    if codes(opdock.inspect(path)) == ["executable-stack"] and "nognustack" in options:
        return  # lld then marks the stack as executable
    if loader_refuses(path):
        assert opdock.inspect(path)["verdict"] == "rejected"
    else:
        check(path, CALL_TWICE, twice("plain"))


def test_executable_stacks_are_refused_by_policy(twice):
    path = twice("stack", "", "-Wl,-z,execstack")
    report = opdock.inspect(path)
    assert (report["verdict"], codes(report)) == ("rejected", ["executable-stack"])
    (reason,) = [reason for reason in report["reasons"] if reason["code"] == "executable-stack"]
    assert reason["found"] and reason["advice"]


def test_a_hidden_table_is_named(twice, tmp_path):
    """A version script written before the table had a symbol hides it like this."""
    script = tmp_path / "old.map"
    script.write_text("{ global: opdock_plugin_v*; local: *; };\n")
    report = opdock.inspect(twice("hidden", "", f"-Wl,--version-script={script}"))
    assert (report["verdict"], codes(report)) == ("rejected", ["claim-images"])
    assert any("opdock_images_v0" in reason["advice"] for reason in report["reasons"])
