# SPDX-License-Identifier: Apache-2.0
"""The backend of torch.compile: torch.compile(model, backend="opdock").

Elementwise ops and reductions along rows, forward and backward, become kernels of formulas; norms,
softmax and cross entropy become those of plugins; everything else is called as eager mode calls it.
Neither Triton nor a C++ compiler is needed. docs/guide/pytorch.md shows the use.
"""

import functools
import sys


def opdock(graph_module, example_inputs, **options):
    """Compiles a graph of Dynamo. torch.compile calls it. Any thread.

    Raises UnsupportedError for options, of which there are none."""
    from opdock._errors import UnsupportedError
    from opdock.torch.backend import _plugin_ops

    if options:
        raise UnsupportedError(
            f'torch.compile(backend="opdock"): found the options {sorted(options)}, wanted none; '
            "leave out mode= and options="
        )
    _plugin_ops.replace_calls(graph_module.graph)
    graph_module.recompile()
    return _aot()(graph_module, example_inputs)


@functools.cache
def _aot():
    # Imported here: they are private by name, take a second, and only compiling needs them.
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    from opdock.torch.backend import _plugin_ops, _pointwise
    from opdock.torch.backend._compile import compile_graph

    def partition(graph_module, inputs, **options):
        _plugin_ops.replace(graph_module.graph)
        graph_module.recompile()
        return min_cut_rematerialization_partition(graph_module, inputs, **options)

    return aot_autograd(
        fw_compiler=lambda graph, inputs: compile_graph(graph),
        bw_compiler=lambda graph, inputs: compile_graph(graph, is_backward=True),
        partition_fn=partition,
        decompositions=_pointwise.decompositions(),
        keep_inference_input_mutations=True,
    )


def register():
    """Makes the backend known to torch by the name "opdock".

    An installed package has an entry point for that, which torch reads when it looks for a backend.
    Without one, or after torch has read them, the backend is registered here, which imports Dynamo.
    """
    from importlib import metadata

    names = {entry.name for entry in metadata.entry_points(group="torch_dynamo_backends")}
    if "opdock" in names and "torch._dynamo" not in sys.modules:
        return
    from torch._dynamo.backends import registry

    if "opdock" not in registry._COMPILER_FNS:
        registry.register_backend(opdock, name="opdock")


def explain(model, *inputs, **keywords):
    """Compiles a model for these inputs, and returns a text that says for each graph, forward and
    backward, which kernels it calls, what torch computes, and why regions have no formula.

    model: a module or a function of tensors. It is called once; gradients are computed if its
    results require some, and are not added to the parameters'.
    """
    import torch
    from torch.utils import _pytree

    from opdock.torch.backend import _log

    def anew(graph_module, example_inputs):
        return opdock(graph_module, example_inputs)

    with _log.listening() as found:
        results = torch.compile(model, backend=anew)(*inputs, **keywords)
        leaves = [x for x in _pytree.tree_leaves(results) if isinstance(x, torch.Tensor)]
        sums = [x.sum() for x in leaves if x.requires_grad]
        sources = [x for x in _pytree.tree_leaves((inputs, keywords))
                   if isinstance(x, torch.Tensor) and x.requires_grad]  # fmt: skip
        sources += [x for x in getattr(model, "parameters", list)() if x.requires_grad]
        if sums and sources:
            torch.autograd.grad(sums, sources, allow_unused=True)
    return "\n".join(map(str, found))


def inductor_pass():
    """Returns a pass for torch's own compiler that computes rows, such as norms, softmax and the
    losses over them, by formulas' kernels, and leaves everything else to it.

        torch._inductor.config.post_grad_custom_post_pass = opdock.torch.inductor_pass()
        compiled = torch.compile(model)
    """
    from opdock.torch.backend._inductor import RowPass

    return RowPass()
