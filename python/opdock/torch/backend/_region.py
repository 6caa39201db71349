# SPDX-License-Identifier: Apache-2.0
"""A region: nodes of a graph that one formula computes.

All nodes of a region are computed for the elements of one shape, the region's space. A value is

    full  broadcast to the space from the right: the shape itself, [L], [R, 1], …
    drop  a number for each row, without the last dimension: what sum(dim=-1) gives

and a value of either kind that is the same in the whole row may leave the region as a result with
one number a row.
"""

from opdock.torch.backend._values import broadcasts, is_number, shape

MAX_TENSORS = 48  # of a formula, inputs and results together
MAX_RESULTS = 32
MAX_NUMBERS = 32
_MAX_NODES = 400  # of the 4,096 operations that a formula may have; a node is ten at most


class Region:
    """What was found of a set of nodes; analyse() makes it."""

    __slots__ = ("drops", "has_rows", "inputs", "nodes", "numbers", "results", "rows", "space")

    def __init__(self, nodes, space):
        self.nodes = nodes  # Fusables, in the graph's order
        self.space = space
        self.drops = set()  # nodes whose values have no last dimension
        self.rows = {}  # node -> whether only reductions made its value, which is one for each row
        self.inputs = {}  # (node, whether it is read as a drop) -> None, in order of use
        self.numbers = {}  # nodes of numbers -> None
        self.results = []  # (node, "full" or "row")
        self.has_rows = any(one.kind in ("reduce", "row") for one in nodes)

    @property
    def weight(self):
        return sum(one.weight for one in self.nodes)


def _join(shapes):
    """Returns the shape to which all of these are broadcast, or None."""
    rank = max(map(len, shapes), default=0)
    found = [1] * rank
    for sizes in shapes:
        for i, size in enumerate(reversed(sizes)):
            place = rank - 1 - i
            if found[place] == 1:
                found[place] = size
            elif size not in (1, found[place]):
                return None
    return tuple(found)


def analyse(nodes):
    """Returns the Region of these Fusables, in the graph's order, or None if no formula can compute
    all of them."""
    if len(nodes) > _MAX_NODES:
        return None
    own = {one.node for one in nodes}
    drops, wanted = set(), []
    for one in nodes:
        inside = [x for x in one.operands if x in own]
        if _is_drop(one, inside, drops):
            drops.add(one.node)
        else:
            wanted.append(shape(one.node))
        if one.kind == "reduce":
            wanted.append(shape(one.args[0]))
    space = _join(wanted)
    if space is None:
        return None
    region = Region(nodes, space)
    region.drops = drops
    if region.has_rows and (not space or space[-1] == 1):
        return None
    for one in nodes:
        if not _place(region, one, own):
            return None
    return region if _find_results(region, own) and _fits(region) else None


def _is_drop(one, inside, drops):
    if one.kind == "reduce":
        return not one.keepdim
    if one.kind == "squeeze":
        return True
    return one.kind != "unsqueeze" and any(x in drops for x in inside)


def _place(region, one, own):
    """Checks one node, and notes what it reads and whether it has one value for each row."""
    space, drops, node = region.space, region.drops, one.node
    is_drop = node in drops
    inside = [x for x in one.operands if x in own]
    if one.kind in ("unsqueeze", "squeeze"):
        if not inside or (inside[0] in drops) != (one.kind == "unsqueeze"):
            return False
        if inside[0] not in region.rows:
            return False
        region.rows[node] = region.rows[inside[0]]
        return broadcasts(shape(node), space[:-1] if is_drop else space)
    reads_drops = is_drop and one.kind != "reduce"
    if reads_drops and one.kind != "point":
        return False
    limit = space[:-1] if reads_drops else space
    is_row, is_pure = True, True
    for x in one.operands:
        if not broadcasts(shape(x), limit) or (x in own and (x in drops) != reads_drops):
            return False
        if x in own:
            is_row &= x in region.rows
            is_pure &= region.rows.get(x, False)
        else:
            region.inputs[x, reads_drops] = None
            last = shape(x)[-1] if shape(x) else 1
            is_row &= reads_drops or last == 1
            is_pure = False
    if one.kind in ("reduce", "row"):
        # Every tensor along the row, such as a weight, has the whole row.
        main = one.args[1] if one.text.startswith("{1} *") else one.args[0]
        if not shape(main) or shape(main)[-1] != space[-1]:
            return False
    for x in one.args:
        if is_number(x):
            region.numbers[x] = None
    if one.kind == "reduce":
        region.rows[node] = True
    elif one.kind != "row" and is_row and space and space[-1] != 1:
        region.rows[node] = is_pure
    sizes = shape(node)
    return broadcasts(sizes, space[:-1] if is_drop else space)


def _find_results(region, own):
    space, nodes = region.space, region.nodes
    for one in nodes:
        node = one.node
        if all(user in own for user in node.users):
            continue
        sizes = shape(node)
        if node in region.drops:
            if sizes != space[:-1] or node not in region.rows:
                return False
            region.results.append((node, "row"))
        elif node in region.rows:
            if sizes != (*space[:-1], 1):
                return False
            region.results.append((node, "row"))
        else:
            if sizes != space or one.kind == "alias":
                return False
            region.results.append((node, "full"))
    return bool(region.results)


def _fits(region):
    count = len(region.inputs) + len(region.results)
    if count > MAX_TENSORS or len(region.results) > MAX_RESULTS:
        return False
    if len(region.numbers) > MAX_NUMBERS or not region.inputs:
        return False
    shapes = [(*shape(x), 1) if drop else shape(x) for x, drop in region.inputs]
    return _join(shapes) == region.space
