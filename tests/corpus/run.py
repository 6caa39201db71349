#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares Opdock's verdicts on the native files of public packages with the dynamic loader.

    tests/corpus/run.py --opdock COMMAND --cache FOLDER [--packages FILE] [--only NAME]…
                        [--record FILE] [--results FILE]

README.md next to this file describes the comparison and the record's fields. The exit status
is 1 if a decided verdict differs from what the loader does, 2 if a package could not be had.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import packages
import record
from compare import examine
from loader import Loader
from opdock_inspect import Inspector
from wheel import SITE, installed_path, native_files, unpack

HERE = Path(__file__).parent


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--opdock", required=True, help="the command opdock")
    parser.add_argument("--cache", required=True, type=Path, help="where fetched wheels are kept")
    parser.add_argument("--packages", type=Path, default=HERE / "packages.txt", help="the list")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="a package's name, or a group; may be repeated",
    )
    parser.add_argument("--record", type=Path, help="append the summary to this file")
    parser.add_argument("--results", type=Path, help="write what was found of each file")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    return parser.parse_args(words)


def in_groups(chosen):
    """Returns lists of packages that are unpacked together."""
    groups = {}
    for package in chosen:
        groups.setdefault(package.group or str(package), []).append(package)
    return list(groups.values())


def examine_group(group, folder, inspect, loader, pool):
    """Unpacks the wheels of one group into `folder` and yields (package, results)."""
    owner = {}
    for package, wheel in group:
        before = set(owner)
        unpack(wheel, folder / "site")
        for path in native_files(folder / "site"):
            if path not in before:
                owner[path] = package
    empty = folder / "empty"
    empty.mkdir()
    # A single wheel is inspected as it is; several form an environment's folder.
    site = folder / "site"
    members = inspect.members(group[0][1] if len(group) == 1 else site, empty) if owner else {}
    members = {
        installed_path(name)
        if len(group) == 1
        else str(Path(report["path"]).relative_to(site)): report
        for name, report in members.items()
    }
    jobs = {
        path: pool.submit(
            examine,
            path,
            package.python,
            inspect,
            loader,
            empty,
            members.get(str(path.relative_to(site))),
        )
        for path, package in owner.items()
    }
    for package, _ in group:
        results = [jobs[path].result() for path in owner if owner[path] == package]
        yield package, [without_places(result, folder, dict(group)) for result in results]


def without_places(value, folder, wheels):
    """Returns the result with file names as in the package, instead of paths on this machine."""
    if isinstance(value, str):
        for place in (folder / "site" / SITE, folder / "site", *wheels.values(), folder):
            value = value.replace(f"{place}/", "")
        return value
    if isinstance(value, list):
        return [without_places(item, folder, wheels) for item in value]
    if isinstance(value, dict):
        return {name: without_places(item, folder, wheels) for name, item in value.items()}
    return value


def main(words):
    options = parse(words)
    chosen = [
        package
        for package in packages.read_list(options.packages)
        if not options.only
        or {package.name.split("==")[0], package.group, str(package)} & set(options.only)
    ]
    inspect = Inspector(options.opdock)
    summary = record.Summary()
    out = options.results.open("w") if options.results else None
    options.cache.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir=options.cache, prefix=".run-") as temporary,
        concurrent.futures.ThreadPoolExecutor(options.jobs) as pool,
    ):
        loader = Loader(temporary)
        for number, group in enumerate(in_groups(chosen)):
            fetched = []
            for package in group:
                try:
                    fetched.append((package, packages.fetch(package, options.cache)))
                except (RuntimeError, OSError) as error:
                    summary.missing[str(package)] = str(error)
                    print(f"{package}: not fetched: {error}", flush=True)
            folder = Path(temporary, str(number))
            began, seconds = time.monotonic(), inspect.seconds
            folder.mkdir()
            for package, results in examine_group(fetched, folder, inspect, loader, pool):
                summary.add(package, results)
                if out:
                    for result in results:
                        out.write(json.dumps({"package": str(package), **result}) + "\n")
                    out.flush()
                counts = collections.Counter(result["agreement"] for result in results)
                words = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
                print(f"{package}: {words or 'no native file'}", flush=True)
            shutil.rmtree(folder)
            print(
                f"  {time.monotonic() - began:.1f} s, opdock {inspect.seconds - seconds:.2f} s",
                flush=True,
            )
    if out:
        out.close()
    summary.print()
    if options.record:
        summary.append(options.record, inspect)
    if summary.disagreements:
        return 1
    return 2 if summary.missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
