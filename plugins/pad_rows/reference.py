# SPDX-License-Identifier: Apache-2.0
"""pad_rows in PyTorch: the plugin's fallback."""


def pad_rows(x, rows, columns):
    """Returns x in the upper left of matrices of rows x columns, and zeros elsewhere."""
    if rows < x.shape[-2] or columns < x.shape[-1]:
        raise ValueError(f"found {rows} x {columns}, wanted at least the {x.shape[-2:]} of x")
    found = x.new_zeros(*x.shape[:-2], rows, columns)
    found[..., : x.shape[-2], : x.shape[-1]] = x
    return found
