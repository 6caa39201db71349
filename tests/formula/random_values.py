# SPDX-License-Identifier: Apache-2.0
"""Random tensors for random formulas: their shapes, strides and numbers."""

import dataclasses
import math

import torch

DTYPES = [
    "float32",
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "int32",
    "int64",
    "int8",
    "uint8",
    "bool",
]


def make_space(pick):
    """Returns the shape to which the tensors of a formula can be broadcast."""
    rank = pick.choice([0, 1, 2, 2, 2, 3, 4])
    shape = [pick.choice([1, 2, 3, 4, 5, 7, 8]) for _ in range(rank)]
    if rank and pick.random() < 0.3:
        shape[-1] = pick.choice([16, 17, 33, 64, 130, 300])
    while math.prod(shape) > 1500:
        shape[shape.index(max(shape[:-1]))] = 1
    return tuple(shape)


@dataclasses.dataclass
class Input:
    name: str
    dtype: str
    shape: tuple
    layout: str
    special: bool
    seed: int
    calm: bool  # ordinary numbers only

    @classmethod
    def make(cls, pick, name, seed, space, calm, special):
        dtype = "float64" if calm else pick.choice(DTYPES)
        shape = list(space)
        if pick.random() < 0.5:
            shape = shape[pick.randint(0, len(shape)) :]
            shape = [1 if pick.random() < 0.25 else n for n in shape]
        layout = pick.choice(["contiguous", "contiguous", "transposed", "sliced", "expanded"])
        return cls(name, dtype, tuple(shape), layout, special, seed, calm)

    def _numbers(self, count):
        g = torch.Generator().manual_seed(self.seed * 8 + int(self.name[1:]))
        if self.dtype == "bool":
            return torch.randint(0, 2, (count,), generator=g).bool()
        torch_type = getattr(torch, self.dtype)
        if not torch_type.is_floating_point:
            info = torch.iinfo(torch_type)
            least = max(info.min, -100)
            x = torch.randint(least, 100, (count,), generator=g)
            ends = torch.tensor([info.min, info.max, 0, 1, info.max - 1])
            at = torch.randint(0, 5, (count,), generator=g)
            use = torch.rand(count, generator=g) < (0.1 if self.special else 0)
            return torch.where(use, ends[at], x).to(torch_type)
        x = torch.randn(count, generator=g, dtype=torch.float64)
        scale = torch.rand((), generator=g)
        x = x * (10 if scale < 0.2 and not self.calm else 1)
        if self.calm:
            return x
        info = torch.finfo(torch_type)
        ends = [0.0, -0.0, math.inf, -math.inf, math.nan, info.max, -info.max, info.tiny, 1.0, -1.0]
        ends += [0.5, 2.5, info.max * 0.4, info.smallest_normal * info.eps, -info.tiny, 100.0]
        ends = torch.tensor(ends, dtype=torch.float64)
        at = torch.randint(0, len(ends), (count,), generator=g)
        use = torch.rand(count, generator=g) < (0.1 if self.special else 0)
        return torch.where(use, ends[at], x.to(torch_type).double()).to(torch_type)

    def data(self):
        shape = self.shape
        if not shape:
            return self._numbers(1).reshape(())
        if self.layout == "transposed":
            return (
                self._numbers(math.prod(shape))
                .reshape(shape[::-1])
                .permute(*range(len(shape))[::-1])
            )
        if self.layout == "sliced":
            whole = [2 * n + 1 for n in shape]
            x = self._numbers(math.prod(whole)).reshape(whole)
            return x[tuple(slice(1, None, 2) for _ in shape)]
        if self.layout == "expanded":
            at = self.seed % len(shape)
            short = [1 if d == at else n for d, n in enumerate(shape)]
            return self._numbers(math.prod(short)).reshape(short).expand(shape)
        return self._numbers(math.prod(shape)).reshape(shape)

    def describe(self):
        return f"{self.dtype} {list(self.shape)}, {self.layout}" + (
            ", special values" if self.special else ""
        )
