# SPDX-License-Identifier: Apache-2.0
"""Compiles one graph of AOTAutograd: finds regions, makes their kernels, writes the function."""

import time

from opdock.torch.backend import _cleanup, _code, _in_place, _log, _plugin_ops, _warm
from opdock.torch.backend._kernels import kernel_of
from opdock.torch.backend._partition import Partition, schedule


def compile_graph(graph_module, is_backward=False):
    """Returns the function that runs a graph. It takes its arguments in a list."""
    begin = time.perf_counter()
    graph = graph_module.graph
    _plugin_ops.replace(graph)
    _cleanup.clean(graph)
    _plugin_ops.add_to_gradients(graph)
    _in_place.undo(graph)
    kernels, reasons = {}, []
    for region in Partition(graph).regions():
        found = kernel_of(region)
        if isinstance(found, str):
            reasons.append((region, found))
        else:
            kernels[id(region)] = found
    kept = [kernel.region for kernel in kernels.values()]
    steps = [kernels.get(id(step), step) for step in schedule(graph, kept)]
    steps = _code.needed(_in_place.fold_copies(steps))
    _warm.warm_all(steps)
    function, source = _code.write(steps, graph_module)
    seconds = time.perf_counter() - begin
    _log.note(_log.Compiled(steps, reasons, source, is_backward, seconds))
    return function
