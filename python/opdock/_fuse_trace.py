# SPDX-License-Identifier: Apache-2.0
"""Traces a function for opdock.fuse(): runs it once on stand-ins, which note what is computed.

A stand-in for an array (Array, _fuse_proxies.py) points to a Node. A node has the dtype that the
function's own library gives its value: each call is made by that library too, on samples with one
element. Where a formula's promotion, which is PyTorch's, differs, operands are converted.

A stand-in for a number (Number) is Python source over the flat list `a` of a call's arguments, such
as "a[1] * 2.0" or "a[0].shape[1]". It becomes a parameter of the formula. When the function needs
its value, that is noted as a fact: the traced result then serves only calls with the same value.
"""

import functools
import linecache
import os
import sys

from opdock._errors import InvalidArgumentError
from opdock._fuse_proxies import Array, Number

#: In the order of PyTorch's promotion (core/formula/type.h).
DTYPES = (
    *("bool", "uint8", "int8", "int16", "int32", "int64"),
    *("float16", "bfloat16", "float32", "float64"),
)
_NUMBERS = {bool: "bool", int: "int64", float: "float64"}
#: Which values decide about a dtype: numbers last, arrays with dimensions first.
NUMBER, ZERO_DIM, TENSOR = 0, 1, 2

_FOLDER = os.path.dirname(os.path.abspath(__file__))


def category(dtype):
    """Returns 0 for bool, 1 for integers, 2 for floats."""
    at = DTYPES.index(dtype)
    return 0 if at == 0 else 1 if at <= 5 else 2


def promote(a, b):
    """Returns the (dtype, level) of two operands in a formula, as core/formula/type.cc does."""
    (a_dtype, a_level), (b_dtype, b_level) = a, b
    level = max(a_level, b_level)
    if a_level == b_level:
        low, high = sorted((a_dtype, b_dtype), key=DTYPES.index)
        if (low, high) == ("uint8", "int8"):
            return "int16", level
        return ("float32" if (low, high) == ("float16", "bfloat16") else high), level
    strong, weak = (a, b) if a_level > b_level else (b, a)
    if category(weak[0]) <= category(strong[0]):
        return strong[0], level
    if weak[1] != NUMBER:
        return weak[0], level
    return ("float32" if category(weak[0]) == 2 else "int64"), level


class Place:
    """A line of the traced function, for errors."""

    def __init__(self, error=None):
        if error is None:
            frame = sys._getframe(1)
            while frame.f_back is not None and _is_library(frame.f_code.co_filename):
                frame = frame.f_back
            line = frame.f_lineno
        else:  # where the exception left the function
            steps = [
                step for step in _steps(error) if not _is_library(step.tb_frame.f_code.co_filename)
            ]
            frame, line = steps[-1].tb_frame, steps[-1].tb_lineno
        self.file, self.line, self.frame = frame.f_code.co_filename, line, frame

    def __str__(self):
        text = linecache.getline(self.file, self.line, self.frame.f_globals).strip()
        where = f"{os.path.basename(self.file)}:{self.line}"
        return f"{where}: {text}" if text else where


def _steps(error):
    step = error.__traceback__
    while step is not None:
        yield step
        step = step.tb_next


@functools.lru_cache(maxsize=1024)  # Each operation asks for each frame above it.
def _is_library(file):
    """Returns whether a file belongs to Opdock, an array library, or Python's own machinery."""
    if file.startswith("<frozen"):
        return True
    folders = [_FOLDER]
    for name in ("numpy", "torch", "cupy", "jax"):
        found = getattr(sys.modules.get(name), "__file__", None)
        if found is not None:
            folders.append(os.path.dirname(found))
    return any(file.startswith(folder + os.sep) for folder in folders)


class Operand:
    """A parameter of the formula: what `code` gives at each call. name: None for a view, which has
    the name that the function gives it."""

    def __init__(self, code, name, kind):
        self.code, self.name, self.kind = code, name, kind


class Node:
    """A value that is computed.

    form: its text with "{0}", "{1}" for the operands; None for a parameter. args: the operands,
    each (Node, literal or Operand; dtype to convert it to or None). dims: for each dimension the
    frozenset of the (code of an array, axis) that it is broadcast from; an empty one has size 1.
    is_per_row: it comes from a reduction without keepdims: its dims lack the row's, although the
    formula has it in each column. varies: whether its values may differ within a row of the
    formula. hint: the name that the function gave it. sample: the library's own value for samples.
    is_shared: another node stands for the same memory.
    """

    __slots__ = ("form", "args", "dtype", "level", "dims", "is_per_row", "varies", "operand",
                 "hint", "sample", "is_shared")  # fmt: skip

    def __init__(self, form, args, dtype, level, dims, *, is_per_row=False, varies=True, sample):
        self.form, self.args, self.dtype, self.level, self.dims = form, args, dtype, level, dims
        self.is_per_row, self.varies, self.sample = is_per_row, varies, sample
        self.operand = self.hint = None
        self.is_shared = False

    @property
    def is_literal(self):
        return self.operand is None and not self.args


def broadcast(all_dims):
    """Returns the dims of values that are broadcast together."""
    rank = max(map(len, all_dims), default=0)
    out = [frozenset()] * rank
    for dims in all_dims:
        for i, dim in enumerate(dims, rank - len(dims)):
            out[i] |= dim
    return tuple(out)


def literal(tracer, number):
    """Returns a constant's text, with all digits. number: Python's, or NumPy's of any dtype."""
    number = number.item() if hasattr(number, "item") else number
    if isinstance(number, bool):
        return str(number)
    if isinstance(number, int):
        if not -(2**63) <= number < 2**63:
            tracer.refuse(f"the number {number}", "one that int64 holds", "convert it to a float")
        text = str(int(number)) if number != -(2**63) else "-9223372036854775807 - 1"
    elif isinstance(number, float):
        text = repr(float(number))
    else:
        tracer.refuse(f"the number {number!r}", "a real number", "compute with complex outside")
    return f"({text})" if text[0] == "-" else text


class Tracer:
    """One run of a function on stand-ins.

    name: the function's, for errors. library: its arrays' (_fuse_libraries.py). flat: this call's
    arguments. is_plain: numbers are given as Python's own, and all of them are facts.
    known_call(tracer, function, args, kwargs): what a call of a function comes to
    (_fuse_functions.py). Used by one thread.
    """

    def __init__(self, name, library, flat, is_plain, known_call):
        self.name, self.library, self.flat, self.is_plain = name, library, flat, is_plain
        self.known_call = known_call
        self.operands = {}  # code -> Operand
        self.inputs = {}  # code -> Node, of arrays
        self.facts = {}  # code -> None: numbers whose value was used, in order
        self.is_open = True

    # ---- errors and facts

    def refuse(self, found, wanted, advice):
        """Raises InvalidArgumentError with the line of the function that is being traced."""
        raise InvalidArgumentError(
            f"fuse: {self.name}: found {found}, wanted {wanted}; {advice}\n  {Place()}"
        )

    def number(self, value, code, name=None):
        """Returns the stand-in for a number that `code` computes; `value` is that of this call."""
        if self.is_plain or type(value) not in (int, float):
            self.facts[code] = None
            return value
        return Number(self, value, code, name)

    def number_operand(self, number):
        """Returns the parameter of the formula that a Number is."""
        kind = type(number._value).__name__
        name = number._name or ("size" if "shape" in number._code else "number")
        return self.operands.setdefault(number._code, Operand(number._code, name, kind))

    def use(self, number):
        """Returns the value of a Number, which becomes a fact."""
        self.facts[number._code] = None
        return number._value

    # ---- arrays

    def input(self, code, name, dtype, rank, dims=None):
        """Returns the stand-in for an array that `code` gives."""
        operand = self.operands.get(code)
        if operand is None:
            operand = self.operands[code] = Operand(code, name, "Tensor")
        if dims is None:
            dims = tuple(frozenset({(code, axis)}) for axis in range(rank))
        if code in self.inputs:
            return self.library.array(self, self.inputs[code])
        level = TENSOR if rank else ZERO_DIM
        sample = self.library.sample(dtype, rank)
        node = Node(None, (), dtype, level, dims, varies=rank > 0, sample=sample)
        node.operand = operand
        self.inputs[code] = node
        return self.library.array(self, node)

    def make(self, node):
        """Returns the stand-in for a new node, and names what the function has assigned so far."""
        place = Place()
        for name, value in place.frame.f_locals.items():
            found = getattr(value, "_node", None) if isinstance(value, Array) else None
            if found is not None and found.hint is None:
                found.hint = name
        return self.library.array(self, node)

    def dtype_of(self, sample):
        """Returns the name of a sample's dtype; refuses those that formulas lack."""
        name = self.library.dtype_name(sample)
        if name not in DTYPES:
            self.refuse(
                f"a value of dtype {name}",
                "bool, uint8, int8 to int64, float16, bfloat16, float32 or float64",
                "convert the arguments first",
            )
        return name

    def emit(self, form, rule, operands, sample, compute=None):
        """Returns the stand-in for an elementwise value.

        form: its text, with "{0}" for operand 0. rule: how a formula finds the result's dtype
        ("arithmetic", "float", "bits", "where", "wide where", "compare" or "test"). operands:
        stand-ins and numbers. sample: the library's result for samples. compute: for "compare" the
        dtype in which operands are compared.
        """
        operands = [self._operand(x, operands) for x in operands]
        arrays = self._lift([x for x in operands if isinstance(x, Node)])
        operands = [arrays.get(id(x), x) for x in operands]
        nodes = [x for x in operands if isinstance(x, Node)]
        is_per_row = any(x.is_per_row for x in nodes)
        dtype = self.dtype_of(sample)
        args, dtype_found, level = self._convert(rule, operands, dtype, compute)
        if dtype_found != dtype:
            form = f"{form}.to({dtype})" if form[-1] == ")" else f"({form}).to({dtype})"
        dims = broadcast([x.dims for x in nodes])
        return self.make(
            Node(form, args, dtype, level, dims, is_per_row=is_per_row,
                 varies=any(x.varies for x in nodes), sample=sample)
        )  # fmt: skip

    def _operand(self, x, operands):
        """Returns an operand as a Node or a pair (literal or Operand, its type)."""
        if isinstance(x, Array):
            return x._open()
        if isinstance(x, Number):
            # A library checks that a number fits into a narrow integer: that needs its value.
            narrow = [
                y._node.dtype
                for y in operands
                if isinstance(y, Array) and category(y._node.dtype) == 1
            ]
            if type(x._value) is int and any(dtype != "int64" for dtype in narrow):
                x = self.use(x)
        if isinstance(x, Number):
            return x._operand(), _NUMBERS[type(x._value)]
        text = literal(self, x)
        value = x.item() if hasattr(x, "item") else x
        return text, next(dtype for kind, dtype in _NUMBERS.items() if isinstance(value, kind))

    def _lift(self, nodes):
        """Returns {id(node): node to use instead}: next to one value for each row, an argument with
        as many dimensions is seen with one more, of size 1."""
        rank = max((len(x.dims) for x in nodes if x.is_per_row), default=None)
        if rank is None:
            return {}
        lifted = {}
        for x in nodes:
            if x.is_per_row or not x.dims:
                continue
            if x.operand is None or len(x.dims) > rank:
                self.refuse(
                    "a value of each row (a reduction without keepdims) next to one of each "
                    "element",
                    "both of one kind",
                    "pass keepdims=True (torch: keepdim=True), or write r[..., None]",
                )
            seen = self.view(x, (Ellipsis, None), len(x.dims) + 1)._node
            seen.hint = seen.hint or x.hint or x.operand.name
            new = Node(None, (), seen.dtype, TENSOR, seen.dims[:-1], is_per_row=True,
                       sample=seen.sample)  # fmt: skip
            new.operand = seen.operand
            lifted[id(x)] = new
        return lifted

    def _convert(self, rule, operands, dtype, compute):
        """Returns the arguments with their conversions, and the (dtype, level) of the formula."""
        wanted = compute if rule == "compare" else None if rule == "test" else dtype
        found, level = self._natural(rule, operands)
        casts = [None] * len(operands)
        if wanted is not None and found != wanted:
            for i, x in enumerate(operands):
                if rule == "where" and i == 0:
                    continue
                if isinstance(x, Node) and not x.is_literal and x.dtype != wanted:
                    casts[i] = wanted
            found, level = self._natural(rule, operands, casts)
        args = []
        for x, cast in zip(operands, casts, strict=True):
            args.append((x, cast) if isinstance(x, Node) else (x[0], None))
        return tuple(args), ("bool" if rule in ("compare", "test") else found), level

    @staticmethod
    def _natural(rule, operands, casts=None):
        """Returns the dtype in which a formula computes, and the result's level."""
        if rule == "wide where":
            return "float64", operands[0].level
        types = []
        for i, x in enumerate(operands):
            if not isinstance(x, Node):
                types.append((x[1], NUMBER))
            elif x.is_literal:
                types.append((("bool", "int64", "float64")[category(x.dtype)], NUMBER))
            else:
                types.append(((casts and casts[i]) or x.dtype, x.level))
        level = max(level for _, level in types)
        out = types[1] if rule == "where" else types[0]
        for one in types[2 if rule == "where" else 1 :]:
            out = promote(out, one)
        dtype = out[0]
        if rule == "where" and types[0][1] and out == ("float64", NUMBER):
            dtype = "float32"  # PyTorch's default dtype
        if rule == "float" and category(dtype) != 2:
            dtype = "float32" if level else "float64"
        return dtype, level

    def reduce(self, form, rule, x, keepdim, sample):
        """Returns the stand-in for a reduction of each row. rule: "same" (the operand's dtype),
        "sum" (integers become int64), "index" (int64) or "bool"."""
        node = x._open()
        dtype = self.dtype_of(sample)
        cast = None
        if rule in ("same", "sum"):
            is_counted = rule == "sum" and category(node.dtype) < 2 and dtype == "int64"
            cast = None if is_counted or node.dtype == dtype else dtype
        natural = {"index": "int64", "bool": "bool"}.get(rule, dtype)
        if rule == "sum" and category(dtype) < 2:
            natural = "int64"
        if natural != dtype:
            form = f"{form}.to({dtype})"
        dims = node.dims[:-1]
        is_per_row = not keepdim and len(dims) > 0
        dims = (*dims, frozenset()) if keepdim else dims
        return self.make(
            Node(form, ((node, cast),), dtype, TENSOR, dims, is_per_row=is_per_row, varies=False,
                 sample=sample)
        )  # fmt: skip

    def cast(self, x, dtype, sample):
        """Returns the stand-in for x.to(dtype)."""
        node = x._open()
        if node.dtype == dtype and not node.is_literal:
            return x
        return self.make(
            Node(f"{{0}}.to({dtype})", ((node, None),), dtype, node.level, node.dims,
                 is_per_row=node.is_per_row, varies=node.varies, sample=sample)
        )  # fmt: skip

    def same(self, x, is_copy=False, **changes):
        """Returns a stand-in for the same numbers with other dims, is_per_row or sample."""
        node = x._open()
        new = Node(node.form, node.args, node.dtype, node.level, node.dims,
                   is_per_row=node.is_per_row, varies=node.varies, sample=node.sample)  # fmt: skip
        new.operand, new.hint = node.operand, node.hint
        new.is_shared = node.is_shared = node.is_shared or not is_copy
        for name, value in changes.items():
            setattr(new, name, value)
        return self.library.array(self, new)

    def write(self, target, value):
        """Changes a stand-in to another value, as an operator such as += does; returns it."""
        node, new = target._open(), value._open()
        if node.operand is not None or node.is_shared:
            what = "an argument" if node.operand is not None else "an array that has another view"
            self.refuse(f"a change of {what} in place", "new values only", "write x = x + y")
        if len(new.dims) != len(node.dims):
            self.refuse(
                f"a change of an array of {len(node.dims)} dimensions in place to one of "
                f"{len(new.dims)}",
                "a value of the same shape",
                "write x = x + y",
            )
        if new.dtype != node.dtype:
            if category(new.dtype) > category(node.dtype):
                self.refuse(
                    f"a change of a {node.dtype} array in place to {new.dtype}",
                    "a value of a dtype that can be converted",
                    "write x = x + y",
                )
            new = self.cast(value, node.dtype, node.sample)._node
        new.hint = new.hint or node.hint
        target._node = new
        return target

    def view(self, node, index, rank):
        """Returns the stand-in for the view that `index` selects of an argument, which is made
        anew at each call. index: a tuple of None, Ellipsis, ints, Numbers and slices of them, or
        the text of a method's call."""
        if isinstance(index, str):
            code = f"{node.operand.code}.{index}"
        else:
            code = f"{node.operand.code}[{', '.join(_index_code(one) for one in index)},]"
        dims = [frozenset({(code, i)}) for i in range(rank)]
        if not isinstance(index, str):
            for i in _new_axes(index, rank):  # their size is 1 in every call
                dims[i] = frozenset()
        return self.input(code, None, node.dtype, rank, tuple(dims))

    def size(self, node, axis):
        """Returns the stand-in for the size of a node's dimension."""
        found = sorted(node.dims[axis])
        if not found:
            return 1
        code = size_code(found)
        return self.number(self.evaluate(code), code)

    def evaluate(self, code):
        """Returns what `code` gives for this call's arguments."""
        return eval(code, NAMESPACE, {"a": self.flat})

    # ---- calls of the library

    def sample(self, function, args, kwargs):
        """Returns what the library's function gives for samples of these arguments."""
        with self.library.quiet():
            return function(*_samples(args), **_samples(kwargs))

    def call(self, function, args, kwargs):
        """Returns what a function of the library, an operator or a method comes to."""
        for x in _leaves((args, kwargs)):
            if isinstance(x, Array):
                x._open()
            elif is_library_array(x):
                self.refuse(
                    "an array that is no argument of the function",
                    "arrays that are arguments",
                    "pass it to the function",
                )
        return self.known_call(self, function, args, kwargs)


def size_code(dim):
    """Returns the code of the size of a dimension: an element of Node.dims."""
    codes = [f"{code}.shape[{axis}]" for code, axis in sorted(dim)]
    return "1" if not codes else codes[0] if len(codes) == 1 else f"size({', '.join(codes)})"


def is_library_array(x):
    """Returns whether x is an array of a library, and no number such as numpy.float32(2)."""
    for library, name in (("torch", "Tensor"), ("numpy", "ndarray"), ("cupy", "ndarray"),
                          ("jax", "Array")):  # fmt: skip
        kind = getattr(sys.modules.get(library), name, None)
        if kind is not None and not isinstance(x, (Array, Number)) and isinstance(x, kind):
            return True
    return False


def _samples(x):
    if isinstance(x, Array):
        return x._node.sample
    if isinstance(x, Number):
        return x._value
    if isinstance(x, (tuple, list)) and any(isinstance(y, (Array, Number)) for y in _leaves(x)):
        return type(x)(map(_samples, x))
    if type(x) is dict:
        return {name: _samples(value) for name, value in x.items()}
    return x


def _leaves(x):
    if isinstance(x, (tuple, list)):
        for one in x:
            yield from _leaves(one)
    elif type(x) is dict:
        yield from _leaves(tuple(x.values()))
    else:
        yield x


def _new_axes(index, rank):
    """Returns which of the `rank` dimensions of x[index] the index's Nones make."""
    kept = [one for one in index if not isinstance(one, int)]
    if Ellipsis in kept:
        at = kept.index(Ellipsis)
        after = kept[at + 1 :]
        kept = kept[:at]
        ends = [rank - len(after) + i for i, one in enumerate(after) if one is None]
    else:
        ends = []
    return [i for i, one in enumerate(kept) if one is None] + ends


def _index_code(one):
    if isinstance(one, slice):
        return f"slice({', '.join(_index_code(x) for x in (one.start, one.stop, one.step))})"
    if one is Ellipsis:
        return "Ellipsis"
    return one._code if isinstance(one, Number) else repr(one)


def size(*sizes):
    """Returns the size of a dimension to which these are broadcast."""
    return next((one for one in sizes if one != 1), 1)


def asarray(x):
    """Returns a NumPy number as an array without dimensions."""
    return sys.modules["numpy"].asarray(x)


#: What the code of operands and facts may use, besides the flat list `a` of the arguments.
NAMESPACE = {"size": size, "asarray": asarray, "inf": float("inf"), "nan": float("nan")}
