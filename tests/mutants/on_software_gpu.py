# SPDX-License-Identifier: Apache-2.0
"""Runs a plugin's own tests on one software GPU, with the plugin from the build folder.

on_software_gpu.py ARCH FILE [PYTEST_ARGS…]      FILE: plugins/NAME/test_….py

A finding of the software GPU is also a failure, as with `opdock test --device=soft`."""

import os
import sys
from pathlib import Path

import opdock
from opdock._author import commands, prepare, soft

arch, file, *arguments = sys.argv[1:]
os.environ.setdefault("OPDOCK_TEST_WAYS", "1")  # the cases that the grids run by day
build = Path(os.environ["OPDOCK_BUILD_DIR"])
folder = Path(file).resolve().parent
plugin = str(build / "plugins" / f"{folder.name}.so")
tools = build / "libexec" / "opdock"
options = {"arch": arch, "warp": 0, "seed": 1, "counters": False}
options |= {"drivers": str(tools / "softgpu"), "code": str(tools / "opdock-soft-code")}
report = opdock.inspect(plugin)


def run(more, env):
    return commands.run("test", folder, [Path(file).resolve()], ["-x", *arguments, *more], env)


sys.exit(soft.test(run, prepare.environment(plugin, report), plugin, report, options))
