# SPDX-License-Identifier: Apache-2.0
"""Implements `opdock bench --tune` and `--forget` (docs/guide/tuning.md): finds the plugins that
are meant, and measures each in a separate process (measure.py).
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import opdock
from opdock._author import prepare
from opdock._author.stored import tuning


def name_in(folder):
    """Returns the name of the source plugin in a folder."""
    text = (folder / "plugin.toml").read_text()
    found = re.search(r"""^name\s*=\s*["']([^"']+)["']""", text, re.MULTILINE)
    if found is None:
        raise prepare.Problem(f'found no name = "…" in {folder / "plugin.toml"}, wanted it there')
    return found[1]


def meant(words, known):
    """Returns [(name, folder)] of the plugins that the words name.

    words: folders, plugin.toml files, or names of source plugins among `known`, the reports of
    opdock.plugins(). Without words, all source plugins of `known` that have benches.
    """
    sources = {p["name"]: Path(p["path"]) for p in known if p["kind"] == "source"}
    sources = {n: p.parent if p.name == "plugin.toml" else p for n, p in sources.items()}
    if not words:
        return [(n, p) for n, p in sources.items() if list(p.glob(prepare.KINDS["bench"]))]
    found = []
    for word in words:
        path = Path(word)
        folder = path.parent if path.name == "plugin.toml" else path
        if (folder / "plugin.toml").is_file():
            found.append((name_in(folder), folder))
        elif word in sources:
            found.append((word, sources[word]))
        else:
            raise prepare.Problem(
                f"found no source plugin {word!r}, wanted one whose bench_*.py says what to "
                "measure; name the folder that has it"
            )
    return found


def variables(command, name, folder, known):
    """Returns the environment of the measuring process; None if the plugin cannot be built. The
    process uses the plugin of that name that programs find here, or else one built from the
    folder."""
    for report in known:
        usable = report["usable"] if report["kind"] == "binary" else report["verdict"] != "rejected"
        if report.get("name") == name and usable:
            claimed = {device["device"].split(":")[0] for device in report.get("devices", [])}
            more = {"OPDOCK_TEST_DEVICES": ",".join(sorted(claimed))} if claimed else {}
            more |= prepare.at_once(os.environ) | {"PYTHONDONTWRITEBYTECODE": "1"}
            return {**os.environ, "OPDOCK_FALLBACK": "error"} | more
    plugin = prepare.build(command, folder)
    if plugin is None:
        return None
    print(f"{name}: no plugin of that name is found here; measures the one built from {folder}")
    env = prepare.environment(plugin, opdock.inspect(plugin))
    return env | prepare.at_once(env)


def tune(command, device, words):
    """Measures the plugins that `words` name, on `device` or on all; returns the exit status."""
    prepare.check_packages("bench")
    tuning("list")  # raises IncompatibleError if nothing can be stored
    known = opdock.plugins()
    plugins = meant(words, known)
    if not plugins:
        raise prepare.Problem(
            "found no source plugin with benches, wanted the folder of one; name it"
        )
    status = 0
    for name, folder in plugins:
        files = sorted(folder.glob(prepare.KINDS["bench"]))
        if not files:
            raise prepare.Problem(
                f"found no bench_*.py in {folder}, wanted one with candidates(x), which says what "
                "to measure (docs/guide/tuning.md)"
            )
        env = variables(command, name, folder, known)
        if env is None:
            status = 1
            continue
        call = [sys.executable, "-m", "opdock._author.measure", name, device, *map(str, files)]
        status = max(status, abs(subprocess.run(call, env=env).returncode))
    return 1 if status else 0


def forget(words):
    """Deletes the stored choices of the plugins that `words` name, or of all; returns the exit
    status."""
    names = [name_in(Path(w)) if (Path(w) / "plugin.toml").is_file() else w for w in words]
    for name in names or [None]:
        found = tuning("forget", **({} if name is None else {"plugin": name}))
        for one in found["stored"]:
            print(
                f"forgot {len(one['results'])} choices of {one['plugin']} {one['version']}", end=""
            )
            print(f" on {one['device']}")
        if not found["stored"]:
            print(f"nothing is stored of {name or 'any plugin'} in {found['folder']}")
    return 0
