# SPDX-License-Identifier: Apache-2.0
"""Calls opdock.h's opdock_tuning_json from Python."""

import contextlib
import json

from opdock import _opdock
from opdock._errors import UnsupportedError


def tuning(action, **request):
    """Runs an action of opdock_tuning_json and returns its result as a dict; opdock.h describes
    both. Raises as opdock's functions do, and IncompatibleError if there is no cache to store
    in."""
    return json.loads(_opdock.tuning_json(action, json.dumps(request) if request else None))


def with_each_choice(function):
    """Calls function() with each launch choice of the ops that it calls; returns [(choice,
    result)].

    Tests use it to check that all choices compute the same. The first choice is -1, the plugin's
    own; then come those that the ops ask the host for (docs/guide/tuning.md). A choice that an op
    cannot be called with (UnsupportedError) is left out. No other thread may call ops meanwhile.
    """
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
