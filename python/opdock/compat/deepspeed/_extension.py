# SPDX-License-Identifier: Apache-2.0
"""Builds ops ahead of time: a setuptools Extension for a builder, and the command that builds
it."""

import os
import shutil

from setuptools import Extension
from setuptools.command.build_ext import build_ext

from opdock import _reports
from opdock._errors import IncompatibleError
from opdock._runtime import default, parse
from opdock.compat.deepspeed._build import build, refuse
from opdock.compat.deepspeed._plugin_ops import SERVED
from opdock.compat.deepspeed._say import say
from opdock.compat.deepspeed._served import plugin_folder
from opdock.compat.deepspeed._verdict import verdict

_MODULE = """# Written by Opdock's build_ext: the op {name} is served by Opdock's plugin.
import sys

from opdock.compat.deepspeed import {module}

sys.modules[__name__] = {module}
"""


class OpdockExtension(Extension):
    """The Extension that OpBuilder.builder() returns. BuildExtension asks its `op_builder` for
    sources and arguments only when it builds."""

    def __init__(self, op_builder):
        super().__init__(op_builder.absolute_name(), sources=[])
        self.op_builder = op_builder

    @property
    def is_served(self):
        """Whether one of Opdock's plugins serves the op."""
        name = getattr(self.op_builder, "NAME", None)
        if getattr(self.op_builder, "_has_own_sources", lambda: False)():
            return False
        theirs = type(self.op_builder).__module__.split(".")
        own = "op_builder" in theirs or theirs[:3] == ["opdock", "compat", "deepspeed"]
        return own and name in SERVED


def _base():
    """Returns torch's BuildExtension if torch is installed, since other extensions of the same
    setup.py may need it; else setuptools' build_ext."""
    try:
        from torch.utils.cpp_extension import BuildExtension as base
    except ImportError:
        return build_ext
    return base


class BuildExtension(_base()):
    """A build_ext command that builds OpdockExtensions with Opdock, and every other Extension as
    usual.

    An op with its own sources is built to its module. For an op of DeepSpeed's that a plugin
    serves, a Python file is written that imports Opdock's module; if no usable plugin is found, the
    plugin is built into Opdock's cache, which must be possible here. Only the files that the
    Extension names are installed. Raises IncompatibleError, with the reasons, if one cannot be
    built.
    """

    def build_extensions(self):
        ours = [e for e in self.extensions if isinstance(e, OpdockExtension)]
        others = [e for e in self.extensions if not isinstance(e, OpdockExtension)]
        for extension in ours:
            self._build(extension)
        if others:
            self.extensions = others
            try:
                super().build_extensions()
            finally:
                self.extensions = ours + others

    def get_ext_filename(self, ext_name):
        found = super().get_ext_filename(ext_name)
        for extension in self.extensions or ():
            is_ours = isinstance(extension, OpdockExtension) and extension.is_served
            if is_ours and ext_name in (extension.name, extension.name.rpartition(".")[2]):
                return os.path.join(*ext_name.split(".")) + ".py"
        return found

    def _build(self, extension):
        target = self.get_ext_fullpath(extension.name)
        os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
        if extension.is_served:
            name = extension.op_builder.NAME
            _build_plugins(name)
            with open(target, "w", encoding="utf-8") as file:
                file.write(_MODULE.format(name=name, module=SERVED[name][0]))
            return
        built = build(extension.op_builder, extension.name.rpartition(".")[2])
        shutil.copyfile(built.path, target)
        os.chmod(target, 0o755)


def _build_plugins(name):
    """Builds each plugin behind DeepSpeed's op `name` into the cache, unless a usable one is
    found."""
    for op in SERVED[name][1]:
        if not any(one["usable"] for one in _reports.explain(op)["candidates"]):
            _build_plugin(name, op)


def _build_plugin(name, op):
    folder = plugin_folder(op)
    if folder is None:
        found = verdict(name)
        error = IncompatibleError(f"{name}: {found.text}")
        error.reasons = found.reasons
        raise error
    report = parse(default().build_json(folder))
    if report["path"] is None:
        refuse(name, report)
    if report["built"]:
        say(f"{name}: its plugin was built: {report['path']}")
