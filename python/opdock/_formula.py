# SPDX-License-Identifier: Apache-2.0
"""Makes functions of formulas: opdock.formula()."""

from opdock import _names, _opdock
from opdock._runtime import default


def formula(text, schema=None):
    """Returns the function that computes a formula, on the CPU or on a GPU, in one pass.

        silu_mul = opdock.formula("gate * sigmoid(gate) * up")
        y = silu_mul(gate, up)

    text: the formula; docs/reference/formulas.md has the language. schema: the function's parameters
    and results, such as "rms_norm(Tensor x, Tensor? weight=None, *, float eps=1e-5) -> Tensor"; a
    result Tensor(a!) is written into the parameter that has the same mark. None: the names that the
    formula uses are its tensors, in the order of their first use.

    The function takes torch, NumPy, CuPy and JAX arrays of bool, integer and float dtypes, of any
    shapes that can be broadcast and any strides, all on one device, and returns new arrays of
    torch's result dtypes, as ops do; `out=` works as well. float16 and bfloat16 are computed in
    float32 and rounded once, at the end. A GPU's kernel is compiled by the first call with these
    dtypes and this kind of layout, or taken from the cache; later shapes use it again.

    The same texts give the same function. Any thread. Raises InvalidArgumentError for a faulty text,
    with the line and the column.
    """
    _names.text("formula", "text", text, "a str")
    if schema is not None:
        _names.text("formula", "schema", schema, "a str or None")
    return _opdock.make_formula(default(), text, schema)
