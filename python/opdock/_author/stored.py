# SPDX-License-Identifier: Apache-2.0
"""What opdock.h's opdock_tuning_json does, from Python."""

import json

from opdock import _opdock


def tuning(action, **request):
    """The object that the action writes; opdock.h describes both. Raises as opdock's functions do,
    IncompatibleError if there is no cache to store in."""
    return json.loads(_opdock.tuning_json(action, json.dumps(request) if request else None))
