# SPDX-License-Identifier: Apache-2.0
"""Divides a graph into regions, each of which one formula computes, and the nodes between them.

A region grows along the edges of the graph, then over nodes that read the same tensor, as long as a
formula can compute it (_region.py) and no path leaves it and comes back: without such a path the
regions can be called one after the other.
"""

import torch

from opdock.torch.backend._effects import dependencies
from opdock.torch.backend._fusable import fusable
from opdock.torch.backend._region import analyse


class Partition:
    """The regions of a graph, while they grow."""

    def __init__(self, graph):
        self.order = {node: i for i, node in enumerate(graph.nodes)}
        self.after = dependencies(graph)  # node -> nodes that have to come later
        self.groups = {}  # node -> list of Fusables, shared by all of its nodes
        self.found = {}  # id of such a list -> Region or None
        for node in graph.nodes:
            one = fusable(node)
            if one is not None:
                group = [one]
                self.groups[node] = group
                self.found[id(group)] = analyse(group)

    def regions(self, over_readers=True):
        """Returns the regions that are worth a kernel, in the order of their first nodes.
        over_readers: whether nodes that only read the same tensor may be in one region."""
        for _ in range(3):
            if not self._grow_along_edges():
                break
        if over_readers:
            self._grow_over_readers()
        groups = {id(group): group for group in self.groups.values()}
        found = [self.found[key] for key in groups]
        return [region for region in found if region is not None and _is_worth_it(region)]

    def _grow_along_edges(self):
        has_grown = False
        for node, group in list(self.groups.items()):
            one = next(x for x in group if x.node is node)
            for x in one.operands:
                has_grown |= self._merge(x, node)
        return has_grown

    def _grow_over_readers(self):
        for node in self.order:
            users = [user for user in node.users if user in self.groups]
            for a, b in zip(users, users[1:], strict=False):
                first, second = (self.found[id(self.groups[x])] for x in (a, b))
                if first and second and first.space == second.space:
                    self._merge(a, b)

    def _merge(self, a, b):
        """Makes one region of those of two nodes if that is possible; returns whether it was."""
        first, second = self.groups.get(a), self.groups.get(b)
        if first is None or second is None or first is second:
            return False
        group = sorted(first + second, key=lambda one: self.order[one.node])
        region = analyse(group)
        if region is None or self._comes_back(group):
            return False
        self.found[id(group)] = region
        for one in group:
            self.groups[one.node] = group
        return True

    def _comes_back(self, group):
        """Returns whether a path leaves the group and comes back to it."""
        own = {one.node for one in group}
        last = max(self.order[node] for node in own)
        seen = set()
        stack = [user for node in own for user in self._users(node) if user not in own]
        while stack:
            node = stack.pop()
            if node in own:
                return True
            if node in seen:
                continue
            members = [one.node for one in self.groups.get(node, ())] or [node]
            seen.update(members)
            # Nodes behind the group's last one lead back only through a region that begins earlier.
            if min(self.order[x] for x in members) < last:
                stack += [user for x in members for user in self._users(x) if user not in seen]
        return False

    def _users(self, node):
        return (*node.users, *self.after.get(node, ()))


def _is_worth_it(region):
    """Returns whether a region is more than one cheap op, or one that is a plugin's already."""
    if len(region.nodes) == 1 and region.nodes[0].node.target.namespace == "opdock":
        return False
    return region.weight >= 2


def schedule(graph, regions):
    """Returns the graph's nodes, and in place of a region's nodes the region, in an order in which
    everything comes behind what it needs."""
    import heapq

    order = {node: i for i, node in enumerate(graph.nodes)}
    step_of = {}
    for region in regions:
        for one in region.nodes:
            step_of[one.node] = region
    steps = list(dict.fromkeys(step_of.get(node, node) for node in order))
    needs = {id(step): set() for step in steps}
    after = {id(step): [] for step in steps}
    later = dependencies(graph)
    for node in order:
        mine = step_of.get(node, node)
        for user in (*node.users, *later.get(node, ())):
            other = step_of.get(user, user)
            if other is not mine and id(mine) not in needs[id(other)]:
                needs[id(other)].add(id(mine))
                after[id(mine)].append(other)

    def rank(step):
        if isinstance(step, torch.fx.Node):
            return order[step]
        return max(order[one.node] for one in step.nodes)

    ready = [(rank(step), step) for step in steps if not needs[id(step)]]
    heapq.heapify(ready)
    found = []
    while ready:
        _, step = heapq.heappop(ready)
        found.append(step)
        for other in after[id(step)]:
            needs[id(other)].discard(id(step))
            if not needs[id(other)]:
                heapq.heappush(ready, (rank(other), other))
    if len(found) != len(steps):
        raise AssertionError("found a cycle between regions, wanted none")
    return found
