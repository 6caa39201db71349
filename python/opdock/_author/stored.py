# SPDX-License-Identifier: Apache-2.0
"""What opdock.h's opdock_tuning_json does, from Python."""

import contextlib
import json

from opdock import _opdock
from opdock._errors import UnsupportedError


def tuning(action, **request):
    """The object that the action writes; opdock.h describes both. Raises as opdock's functions do,
    IncompatibleError if there is no cache to store in."""
    return json.loads(_opdock.tuning_json(action, json.dumps(request) if request else None))


def in_each_way(function):
    """[(way, what function() returns)]: first -1, the plugin's own way, then each that the ops it
    calls ask the host for (docs/tuning.md): for tests that all of them compute the same. A way in
    which an op cannot be called (UnsupportedError) is left out. Not beside other threads' calls."""
    try:
        tuning("measure", choice=-1)
        found = [(-1, function())]
        count = max((one["count"] for one in tuning("asked")["asked"]), default=0)
        for way in range(count):
            tuning("measure", choice=way)
            with contextlib.suppress(UnsupportedError):
                found.append((way, function()))
        return found
    finally:
        tuning("stop")
