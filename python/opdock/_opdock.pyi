# SPDX-License-Identifier: Apache-2.0
import inspect
from collections.abc import Sequence
from typing import Any

class Function:
    """An op's function. Arguments go by position or by name, as its schema says."""

    __name__: str
    __qualname__: str
    __signature__: inspect.Signature
    __text_signature__: str
    schema: str
    _op_doc: str
    _params: list[tuple[str, int, int, Any]]
    _results: list[tuple[int, int, int]]
    _gradients: list[tuple[list[tuple[int, int]], str | None, list[tuple[int, int, Any]] | str]]
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

class Object:
    """State that an op created, such as an I/O handle or a cache."""

    type: str
    version: int
    device: str

class Generator:
    """A sequence of random numbers (`seed`) and the next position in it (`offset`)."""

    seed: int
    offset: int
    def __init__(self, seed: int, offset: int = 0) -> None: ...

class Kernel:
    """A kernel of opdock.compile(); calling it launches it."""

    __name__: str
    param_sizes: list[int] | None
    def __call__(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        *args: Any,
        shared: int = 0,
        stream: Any = None,
        cluster: int | Sequence[int] | None = None,
        cooperative: bool = False,
        programmatic: bool = False,
    ) -> None: ...
    def _prepare(self, device: int) -> None: ...

class Runtime:
    """Finds plugins and owns their functions."""

    def __init__(
        self,
        plugin_path: str | None = None,
        package_path: str | None = None,
        num_threads: int = 0,
        build: str | None = None,
        jit: str | None = None,
        fallback: str | None = None,
        diagnose: bool = False,
    ) -> None: ...
    def list_json(self, rescan: bool = False) -> str: ...
    def inspect_json(self, path: str) -> str: ...
    def survey_json(self, request: str) -> str: ...
    def inspect_diff_json(self, a: str, b: str) -> str: ...
    def explain_json(self, name: str) -> str: ...
    def doctor_json(self) -> str: ...
    def build_json(self, path: str, options: str = "{}") -> str: ...
    def install_json(self, path: str) -> str: ...
    def manual_seed(self, seed: int) -> None: ...

def get_function(runtime: Runtime, name: str) -> Function: ...
def make_formula(
    runtime: Runtime, formula: str, schema: str | None = None, gradients_of: str | None = None
) -> Function: ...
def make_evaluator(runtime: Runtime, function: Function, schema: str) -> Function: ...
def prepare(function: Function, device_type: int, device_index: int) -> None: ...
def codes_json() -> str: ...
def tuning_json(action: str, request: str | None = None) -> str: ...
def trust(folder: str) -> None: ...
def trust_json(action: str, path: str) -> str: ...
def note_library(library: str, version: str) -> None: ...
def _allow_tf32(allowed: bool) -> None: ...
def _torch_allows_tf32() -> bool: ...
def version() -> str: ...
