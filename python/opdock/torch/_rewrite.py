# SPDX-License-Identifier: Apache-2.0
"""Puts stand-ins into the functions of a layer's class: where they call torch's functions, and for
a few expressions that an op computes as a whole.

A function is rewritten from its source, as a syntax tree, and compiled with the globals and the
closure of the original, so that it means the same in all other respects; torch.compile follows it
like any function. The stand-ins are members of an object that the patched class has.
"""

import ast
import contextlib
import inspect
import textwrap
import types

import torch

from opdock.torch import _swaps

SWAPS = "_opdock_swaps"  # the patched class's member that has the stand-ins
_NORMED = "_opdock_normed"  # a variable of rewritten functions


class Unknown(Exception):
    """A function cannot be rewritten; the text says why."""


class Standins:
    """The stand-ins of a patched class, as attributes."""


def rewritten(function, layer, standins):
    """Returns (new function, [kind of each place]) for a function of a layer's class, or (None, [])
    if there is nothing to replace. Adds the stand-ins that it calls to `standins`. Raises Unknown
    if it has something to replace, but cannot be rewritten."""
    if not isinstance(function, types.FunctionType):
        return None, []
    inner = inspect.unwrap(function)
    names = {*inner.__code__.co_names}
    if not names & _interesting(layer, inner):
        return None, []
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inner)))
    except (OSError, TypeError, SyntaxError, IndentationError):
        raise Unknown("its source is not to be had") from None
    node = tree.body[0]
    if not isinstance(node, ast.FunctionDef) or not node.args.args:
        return None, []
    rewriter = _Rewriter(inner, layer, node.args.args[0].arg, standins)
    node = rewriter.visit(node)
    if not rewriter.kinds:
        return None, []
    if inner is not function or node.decorator_list:
        raise Unknown("it is wrapped by a decorator")
    return _compiled(node, tree, function), rewriter.kinds


def _interesting(layer, function):
    """Returns names of which a function must use one to be worth reading."""
    found = {name for name, one in layer._modules.items() if one is not None}
    found |= {f.__name__ for f in _swaps.FUNCTIONS} | {"gelu"}
    return found | {n for n in function.__code__.co_names if "rotary" in n}


def _compiled(node, tree, original):
    """Returns the function of a changed tree, with the globals, closure and defaults of the
    original."""
    free = original.__code__.co_freevars
    node.args.defaults = [ast.Constant(None) for _ in node.args.defaults]
    node.args.kw_defaults = [d and ast.Constant(None) for d in node.args.kw_defaults]
    _drop_annotations(node)
    if free:  # a function around it whose variables are free in it
        names = [ast.Assign([ast.Name(n, ast.Store())], ast.Constant(None)) for n in free]
        empty = ast.arguments([], [], None, [], [], None, [])
        body = [*names, node, ast.Return(ast.Name(node.name, ast.Load()))]
        tree.body = [ast.FunctionDef("_outer", empty, body, [], type_params=[])]
    else:
        tree.body = [node]
    ast.increment_lineno(tree, original.__code__.co_firstlineno - 1)
    ast.fix_missing_locations(tree)
    code = compile(tree, original.__code__.co_filename, "exec", dont_inherit=True)
    for _ in range(2 if free else 1):
        code = next(c for c in code.co_consts if isinstance(c, types.CodeType))
    cells = dict(zip(free, original.__closure__ or (), strict=True))
    closure = tuple(cells[name] for name in code.co_freevars)
    made = types.FunctionType(code, original.__globals__, original.__name__, None, closure)
    made.__defaults__, made.__kwdefaults__ = original.__defaults__, original.__kwdefaults__
    with contextlib.suppress(NameError):  # of Python 3.14, which evaluates them only here
        made.__annotations__ = dict(original.__annotations__)
    made.__doc__, made.__qualname__ = original.__doc__, original.__qualname__
    made.__module__ = original.__module__
    return made


def _drop_annotations(node):
    """Removes annotations, which would be evaluated again; the new function gets the old ones."""
    node.returns = None
    args = node.args
    for one in (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg):
        if one is not None:
            one.annotation = None


class _Rewriter(ast.NodeTransformer):
    def __init__(self, function, layer, me, standins):
        self.function, self.layer, self.me, self.standins = function, layer, me, standins
        self.kinds = []
        self.closure = dict(
            zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        )

    # Names and what they stand for

    def _value(self, node):
        """Returns the object that a name of the module, or an attribute of one, stands for."""
        if isinstance(node, ast.Attribute):
            base = self._value(node.value)
            return getattr(base, node.attr, None) if isinstance(base, types.ModuleType) else None
        if not isinstance(node, ast.Name):
            return None
        code = self.function.__code__
        if node.id in code.co_varnames or node.id in code.co_cellvars:
            return None
        if node.id in self.closure:
            try:
                return self.closure[node.id].cell_contents
            except ValueError:
                return None
        return self.function.__globals__.get(node.id)

    def _layer(self, node):
        """Returns the layer that self.a.b stands for, or None."""
        if isinstance(node, ast.Name):
            return self.layer if node.id == self.me else None
        if isinstance(node, ast.Attribute):
            base = self._layer(node.value)
            return None if base is None else base._modules.get(node.attr)
        return None

    def _call_of(self, node, of):
        """Returns (of(layer), the layer's node, the argument's node) for a call self.layer(x) with
        one argument, or None."""
        if not isinstance(node, ast.Call) or node.keywords or len(node.args) != 1:
            return None
        layer = self._layer(node.func)
        if layer is None or layer is self.layer or isinstance(node.args[0], ast.Starred):
            return None
        found = of(layer)
        return None if found is None else (found, node.func, node.args[0])

    def _standin(self, name, swap, *args, keywords=()):
        """Returns the node of a call of a stand-in."""
        setattr(self.standins, name, swap)
        self.kinds.append(swap.kind)
        here = ast.Attribute(ast.Name(self.me, ast.Load()), SWAPS, ast.Load())
        return ast.Call(ast.Attribute(here, name, ast.Load()), [*args], [*keywords])

    # Expressions

    def visit_Call(self, node):
        norm = self._call_of(node, _swaps.norm_of)
        if norm is not None and _is_sum(norm[2]):
            return self._normed_sum(norm, norm[2], 0)
        activated = self._call_of(node, _swaps.activation_of)
        if activated is not None and activated[0] in _swaps.LINEAR:
            linear = self._call_of(activated[2], _linear_of)
            if linear is not None:
                return self._linear_gelu(activated, linear)
        function = self._value(node.func)
        self.generic_visit(node)
        swap = _swaps.FUNCTIONS.get(function) if callable(function) else None
        if swap is not None:
            name = f"{swap.kind}_{function.__module__.replace('.', '_')}"
            return self._standin(name, swap, *node.args, keywords=node.keywords)
        if isinstance(function, types.FunctionType) and "rotary" in function.__name__:
            swap = _rotary(function)
            if swap is not None:
                name = f"rope_{id(function)}"
                return self._standin(name, swap, *node.args, keywords=node.keywords)
        return node

    def visit_BinOp(self, node):
        if isinstance(node.op, ast.Mult):
            for gate, up in ((node.left, node.right), (node.right, node.left)):
                kind, inner = self._activation(gate)
                if kind is not None:
                    return self._standin(
                        _swaps.GATED[kind].kind,
                        _swaps.GATED[kind],
                        self.visit(inner),
                        self.visit(up),
                    )
        return self.generic_visit(node)

    def _activation(self, node):
        """Returns (kind, the argument's node) for self.act(x), silu(x) or gelu(x); else Nones."""
        found = self._call_of(node, _swaps.activation_of)
        if found is not None:
            layer = self._layer(found[1])
            return (found[0], found[2]) if _swaps._is_unhooked(layer) else (None, None)
        if not isinstance(node, ast.Call) or len(node.args) != 1:
            return None, None
        function = self._value(node.func)
        if function is torch.nn.functional.silu and not node.keywords:
            return "silu", node.args[0]
        if function is torch.nn.functional.gelu:
            if not node.keywords:
                return "gelu", node.args[0]
            value = node.keywords[0].value
            if node.keywords[0].arg == "approximate" and isinstance(value, ast.Constant):
                kind = {"none": "gelu", "tanh": "gelu_tanh"}.get(value.value)
                return (kind, node.args[0]) if kind else (None, None)
        return None, None

    def _normed_sum(self, norm, total, which):
        """Returns the node of (norm(a + b), a + b), or of one of them."""
        kind, layer, _ = norm
        swap = _swaps.NORMS[kind]
        args = self.visit(total.left), self.visit(total.right), layer
        both = self._standin(swap.kind, swap, *args)
        return both if which is None else ast.Subscript(both, ast.Constant(which), ast.Load())

    def _linear_gelu(self, activated, linear):
        kind, activation, _ = activated
        _, layer, x = linear
        args = self.visit(x), layer, activation
        return self._standin(f"linear_{kind}", _swaps.LINEAR[kind], *args)

    # Statements

    def generic_visit(self, node):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                setattr(node, name, self._block(block))
        return super().generic_visit(node)

    def _block(self, block):
        found, at = [], 0
        while at < len(block):
            made, used = self._add_then_norm(block[at:]) or self._linear_then_gelu(block[at:])
            found += made
            at += used
        return found

    def _add_then_norm(self, block):
        """Joins `t = a + b; r = t; n = self.norm(t)`, with any number of copies between them."""
        total = _assigned(block[0])
        if total is None or not _is_sum(total[1]):
            return None
        for at, one in enumerate(block[1:], 1):
            later = _assigned(one)
            if later is None:
                return None
            if isinstance(later[1], ast.Name) and later[1].id == total[0] != later[0]:
                continue  # r = t
            norm = self._call_of(later[1], _swaps.norm_of)
            if norm is None or not isinstance(norm[2], ast.Name) or norm[2].id != total[0]:
                return None
            both = self._normed_sum(norm, total[1], None)
            names = [ast.Name(n, ast.Store()) for n in (_NORMED, total[0])]
            first = ast.copy_location(ast.Assign([ast.Tuple(names, ast.Store())], both), block[0])
            one.value = ast.Name(_NORMED, ast.Load())
            return [first, *block[1:at], one], at + 1
        return None

    def _linear_then_gelu(self, block):
        """Joins `h = self.linear(x); h = self.act(h)`. Returns the first statement if there is
        nothing to join."""
        pair = [_assigned(one) for one in block[:2]]
        if len(pair) == 2 and None not in pair and pair[0][0] == pair[1][0]:
            linear = self._call_of(pair[0][1], _linear_of)
            activated = self._call_of(pair[1][1], _swaps.activation_of)
            if linear and activated and activated[0] in _swaps.LINEAR:
                same = isinstance(activated[2], ast.Name) and activated[2].id == pair[0][0]
                if same:
                    block[0].value = self._linear_gelu(activated, linear)
                    return [block[0]], 2
        return [block[0]], 1


def _assigned(node):
    """Returns (name, value's node) of a statement `name = value`, or None."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
        return (target.id, node.value) if isinstance(target, ast.Name) else None
    return None


def _is_sum(node):
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add)


def _linear_of(layer):
    return "linear" if type(layer) is torch.nn.Linear and layer.bias is not None else None


_rotaries = {}  # function -> its stand-in or None


def _rotary(function):
    if function not in _rotaries:
        _rotaries[function] = _swaps.rotary_of(function)
    return _rotaries[function]
