# SPDX-License-Identifier: Apache-2.0
"""Plugins' test_*.py on one software GPU, as one Meson test.

    grid.py NAME PLUGINS ARCH SEED PYTEST_ARGS…

NAME is the Meson test's name; PLUGINS names below plugins/, with commas between. Fails as well
where the run left a finding behind, leaked device memory among them, or where nothing of a plugin
was executed. Skipped (77) for an AMD GPU where the plugins were packed without hipRTC.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import opdock
from opdock import _soft

ROOT = Path(__file__).resolve().parents[3]


def executed(record, plugin):
    """How many kernels of a plugin, whose names contain its own, the run launched."""
    lines = map(json.loads, record.read_text().splitlines()) if record.exists() else []
    launches = [x for x in lines if x["event"] == "launch" and not x.get("result")]
    return sum(plugin in launch["function"] for launch in launches)


def main():
    name, plugins, arch, seed, *arguments = sys.argv[1:]
    plugins = plugins.split(",")
    build = Path(os.environ["OPDOCK_BUILD_DIR"])
    tools = build / "libexec" / "opdock"
    backend, _ = _soft.kind_of(arch)
    code = build / "tests" / "softgpu" / "ops" / "code"
    code.mkdir(parents=True, exist_ok=True)
    binaries = [build / "plugins" / f"{plugin}.so" for plugin in plugins]
    for binary in binaries if backend == "rocm" else []:
        if not opdock.inspect(str(binary))["hip_archs"]:
            print(f"{binary} has no code objects: it was packed without hipRTC")
            return 77
    if not _soft.fill_code(tools / "opdock-soft-code", binaries, code):
        return 1
    with tempfile.TemporaryDirectory() as folder:
        findings, record = Path(folder) / "findings", Path(folder) / "record"
        settings = {"seed": int(seed), "findings": str(findings), "leaks": True}
        gpus = [{"arch": arch}]
        env = _soft.environment(os.environ, tools / "softgpu", code, gpus, folder, **settings) | {
            "OPDOCK_SOFTGPU_RECORD": str(record),
            "OPDOCK_TEST_DEVICES": backend,
            "OPDOCK_PLUGIN_PATH": str(build / "plugins"),
            "OPDOCK_BUILD": "never",
            "OPDOCK_FALLBACK": "error",
        }
        words = [sys.executable, ROOT / "tests" / "run_pytest.py", name]
        words += ["--import-mode=importlib", *(ROOT / "plugins" / plugin for plugin in plugins)]
        words += arguments
        status = subprocess.run(words, env=env).returncode
        found = findings.read_text() if findings.exists() else ""
        launches = {plugin: executed(record, plugin) for plugin in plugins}
    print(f"launches: {launches}, seed {seed}")
    if found or not all(launches.values()):
        print(f"the software GPU found:\n{found}" if found else "no kernel was executed")
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main())
