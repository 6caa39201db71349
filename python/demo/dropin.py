# SPDX-License-Identifier: Apache-2.0
"""Makes the demo's drop-in folder: one good plugin and six files that no host should load.

The unfit files are made as they occur in practice: by the compiler and linker where that is quick,
else by damaging a copy of a good plugin.
"""

import os
import shutil
import struct
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEADERS = ROOT / "core" / "include"

SCALE_TOML = """\
name = "{name}"
version = "1.0.0"
license = "Apache-2.0"
sources = ["{name}.c"]

[[op]]
schema = "{name}(Tensor x) -> ()"
doc = "Does nothing; made by the demo."
devices = ["{device}"]
dtypes = ["float32"]
flags = ["thread-safe"]
{extra}"""

SOURCE = """\
#include <opdock/plugin.h>
{extra}
opdock_status opdock_{name}_plan(const opdock_call *call, const opdock_value *args,
                                 uint32_t num_args, opdock_plan *plan) {{
  (void)call, (void)args, (void)num_args, (void)plan;
  return OPDOCK_OK;
}}
opdock_status opdock_{name}_run(const opdock_call *call, const opdock_value *args,
                                uint32_t num_args, opdock_value *results,
                                uint32_t num_results) {{
  (void)call, (void)args, (void)num_args, (void)results, (void)num_results;
  return OPDOCK_OK;
}}
"""

KERNEL = """\
#include "opdock/device.cuh"
OPDOCK_KERNEL(1) nothing() {}
"""


def compiler():
    """Returns the C compiler: $CC or the first of cc, gcc, clang."""
    for name in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        if name and shutil.which(name):
            return name
    raise SystemExit("no C compiler was found; install gcc")


def run(*command):
    """Runs a command; on failure ends the demo with the command's output."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")


def build(work, target, name, *, device="cpu", archs="", source_extra="", link=()):
    """Packs, compiles and links a plugin with one op that does nothing."""
    folder = work / name
    folder.mkdir(parents=True, exist_ok=True)
    extra = ""
    if device != "cpu":
        (folder / "nothing.cuh").write_text(KERNEL)
        extra = '[device]\nsources = ["nothing.cuh"]\nkernels = ["nothing"]\n'
    (folder / "plugin.toml").write_text(SCALE_TOML.format(name=name, device=device, extra=extra))
    (folder / f"{name}.c").write_text(SOURCE.format(name=name, extra=source_extra))
    pack = Path(os.environ["OPDOCK_BUILD_DIR"]) / "core" / "pack" / "opdock-pack"
    options = ["--cuda-archs", archs, "--include", ROOT / "core" / "device"] if archs else []
    run(pack, "--toml", folder / "plugin.toml", "--out-dir", folder, *options)
    version_script = ROOT / "plugins" / "opdock-plugin.map"
    run(
        *(compiler(), "-shared", "-fPIC", "-O2", "-fvisibility=hidden"),
        *(f"-I{HEADERS}", f"-I{folder}"),
        *(f"-Wl,--version-script={version_script}", "-Wl,-z,noexecstack"),
        *(folder / f"{name}.c", folder / "entry.c", folder / "note.S", *link, "-o", target),
    )


def newer_libc(work):
    """Builds a stand-in for a future C library, with one symbol of version GLIBC_2.99."""
    folder = work / "libc"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "libc.c").write_text("void opdock_demo_future(void) {}\n")
    (folder / "libc.map").write_text("GLIBC_2.99 { global: opdock_demo_future; };\n")
    library = folder / "libc.so.6"
    run(
        *(compiler(), "-shared", "-fPIC", "-nostdlib", folder / "libc.c", "-o", library),
        *("-Wl,-soname,libc.so.6", f"-Wl,--version-script={folder / 'libc.map'}"),
    )
    return library


def other_abi_major(good, target):
    """Writes a copy of `good` whose note has ABI major 7 in the header's third 16-bit field."""
    data = bytearray(good.read_bytes())
    at = data.index(b"opdock\0\0") + 8
    struct.pack_into("<H", data, at + 4, 7)
    target.write_bytes(data)


def make(folder, absent_arch):
    """Fills `folder` once and returns it. absent_arch: a CUDA architecture that no GPU here has."""
    stamp = folder / f".made-{absent_arch}"
    if stamp.exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    work = folder.with_name(folder.name + "-work")
    folder.mkdir(parents=True)
    good = folder / "good.so"
    build(work, good, "good")
    build(work, folder / "other_gpu.so", "other_gpu", device="cuda", archs=absent_arch)
    build(
        *(work, folder / "newer_libc.so", "newer_libc"),
        source_extra="void opdock_demo_future(void);\n"
        "void opdock_init_unused(void) { opdock_demo_future(); }",
        link=[newer_libc(work)],
    )
    other_abi_major(good, folder / "other_abi.so")
    (folder / "truncated.so").write_bytes(good.read_bytes()[: good.stat().st_size // 2])
    (work / "plain.c").write_text("int plain(void) { return 42; }\n")
    run(compiler(), "-shared", "-fPIC", work / "plain.c", "-o", folder / "plain.so")
    (folder / "text.so").write_text("This is not a shared object.\n")
    stamp.touch()
    return folder
