# SPDX-License-Identifier: Apache-2.0
"""Writes a small package of DeepSpeed's shape, on which install() is tested without DeepSpeed."""

FILES = {
    "__init__.py": "__version__ = '0.0.small'\n",
    "ops/__init__.py": "",
    "ops/op_builder/__init__.py": """
from .builder import CUDAOpBuilder, OpBuilder
from .async_io import AsyncIOBuilder
from .fused_adam import FusedAdamBuilder
from .gds import GDSBuilder
from .no_impl import NotImplementedBuilder
InferenceBuilder = DeepCompileBuilder = NotImplementedBuilder
ALL_OPS = {op.name: op for op in (AsyncIOBuilder(), FusedAdamBuilder(), GDSBuilder())}
""",
    "ops/op_builder/builder.py": """
from abc import ABC, abstractmethod

cuda_minor_mismatch_ok = {12: ["12.0"]}

class OpBuilder(ABC):
    def __init__(self, name):
        self.name, self.jit_mode, self.error_log = name, False, None
    @abstractmethod
    def absolute_name(self): ...
    @abstractmethod
    def sources(self): ...
    def include_paths(self): return []
    def cxx_args(self): return []
    def nvcc_args(self): return []
    def is_compatible(self, verbose=False): return True
    def load(self, verbose=False): return self.jit_load(verbose)
    def jit_load(self, verbose=True): return f"their {self.name}"
    def builder(self): return f"their extension {self.name}"

class CUDAOpBuilder(OpBuilder):
    def is_compatible(self, verbose=False): return super().is_compatible(verbose)
""",
    "ops/op_builder/async_io.py": """
from .builder import OpBuilder
class AsyncIOBuilder(OpBuilder):
    NAME = "async_io"
    def __init__(self): super().__init__(name=self.NAME)
    def absolute_name(self): return "deepspeed.ops.aio.async_io_op"
    def sources(self): return ["csrc/aio.cpp"]
    def load(self, verbose=False): return "their own load of async_io"
    def is_compatible(self, verbose=False): return False
""",
    "ops/op_builder/fused_adam.py": """
from .builder import CUDAOpBuilder
class FusedAdamBuilder(CUDAOpBuilder):
    NAME = "fused_adam"
    def __init__(self): super().__init__(name=self.NAME)
    def absolute_name(self): return "deepspeed.ops.adam.fused_adam_op"
    def sources(self): return ["csrc/adam.cpp"]
""",
    "ops/op_builder/gds.py": """
from .builder import CUDAOpBuilder
class GDSBuilder(CUDAOpBuilder):
    NAME = "gds"
    def __init__(self): super().__init__(name=self.NAME)
    def absolute_name(self): return "deepspeed.ops.gds.gds_op"
    def sources(self): return ["csrc/gds.cpp"]
""",
    "ops/op_builder/no_impl.py": """
from .builder import OpBuilder
class NotImplementedBuilder(OpBuilder):
    NAME = "deepspeed_not_implemented"
    def __init__(self, name=None): super().__init__(name=name or self.NAME)
    def absolute_name(self): return "deepspeed.not_implemented"
    def sources(self): return []
    def load(self, verbose=True): raise ValueError("not implemented here")
""",
    "uses.py": """
from deepspeed.ops.op_builder import InferenceBuilder
""",
    "model_implementations/__init__.py": "",
    "model_implementations/transformers/__init__.py": "",
    "model_implementations/transformers/ds_transformer.py": """
import torch
class DeepSpeedTransformerInference(torch.nn.Module):
    layer_id = 0
    def __init__(self, config):
        super().__init__()
        self.config = config
        config.layer_id = DeepSpeedTransformerInference.layer_id
        DeepSpeedTransformerInference.layer_id += 1
    def forward(self, call):
        return call(self.config.layer_id)
class Other(DeepSpeedTransformerInference):
    def forward(self, call):
        return call(self.config.layer_id)
""",
    "git_version_info.py": """
installed_ops = {"async_io": False, "fused_adam": False, "gds": False}
""",
}


def write(folder):
    """Writes the package below `folder`, to be put on PYTHONPATH."""
    for name, text in FILES.items():
        path = folder / "deepspeed" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder
