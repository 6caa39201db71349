# SPDX-License-Identifier: Apache-2.0
"""Donated arguments of opdock.fuse(): arrays whose memory the results may take."""

from opdock._errors import ArgumentError
from opdock._fuse_trace import NAMESPACE, size_code


def checked(donate, signature, name):
    """Returns the names of `donate`, a str or several, all of which must be parameters'."""
    names = (donate,) if isinstance(donate, str) else tuple(donate)
    known = () if signature is None else tuple(signature.parameters)
    for one in names:
        if one not in known:
            raise ArgumentError(
                f"fuse: {name}: found donate={one!r}, wanted a parameter's name; its parameters "
                f"are {', '.join(known) or 'not known'}"
            )
    return frozenset(names)


def codes(donate, signature, args, kwargs, flatten):
    """Returns the codes ("a[0]") of the donated arrays of a call. flatten(x, list, key): appends
    what an argument has."""
    names = list(signature.parameters)
    given = [(names[min(i, len(names) - 1)], x) for i, x in enumerate(args)]
    given += [(name, kwargs[name]) for name in sorted(kwargs)]
    found, count = set(), 0
    for name, x in given:
        flat = []
        flatten(x, flat, [])
        if name in donate:
            found.update(f"a[{i}]" for i in range(count, count + len(flat)))
        count += len(flat)
    return found


class Donors:
    """Which donated arrays the results of one kernel may take, for a pattern of arguments.

    library: that of the arrays. results: the kernel's, of type Result. codes: of the donated arrays
    that neither another kernel reads nor the function returns.
    """

    def __init__(self, library, results, codes):
        self._library = library
        operands = {code for result in results for code in result.operands}
        # A view of the same array would read what the kernel has written in another place.
        whole = [c for c in codes if c in operands and not any(c in x for x in operands - {c})]
        places = sorted(int(code[2:-1]) for code in whole)
        self._candidates = [[] if result.is_row else places for result in results]
        self._is_any = any(self._candidates) and library.writes
        self._dtypes = [result.dtype for result in results]
        shapes = [f"({''.join(size_code(dim) + ', ' for dim in x.dims)})" for x in results]
        self._shapes = eval(f"lambda a: ({', '.join(shapes)},)", NAMESPACE)

    def take(self, flat):
        """Returns the arrays for the results, of which some may be new; None if nothing that is
        donated fits."""
        if not self._is_any or self._library.records(flat):
            return None
        taken, outs, like = set(), [], None
        shapes = self._shapes(flat)
        for candidates, dtype, shape in zip(self._candidates, self._dtypes, shapes, strict=True):
            outs.append(None)
            for i in candidates:
                x = flat[i]
                if i not in taken and tuple(x.shape) == shape and self._library.fits(x, dtype):
                    taken.add(i)
                    outs[-1] = like = x
                    break
        if like is None:
            return None
        return [
            self._library.empty(shape, dtype, like) if out is None else out
            for out, dtype, shape in zip(outs, self._dtypes, shapes, strict=True)
        ]
