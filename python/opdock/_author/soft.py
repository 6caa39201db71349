# SPDX-License-Identifier: Apache-2.0
"""Implements `opdock test --device=soft PATH`: runs a plugin's tests on each kind of software GPU.

A software GPU is a replacement for a driver library that executes kernels on the CPU
(docs/guide/testing-kernels.md). The only difference from a test on a real GPU is where the dynamic
loader finds the driver.
"""

import json
import os
import re
import subprocess
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

#: Kinds of software GPUs: architecture -> (backend, threads in a warp).
KINDS = {"sm_90": ("cuda", 32), "gfx1030": ("rocm", 32), "gfx90a": ("rocm", 64)}
_LIBRARIES = {"cuda": "libcuda.so.1", "rocm": "libamdhip64.so.6"}
_COUNTERS = [
    ("kernel", "kernel"),
    ("launches", "launches"),
    ("global_load_sectors", "sectors read"),
    ("global_store_sectors", "sectors written"),
    ("shared_bank_conflicts", "bank conflicts"),
    ("barriers", "barriers"),
    ("shuffles", "shuffles"),
    ("atomics", "atomics"),
]


def kind_of(arch):
    """Returns (backend, warp size) of an architecture that the replacement drivers know; else
    None."""
    if re.fullmatch(r"sm_\d{2,3}", arch):
        return "cuda", 32
    # AMD's GCN and CDNA (gfx6 to gfx9) have 64-wide warps, RDNA (gfx10 and later) 32-wide ones.
    found = re.fullmatch(r"gfx(\d{1,2})[0-9a-f]{2}(:\w+[+-])*", arch)
    return ("rocm", 64 if int(found[1]) < 10 else 32) if found else None


def environment(base, drivers, code, gpus, scratch, **settings):
    """Returns the environment `base`, changed so that the process loads the software GPU's libcuda
    and libamdhip64.

    drivers: the folder of the replacement drivers. code: the code folder. gpus: OPDOCK_SOFTGPU's
    list, each with an "arch". scratch: a folder for files that the process reads. settings: more
    members of OPDOCK_SOFTGPU: "seed", "failures", … (core/softgpu/driver).
    """
    # These variables hide GPUs; they are meant for the user's real ones.
    visible = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
    env = {name: value for name, value in base.items() if name not in visible}
    others = env.get("LD_LIBRARY_PATH")
    env |= {
        "LD_LIBRARY_PATH": f"{drivers}:{others}" if others else str(drivers),
        "OPDOCK_SOFTGPU": json.dumps({"gpus": gpus, "code": str(code), **settings}),
        # Keeps the sources of kernels compiled at run time, so that they can be executed.
        "OPDOCK_JIT_KEEP": str(code),
        "OPDOCK_ATTENTION": "own",  # cuDNN needs a real GPU
    }
    if any(kind_of(gpu["arch"])[0] == "rocm" for gpu in gpus):
        # Opdock reads what it knows of AMD GPUs from the kernel driver's files.
        kfd = Path(scratch) / "kfd"
        subprocess.run([Path(drivers) / "softgpu-kfd", kfd], env=env, check=True)
        env["OPDOCK_KFD"] = str(kfd)
    return env


def fill_code(program, plugins, code):
    """Fills the code folder from the plugins' images. program: opdock-soft-code. Returns whether it
    succeeded; otherwise the program has printed the reason."""
    words = [program, *map(str, plugins), str(code)]
    return subprocess.run(words, stdout=subprocess.DEVNULL).returncode == 0


def code_folder():
    """Returns the folder in which sources and their compiled code are kept between runs."""
    cache = os.environ.get("OPDOCK_CACHE_DIR") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "opdock"
    )
    return Path(cache) / "soft"


def counted(path):
    """Returns the counts {"passed": …, "failed": …, "skipped": …, "not run": …} of a JUnit file."""
    counts = {"passed": 0, "failed": 0, "skipped": 0, "not run": 0}
    if path.exists():
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            tags = {child.tag: child.get("message", "") for child in case}
            if tags.keys() & {"failure", "error"}:
                counts["failed"] += 1
            elif "skipped" in tags:
                counts["not run" if tags["skipped"].startswith("not run: ") else "skipped"] += 1
            else:
                counts["passed"] += 1
    return counts


def print_counters(path):
    """Prints the table of --counters: the sums over all launches, by kernel."""
    if not path.exists():
        print("no counters: the software GPU wrote none")
        return
    rows = [[title for _, title in _COUNTERS]]
    for kernel in json.loads(path.read_text()):
        rows.append([str(kernel[name]) for name, _ in _COUNTERS])
    widths = [max(len(row[i]) for row in rows) for i in range(len(_COUNTERS))]
    for row in rows:
        cells = [row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]
        print("  ".join(cells).rstrip())


def why_not(report, backend, drivers):
    """Returns why the plugin cannot run on software GPUs of this backend; None if it can."""
    if all(device["device"].split(":")[0] != backend for device in report["devices"]):
        return f"the plugin has no ops for {backend}"
    images = [image for image in report["images"] if image["backend"] == backend]
    if any(image["container"] != "opdock" for image in images):
        compiler = "nvcc" if backend == "cuda" else "hipcc"
        return f"its kernels are compiled by {compiler}, and linked with a runtime that needs a GPU"
    if not (Path(drivers) / _LIBRARIES[backend]).exists():
        return f"this Opdock has no stand-in for {_LIBRARIES[backend]}"
    return None


def run_one(run, base, report, arch, progress, options, code):
    """Runs the tests on one software GPU.

    progress: its number and their count, "1 of 3". Returns (a line with the outcome, whether all is
    well, or None if nothing could be run).
    """
    backend, warp = kind_of(arch)
    title = f"{arch} ({backend}, warps of {warp})"
    if reason := why_not(report, backend, options["drivers"]):
        return f"{title}: not run: {reason}", None
    print(f"== {progress}: {title}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        results, findings, counters = (
            Path(folder) / name for name in ("junit.xml", "findings", "counters.json")
        )
        settings = {"seed": options["seed"], "findings": str(findings), "leaks": True}
        if options["counters"]:
            settings["counters"] = str(counters)
        gpus = [{"arch": arch}]
        env = environment(base, options["drivers"], code, gpus, folder, **settings)
        env["OPDOCK_TEST_DEVICES"] = backend
        status = run([f"--junitxml={results}"], env)
        counts = counted(results)
        found = len(findings.read_text().splitlines()) if findings.exists() else 0
        if options["counters"]:
            print_counters(counters)
    parts = [f"{count} {what}" for what, count in counts.items() if count or what == "passed"]
    parts += [f"{found} finding{'s' if found > 1 else ''}"] if found else []
    good = status == 0 and found == 0 and counts["passed"] > 0
    if status == 0 and not counts["passed"]:
        parts.append("nothing ran")
    return f"{title}: {', '.join(parts)}", good


def claimed_archs(report, archs):
    """Returns the elements of `archs` that the plugin has ops for; all of them if it has none."""
    claimed = {device["device"].split(":")[0] for device in report["devices"]}
    return [arch for arch in archs if kind_of(arch)[0] in claimed] or archs


def wanted_archs(options):
    """Returns the architectures to test; raises ValueError for an invalid option."""
    if options["arch"]:
        arch = re.sub(r"^(\d{1,2})\.(\d)$", r"sm_\1\2", options["arch"])  # "9.0" is sm_90
        kind = kind_of(arch)
        if kind is None:
            raise ValueError(
                f'found the architecture "{arch}", wanted one such as sm_90, 9.0, gfx1030 or gfx90a'
            )
        if options["warp"] not in (0, kind[1]):
            raise ValueError(
                f"found --warp={options['warp']} for {arch}, whose warps have {kind[1]} "
                "threads; leave one of the two out"
            )
        return [arch]
    return [a for a, (_, warp) in KINDS.items() if options["warp"] in (0, warp)]


def build_arguments(archs):
    """Returns the arguments of `opdock build` that build images for these architectures."""
    lists = {"--archs": [], "--hip-archs": []}
    for arch in archs:
        number = arch.removeprefix("sm_")
        if number == arch:
            lists["--hip-archs"].append(arch)
        else:
            digits = number.rstrip("af")
            lists["--archs"].append(f"{digits[:-1]}.{digits[-1]}{number[len(digits) :]}")
    return [f"{name}={';'.join(values)}" for name, values in lists.items() if values]


def test(run, base, plugin, report, options):
    """Runs the tests on each software GPU in turn and prints the outcomes; returns the exit status.

    run(arguments, env): runs pytest with these additional arguments; returns its status. base: the
    environment for a test of this plugin. plugin: the built file. report: opdock.inspect() of it.
    options: the options of the command.
    """
    code = code_folder()
    code.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not fill_code(options["code"], [plugin], code):
        return 1
    archs = wanted_archs(options)
    if not options["arch"]:  # do not mention GPUs that were not asked for
        archs = claimed_archs(report, archs)
    lines = [
        run_one(run, base, report, arch, f"{number} of {len(archs)}", options, code)
        for number, arch in enumerate(archs, 1)
    ]
    print()
    for line, _ in lines:
        print(line)
    outcomes = [good for _, good in lines if good is not None]
    return 0 if outcomes and all(outcomes) else 1
