# SPDX-License-Identifier: Apache-2.0
"""Writes what a trace found as formulas, and calls their functions: the result of opdock.fuse()'s
work for one pattern of arguments."""

import keyword
import os
import re
import threading

from opdock import _formula, _fuse_donate
from opdock._errors import InvalidArgumentError, UnsupportedError
from opdock._fuse_proxies import Array, Number
from opdock._fuse_trace import DTYPES, NAMESPACE, Node, broadcast, is_library_array, size_code

#: Names that have a meaning in a formula.
_RESERVED = {*keyword.kwlist, *DTYPES, "e", "pi", "inf", "nan", "column"}
_MAX_RESULTS = 32  # of one formula
_MAX_NAME = 48
_LIBRARIES = ("numpy", "torch", "jax", "jaxlib", "cupy", "ml_dtypes")
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type, type(Ellipsis))


_lock = threading.Lock()  # held for a few look-ups in the dicts of plans and kernels


def lock():
    """Returns the lock of the dicts of plans and kernels."""
    return _lock


def _renew_lock():
    global _lock
    _lock = threading.Lock()  # the thread that held it does not exist in a forked child


os.register_at_fork(after_in_child=_renew_lock)


def identifier(text, taken):
    """Returns a name like `text` that a formula takes and that is not in `taken`; adds it there."""
    name = re.sub(r"\W", "_", text, flags=re.ASCII)[:_MAX_NAME].strip("_") or "x"
    name = f"x{name}" if name[0].isdigit() else name
    found, count = name, 1
    while found in taken or found in _RESERVED:
        count += 1
        found = f"{name}_{count}"
    taken.add(found)
    return found


def _in_order(roots):
    """Returns the nodes on which these depend, operands first, each once."""
    order, seen = [], set()
    stack = [(node, False) for node in reversed(roots)]
    while stack:
        node, is_ready = stack.pop()
        if is_ready:
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack += [(x, False) for x, _ in reversed(node.args) if isinstance(x, Node)]
    return order


def _without_copies(roots):
    """Returns _in_order(roots) with one node for each value, and that node by the id of each."""
    order, same, known = [], {}, {}
    for node in _in_order(roots):
        args = tuple((id(same[id(x)]) if isinstance(x, Node) else x, cast) for x, cast in node.args)
        key = node.operand.code if node.operand is not None else (node.form, args)
        found = known.setdefault(key, node)
        same[id(node)] = found
        if found is node:
            order.append(node)
    return order, same


class Result:
    """An array that the function computes.

    operands: the arrays that it depends on. space: the dims to which these are broadcast, which are
    the formula's. is_row: the formula has one value a row. post: the code that makes the result of
    the formula's.
    """

    def __init__(self, tracer, node):
        arrays = {x.operand.code: x for x in _in_order([node]) if x.operand is not None}
        # An operand that only decides about the shape, such as x in zeros_like(x) + y.
        for code in sorted({code for dim in node.dims for code, _ in dim}):
            if code not in arrays:
                arrays[code] = tracer.inputs[code]
                node = _spread(node, arrays[code])
        if not arrays:
            tracer.refuse("a result that depends on no array", "one that does", "make it outside")
        self.operands = list(arrays)
        self.space = broadcast([x.dims for x in map(_whole, arrays.values())])
        own = node.dims
        is_kept = bool(own) and not node.is_per_row and not own[-1] and bool(self.space[-1])
        self.is_row = node.is_per_row or is_kept or len(own) < len(self.space)
        if self.is_row and node.varies:
            # Each column has the same value, and one column is wanted.
            one = "any" if node.dtype == "bool" else "amax"
            node = Node(
                f"{one}(where(column() >= 0, {{0}}, {{0}}))", ((node, None),), node.dtype,
                node.level, node.dims, varies=False, sample=node.sample,
            )  # fmt: skip
        self.node = node
        self.dims = own[:-1] if is_kept else own
        self.is_exact = self.dims == (self.space[:-1] if self.is_row else self.space)
        self.post = "[..., None]" if is_kept else ""
        if not own and tracer.library.name == "numpy":
            self.post = "[()]"  # a NumPy number
        self.dtype = node.dtype


def _whole(node):
    """Returns an argument's node with the dimension that a value of each row does not show."""
    if not node.is_per_row:
        return node
    return Node(None, (), node.dtype, node.level, (*node.dims, frozenset()), sample=None)


def _spread(node, operand):
    """Returns a node for the same numbers that is broadcast with an argument as well."""
    form, dtype = "where({0} == {0}, {1}, {1})", node.dtype
    if node.is_literal:
        ones = "logical_or({0}, True)"
        form = f"{ones} & {{1}}" if dtype == "bool" else f"{ones}.to({dtype}) * {{1}}"
    args = ((operand, None), (node, None))
    return Node(form, args, dtype, node.level, node.dims, is_per_row=node.is_per_row, sample=None)


def write(tracer, nodes):
    """Returns (text, schema, codes of the arguments) of the formula for these nodes' values."""
    order, same = _without_copies(nodes)
    nodes = [same[id(node)] for node in nodes]
    used = {x.operand.code for x in order if x.operand is not None}
    numbers = {x.code for node in order for x, _ in node.args if not isinstance(x, (Node, str))}
    operands = [
        x for x in tracer.operands.values() if x.code in (used if x.kind == "Tensor" else numbers)
    ]
    operands.sort(key=lambda x: x.kind != "Tensor")
    taken, names, parameters = set(), {}, {}
    for x in operands:
        name = x.name or tracer.inputs[x.code].hint or "view"
        parameters[x.code] = identifier(name, taken)
    uses = {id(same.get(id(x), x)) for node in order for x, _ in node.args}
    lines = []
    for node in order:
        if node.operand is not None:
            names[id(node)] = parameters[node.operand.code]
            continue
        if node.is_literal:
            names[id(node)] = node.form
            continue
        texts = []
        for x, cast in node.args:
            if isinstance(x, Node):
                text = names[id(same[id(x)])]
            else:
                text = x if isinstance(x, str) else parameters[x.code]
            texts.append(f"{text}.to({cast})" if cast else text)
        text = node.form.format(*texts)
        if id(node) not in uses and nodes.count(node) == 1:
            names[id(node)] = text  # stands in the last line
            continue
        name = identifier(node.hint or f"t{len(lines) + 1}", taken)
        names[id(node)] = name
        lines.append(f"{name} = {text}")
    lines.append("return " + ", ".join(names[id(node)] for node in nodes))
    parts = [f"{x.kind} {parameters[x.code]}" for x in operands]
    returns = ", ".join(["Tensor"] * len(nodes))
    returns = returns if len(nodes) == 1 else f"({returns})"
    name = identifier(tracer.name.replace("<lambda>", "fused"), set())
    return "\n".join(lines), f"{name}({', '.join(parts)}) -> {returns}", [x.code for x in operands]


def _compile(code):
    return eval(f"lambda a: {code}", NAMESPACE)


class _Kernel:
    """A formula's function, for some of a plan's results."""

    def __init__(self, tracer, results, donated=()):
        self.results = results
        self.text, self.schema, codes = write(tracer, [x.node for x in results])
        self.function = _formula.formula(self.text, self.schema)
        self.call = eval(f"lambda f, a: f({', '.join(codes)})", NAMESPACE)
        self.call_into = eval(f"lambda f, a, out: f({', '.join([*codes, 'out=out'])})", NAMESPACE)
        self.post = [None if x.is_exact and not x.post else _finish(x) for x in results]
        self.is_plain = not any(self.post)
        self._donors = None
        if donated and self.is_plain:
            self._donors = _fuse_donate.Donors(tracer.library, results, donated)

    def run(self, flat):
        """Returns the list of the results."""
        if self._donors is not None:
            outs = self._donors.take(flat)
            if outs is not None:
                self.call_into(self.function, flat, outs[0] if len(outs) == 1 else tuple(outs))
                return outs
        values = self.call(self.function, flat)
        values = [values] if len(self.results) == 1 else values
        if self.is_plain:
            return values
        return [
            x if post is None else post(x, flat) for x, post in zip(values, self.post, strict=True)
        ]


def _finish(result):
    """Returns the function of (formula's result, flat) that gives the function's result."""
    post = eval(f"lambda x: x{result.post}", NAMESPACE)
    if result.is_exact:
        return lambda x, flat: post(x)
    shape_of = _compile(f"({''.join(size_code(dim) + ', ' for dim in result.dims)})")
    return lambda x, flat: post(_narrow(x, shape_of(flat)))


def _narrow(x, shape):
    """Returns the part of x that has this shape: x has the same numbers along other dimensions."""
    if tuple(x.shape) == shape:
        return x
    extra = len(x.shape) - len(shape)
    index = [0] * extra
    for found, wanted in zip(tuple(x.shape)[extra:], shape, strict=True):
        index.append(slice(None) if found == wanted else slice(0, 1))
    return x[tuple(index)]


class Plan:
    """What a traced function does with the arguments of one pattern.

    facts: codes of the numbers whose values it used. donated: codes of the arguments whose memory
    results may take. Any thread.
    """

    def __init__(self, tracer, value, donated=()):
        self._tracer = tracer
        self._donated = set(donated)
        self._results = []  # of type Result
        self._constants = []
        self._known = {}  # id of a node -> number of its result
        rebuild = self._rebuild(value)
        self._rebuild_from = eval(f"lambda a, r: {rebuild}", {**NAMESPACE, "c": self._constants})
        self._is_single = rebuild == "r[0]"
        self._kernels = {}  # groups of results -> list of _Kernel
        self.facts = tuple(tracer.facts)
        spaces = {x.space for x in self._results}
        self._spaces = None
        if len(spaces) > 1:
            texts = [
                f"({''.join(size_code(dim) + ', ' for dim in x.space)})" for x in self._results
            ]
            self._spaces = _compile(f"({', '.join(texts)},)")
        self._only = None
        if self._spaces is None:
            self._only = self._kernels_of(tuple([()] * len(self._results)))

    def _rebuild(self, x):
        """Returns the code that makes `x`, a value that the function returned, from the arguments
        `a` and the results `r`."""
        if isinstance(x, Array):
            node = x._open()
            if node.operand is not None:
                code = node.operand.code
                self._donated = {one for one in self._donated if one not in code}
                return code[len("asarray(") : -1] if code.startswith("asarray(") else code
            known = self._known.setdefault(id(node), len(self._results))
            if known == len(self._results):
                self._results.append(Result(self._tracer, node))
            return f"r[{known}]"
        if isinstance(x, Number):
            return x._code
        if isinstance(x, dict) and type(x) is dict:
            return (
                "{" + ", ".join(f"{self._keep(k)}: {self._rebuild(v)}" for k, v in x.items()) + "}"
            )
        if type(x) is list:
            return f"[{', '.join(map(self._rebuild, x))}]"
        if isinstance(x, tuple):
            items = "".join(f"{self._rebuild(one)}, " for one in x)
            if type(x) is tuple:
                return f"({items})"
            kind = self._keep(type(x))
            return f"{kind}({items})" if hasattr(x, "_fields") else f"{kind}(({items}))"
        is_plain = isinstance(x, _PLAIN) or type(x).__module__.split(".")[0] in _LIBRARIES
        if is_plain and not is_library_array(x):  # also NumPy's numbers, dtypes and devices
            return self._keep(x)
        raise InvalidArgumentError(
            f"fuse: {self._tracer.name}: found a result of type {type(x).__name__}, wanted arrays, "
            "numbers, None, and tuples, lists and dicts of them; return its parts instead"
        )

    def _keep(self, constant):
        self._constants.append(constant)
        return f"c[{len(self._constants) - 1}]"

    def _kernels_of(self, groups):
        """Returns the kernels if results with equal entries of `groups` are computed together."""
        found = self._kernels.get(groups)
        if found is not None:
            return found
        parts = {}
        for i, group in enumerate(groups):
            parts.setdefault(group, []).append(i)
        pieces = [
            part[begin : begin + _MAX_RESULTS]
            for part in parts.values()
            for begin in range(0, len(part), _MAX_RESULTS)
        ]
        made = []
        for at, numbers in enumerate(pieces):
            later = {
                x for piece in pieces[at + 1 :] for i in piece for x in self._results[i].operands
            }
            donated = [code for code in self._donated if not any(code in x for x in later)]
            results = [self._results[i] for i in numbers]
            made.append((numbers, _Kernel(self._tracer, results, donated)))
        with lock():
            return self._kernels.setdefault(groups, made)

    def _groups(self, flat):
        known = {}
        return tuple(known.setdefault(shape, len(known)) for shape in self._spaces(flat))

    def __call__(self, flat):
        kernels = self._only
        if kernels is None:
            kernels = self._kernels_of(self._groups(flat))
        if len(kernels) == 1:
            results = kernels[0][1].run(flat)
            return results[0] if self._is_single else self._rebuild_from(flat, results)
        results = [None] * len(self._results)
        for numbers, kernel in kernels:
            for i, value in zip(numbers, kernel.run(flat), strict=True):
                results[i] = value
        return self._rebuild_from(flat, results)

    def write_into(self, flat, out):
        """Computes into the caller's array, or tuple of arrays; returns `out`."""
        kernels = self._only if self._only is not None else self._kernels_of(self._groups(flat))
        if len(kernels) != 1 or not kernels[0][1].is_plain:
            raise UnsupportedError(
                f"fuse: {self._tracer.name}: found out=, wanted no out= for a function whose "
                f"results "
                "need several kernels or a view; call it without out=, and copy"
            )
        kernels[0][1].call_into(kernels[0][1].function, flat, out)
        return out

    def formulas(self):
        """Returns the pairs (schema, text) of the kernels that there are, each once."""
        with lock():
            kernels = [kernel for made in self._kernels.values() for _, kernel in made]
        return list(dict.fromkeys((kernel.schema, kernel.text) for kernel in kernels))
