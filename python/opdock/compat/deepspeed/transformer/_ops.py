# SPDX-License-Identifier: Apache-2.0
"""Opdock's ops behind the layer, as attributes; each is looked up on first use."""

from opdock._load import load
from opdock.compat.deepspeed._plugin_ops import SERVED

_FULL_NAMES = {name.split("/")[1]: name for name in SERVED["transformer"][1]}


def __getattr__(name):
    if name not in _FULL_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    function = globals()[name] = load(_FULL_NAMES[name])
    return function
