# SPDX-License-Identifier: Apache-2.0
"""Times a layer of BERT-large, by DeepSpeedTransformerLayer on Opdock's module and on DeepSpeed's.

DeepSpeed's Python is the same for both; only the module that it calls changes. "torch" is the same
layer of torch's functions. Each row is a training step (forward and backward pass) or a forward
pass alone, in a loop that does not wait for the GPU: µs. `host_us` is what enqueuing it takes,
`error` the largest error of the output and of the input's gradient against float64 without
dropout, relative to the largest element, `mib` how much memory a forward pass leaves behind.
DeepSpeed's module is compiled by its TransformerBuilder, which takes minutes.

Bar: not slower than DeepSpeed's in any row.
"""

import argparse
import contextlib
import importlib
import io
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import record
import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "deepspeed"))
import transformer_cases as cases

HIDDEN, HEADS, INNER, EPS = 1024, 16, 4096, 1e-12
DTYPES = {"fp16": torch.float16, "fp32": torch.float32}
SIZES = [(8, 128), (32, 128), (8, 512), (32, 512)]  # batch, tokens
#: rows: name -> options
WAYS = {
    "pre dropout": {"pre": True, "attn_dropout": 0.1, "hidden_dropout": 0.1},
    "post dropout": {"pre": False, "attn_dropout": 0.1, "hidden_dropout": 0.1},
    "pre no dropout": {"pre": True},
    "post no dropout": {"pre": False},
    "pre no attention dropout": {"pre": True, "hidden_dropout": 0.1},
    "pre dropout, all options": {
        "pre": True,
        "attn_dropout": 0.1,
        "hidden_dropout": 0.1,
        "attn_checkpoint": True,
        "invertible": True,
        "gelu_checkpoint": True,
    },
}
SECONDS = 0.4  # of each measurement


def theirs():
    """Compiles DeepSpeed's own module. Returns (the module, "") or (None, why there is none)."""
    major, minor = torch.cuda.get_device_capability()
    os.environ.setdefault("TORCH_CUDA_ARCH_LIST", f"{major}.{minor}")
    os.environ.setdefault("MAX_JOBS", str(os.cpu_count()))
    # DeepSpeed 0.19.8 includes a header that CUDA 13 does not have, and uses nothing of it.
    folder = tempfile.mkdtemp()
    Path(folder, "cuda_profiler_api.h").touch()
    os.environ["CPATH"] = os.pathsep.join(filter(None, (os.environ.get("CPATH"), folder)))
    from deepspeed.ops.op_builder import TransformerBuilder

    try:
        return TransformerBuilder().load(), ""
    except Exception as error:
        return None, str(error).strip().splitlines()[-1][:300]


def layer_of(module, options, weights, dtype, batch):
    """Returns a DeepSpeedTransformerLayer on the module, with these weights."""
    from deepspeed.ops.transformer import DeepSpeedTransformerConfig, DeepSpeedTransformerLayer

    python = importlib.import_module("deepspeed.ops.transformer.transformer")
    python.transformer_cuda_module = module
    config = DeepSpeedTransformerConfig(
        batch_size=batch,
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        heads=HEADS,
        attn_dropout_ratio=options.attn_dropout,
        hidden_dropout_ratio=options.hidden_dropout,
        num_hidden_layers=24,
        initializer_range=0.02,
        layer_norm_eps=EPS,
        seed=7,
        fp16=dtype == torch.float16,
        pre_layer_norm=options.pre,
        normalize_invertible=options.invertible,
        gelu_checkpoint=options.gelu_checkpoint,
        attn_dropout_checkpoint=options.attn_checkpoint,
    )
    with contextlib.redirect_stdout(io.StringIO()):
        layer = DeepSpeedTransformerLayer(config).to("cuda", dtype)
    for parameter, weight in zip(layer.parameters(), weights, strict=True):
        parameter.data.copy_(weight)

    def call(x, mask):
        python.transformer_cuda_module = module
        return layer(x, mask)

    return call, list(layer.parameters())


def torchs(options, weights):
    """Returns the same layer of torch's functions, and its parameters."""
    parameters = [torch.nn.Parameter(weight.clone()) for weight in weights]
    w = dict(zip(cases.NAMES, parameters, strict=True))

    def norm(x, name):
        return F.layer_norm(x, (HIDDEN,), w[f"{name}w"], w[f"{name}b"], EPS)

    def call(x, mask):
        batch, length, _ = x.shape
        first = norm(x, "norm_") if options.pre else x
        qkv = F.linear(first, w["attn_qkvw"], w["attn_qkvb"])
        q, k, v = qkv.view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        context = F.scaled_dot_product_attention(q, k, v, mask, options.attn_dropout)
        context = context.transpose(1, 2).reshape(x.shape)
        total = F.dropout(F.linear(context, w["attn_ow"], w["attn_ob"]), options.hidden_dropout) + x
        ff1 = norm(total, "attn_n")
        inner = F.gelu(F.linear(ff1, w["inter_w"], w["inter_b"]), approximate="tanh")
        inner = F.dropout(F.linear(inner, w["output_w"], w["output_b"]), options.hidden_dropout)
        return inner + total if options.pre else norm(inner + ff1, "norm_")

    return call, parameters


def timed(function):
    """Returns (µs of a call in a loop, µs to enqueue it)."""
    for _ in range(5):
        function()
    torch.cuda.synchronize()
    start = time.perf_counter()
    function()
    torch.cuda.synchronize()
    count = max(10, int(SECONDS / 5 / (time.perf_counter() - start)))
    whole, host = [], []
    for _ in range(5):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(10):  # few enough that the driver's queue takes them without waiting
            function()
        host.append((time.perf_counter() - start) / 10)
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            function()
        torch.cuda.synchronize()
        whole.append((time.perf_counter() - start) / count)
    return statistics.median(whole) * 1e6, statistics.median(host) * 1e6


def error(call, options, x, mask, grad, weights):
    """Returns the largest error of the output and of the input's gradient against float64."""
    if options.attn_dropout or options.hidden_dropout:
        return None
    leaf = x.detach().clone().requires_grad_()
    output = call(leaf, mask)
    output.backward(grad)
    exact = x.detach().double().requires_grad_()
    w = [weight.double() for weight in weights]
    wanted = cases.oracle(options, exact, mask, w, None, training=False)
    wanted.backward(grad.double())
    pairs = (output, wanted), (leaf.grad, exact.grad)
    return max(((a - b).abs().max() / b.abs().max()).item() for a, b in pairs)


def rows(modules, batch, length, suffix, way):
    """Yields the results of one case."""
    dtype = DTYPES[suffix]
    options = cases.Options(HIDDEN, HEADS, INNER, eps=EPS, **WAYS[way])
    weights = cases.weights_of(options, dtype, "cuda")
    x = torch.randn(batch, length, HIDDEN, device="cuda", dtype=dtype, requires_grad=True)
    grad, mask = torch.randn_like(x), cases.mask_of(batch, length, dtype, "cuda")
    for peer, module in modules.items():
        if peer == "torch":
            call, parameters = torchs(options, weights)
        else:
            call, parameters = layer_of(module, options, weights, dtype, batch)

        def step(call=call, parameters=parameters):
            x.grad = None
            for parameter in parameters:
                parameter.grad = None
            call(x, mask).backward(grad)

        step()
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        output = call(x, mask)
        kept = (torch.cuda.memory_allocated() - before) / 2**20
        del output
        wrong = error(call, options, x, mask, grad, weights)
        # A forward pass in training mode; its graph is dropped each time.
        for name, function in (("step", step), ("forward", lambda call=call: call(x, mask))):
            us, host = timed(function)
            row = {"name": f"{batch}x{length} {suffix} {way} {name}", "peer": peer}
            row |= {"us": round(us, 1), "host_us": round(host, 1), "mib": round(kept, 1)}
            yield row if wrong is None else {**row, "error": wrong}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", metavar="FOLDER")
    parser.add_argument("--quick", action="store_true", help="only the first two ways")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        print("found no CUDA device; this bench needs one")
        return
    from opdock.compat.deepspeed import transformer

    module, why = theirs()
    print(f"DeepSpeed's module: {module.__file__ if module else why}", flush=True)
    modules = {"opdock": transformer, "DeepSpeed": module, "torch": None}
    if module is None:
        del modules["DeepSpeed"]
    found = []
    for batch, length in SIZES:
        for suffix in DTYPES:
            for way in list(WAYS)[: 2 if given.quick else None]:
                case = list(rows(modules, batch, length, suffix, way))
                found += case
                for name in dict.fromkeys(row["name"] for row in case):
                    same = {row["peer"]: row for row in case if row["name"] == name}
                    ratio = same["opdock"]["us"] / same.get("DeepSpeed", same["opdock"])["us"]
                    print(
                        f"{name:48} {ratio:5.2f}", *map(texts, same.values()), sep=" | ", flush=True
                    )
    if given.record:
        record.append(given.record, "transformer_layer", found)


def texts(row):
    """Returns a result as text."""
    wrong = f" error {row['error']:.1e}" if "error" in row else ""
    return f"{row['peer']} {row['us']:.0f} µs (host {row['host_us']:.0f}, {row['mib']} MiB){wrong}"


if __name__ == "__main__":
    main()
