# SPDX-License-Identifier: Apache-2.0
"""The classes MatMul and Softmax of DeepSpeed 0.7.7's sparse attention, on PyTorch's functions.

DeepSpeed's own need Triton 1.0.0, which no torch of today works with. A layout [heads, rows,
columns] is not 0 where a block of block x block elements is present. A sparse tensor is [batch,
blocks, block, block], its blocks in the order of layout.nonzero(). Gradients are autograd's.
"""

import torch

from opdock._errors import InvalidArgumentError


def _refuse(name, argument, found, wanted):
    raise InvalidArgumentError(f"{name}: argument {argument!r}: found {found}, wanted {wanted}")


class _Layout:
    """Where the blocks of a sparse tensor are, as index tensors on the device of a call."""

    def __init__(self, name, layout, block):
        if layout.dim() != 3:
            _refuse(name, "layout", f"{layout.dim()} dimensions", "3: heads, rows, columns")
        self.name, self.block = name, block
        self.heads, self.rows, self.columns = layout.shape
        self._at = layout.nonzero().unbind(1)

    def on(self, device):
        """Returns the head, row and column of each block."""
        if self._at[0].device != device:
            self._at = tuple(index.to(device) for index in self._at)
        return self._at

    def check(self, argument, x):
        """Refuses a sparse tensor that has not this layout."""
        wanted = (self._at[0].numel(), self.block, self.block)
        if x.dim() != 4 or tuple(x.shape[1:]) != wanted:
            _refuse(self.name, argument, f"shape {tuple(x.shape)}", f"[batch, *{list(wanted)}]")

    def check_dense(self, argument, x, rows=None, columns=None):
        """Refuses a dense tensor of other heads, or of other rows or columns if these are given."""
        sizes = [None if n is None else n * self.block for n in (rows, columns)]
        fits = x.dim() == 4 and x.shape[1] == self.heads
        if not fits or any(n is not None and n != x.shape[i - 2] for i, n in enumerate(sizes)):
            wanted = ", ".join("any" if n is None else str(n) for n in sizes)
            found = f"shape {tuple(x.shape)}"
            _refuse(self.name, argument, found, f"[batch, {self.heads}, {wanted}]")

    def add_up(self, blocks, head, place, count):
        """Adds up blocks [batch, blocks, ...] of one head and place: [batch, heads * count, ...],
        in float32 at least."""
        wide = blocks.double() if blocks.dtype == torch.float64 else blocks.float()
        total = wide.new_zeros(wide.shape[0], self.heads * count, *wide.shape[2:])
        return total.index_add(1, head * count + place, wide)


class MatMul:
    """A product of matrices of which one is sparse.

    mode: "sdd" (the result is sparse), "dsd" (the first factor is) or "dds" (the second is). block:
    the rows and columns of a block. trans_a, trans_b: whether the factors are transposed. Called
    with two factors, dense ones [batch, heads, rows, columns], it returns the product in the dtype
    of the first. Raises InvalidArgumentError for another mode and for shapes that do not fit.
    """

    def __init__(self, layout, block, mode, trans_a=False, trans_b=False):
        if mode not in ("sdd", "dsd", "dds"):
            _refuse("MatMul", "mode", repr(mode), '"sdd", "dsd" or "dds"')
        self._layout = _Layout("MatMul", layout, block)
        self.mode, self.trans_a, self.trans_b = mode, bool(trans_a), bool(trans_b)

    def __call__(self, a, b):
        return getattr(self, f"_{self.mode}")(a, b).to(a.dtype)

    def _sdd(self, a, b):
        layout = self._layout
        a, b = a.mT if self.trans_a else a, b if self.trans_b else b.mT
        layout.check_dense("a", a, rows=layout.rows)
        layout.check_dense("b", b, rows=layout.columns)
        head, row, column = layout.on(a.device)
        a, b = (x.unflatten(2, (-1, layout.block)) for x in (a, b))
        return a[:, head, row] @ b[:, head, column].mT

    def _dsd(self, a, b):
        """The first factor is sparse."""
        layout = self._layout
        layout.check("a", a)
        head, to, of = layout.on(a.device)
        rows, inner = layout.rows, layout.columns
        if self.trans_a:
            a, to, of, rows, inner = a.mT, of, to, inner, rows
        b = b.mT if self.trans_b else b
        layout.check_dense("b", b, rows=inner)
        products = a @ b.unflatten(2, (-1, layout.block))[:, head, of]
        total = layout.add_up(products, head, to, rows)
        return total.reshape(a.shape[0], layout.heads, rows * layout.block, b.shape[-1])

    def _dds(self, a, b):
        """The second factor is sparse: the product is that of the transposes, transposed."""
        turned = MatMul.__new__(MatMul)
        turned._layout, turned.trans_a, turned.trans_b = self._layout, not self.trans_b, False
        return turned._dsd(b, a if self.trans_a else a.mT).mT


class Softmax:
    """The softmax over the rows of a sparse tensor; absent blocks count as -infinity.

    Called with x, a sparse tensor, it returns a sparse tensor in its dtype; DeepSpeed's overwrites
    x. x is multiplied by scale. rpe: is added; of a shape that fits [batch, heads, rows, columns].
    key_padding_mask [batch, columns], attn_mask [rows, columns]: with the mode "add" they are
    added, with "mul" elements where they are 0 do not count. A row in which nothing counts is 0.
    """

    def __init__(self, layout, block):
        self._layout = _Layout("Softmax", layout, block)

    def __call__(
        self,
        x,
        scale=1.0,
        rpe=None,
        key_padding_mask=None,
        attn_mask=None,
        key_padding_mask_mode="add",
        attn_mask_mode="add",
    ):
        layout = self._layout
        layout.check("x", x)
        head, row, _ = layout.on(x.device)
        wide = x * scale if x.dtype == torch.float64 else x.float() * scale
        if rpe is not None:
            wide = wide + self._blocks(rpe, x)
        if key_padding_mask is not None:
            mask = self._blocks(key_padding_mask[:, None, None, :], x)
            wide = self._masked(wide, mask, "key_padding_mask_mode", key_padding_mask_mode)
        if attn_mask is not None:
            mask = self._blocks(attn_mask, x)
            wide = self._masked(wide, mask, "attn_mask_mode", attn_mask_mode)
        at = head * layout.rows + row
        top = wide.detach().amax(-1)
        largest = top.new_full((x.shape[0], layout.heads * layout.rows, layout.block), -torch.inf)
        largest = largest.scatter_reduce(1, at[None, :, None].expand_as(top), top, "amax")
        largest = largest.clamp_(min=torch.finfo(top.dtype).min)
        powers = (wide - largest[:, at, :, None]).exp()
        total = layout.add_up(powers.sum(-1), head, row, layout.rows)[:, at, :, None]
        return (powers / total.masked_fill(total == 0, 1)).to(x.dtype)

    def _blocks(self, dense, x):
        """Returns the blocks of a tensor that fits [batch, heads, rows, columns]."""
        layout = self._layout
        rows, columns = layout.rows * layout.block, layout.columns * layout.block
        dense = dense.expand(x.shape[0], layout.heads, rows, columns)
        parts = dense.unflatten(3, (-1, layout.block)).unflatten(2, (-1, layout.block))
        head, row, column = layout.on(x.device)
        return parts.transpose(3, 4)[:, head, row, column]

    @staticmethod
    def _masked(wide, mask, argument, mode):
        if mode == "add":
            return wide + mask
        if mode == "mul":
            return wide.masked_fill(mask == 0, -torch.inf)
        return _refuse("Softmax", argument, repr(mode), '"add" or "mul"')
