# SPDX-License-Identifier: Apache-2.0
"""Muon, an optimizer of matrices, with its iteration by the op newton_schulz."""

import math

import torch

_RATIOS = {
    None: lambda rows, columns: math.sqrt(max(1, rows / columns)),
    "original": lambda rows, columns: math.sqrt(max(1, rows / columns)),
    "match_rms_adamw": lambda rows, columns: 0.2 * math.sqrt(max(rows, columns)),
}


class Muon(torch.optim.Optimizer):
    """Muon (Jordan, https://kellerjordan.github.io/posts/muon/) by the op newton_schulz.

    The arguments and the state_dict are those of torch.optim.Muon, which torch has from 2.9 on.
    params: matrices only, such as the weights of hidden linear layers; train the others by AdamW.
    Matrices of one shape are one batch, whose products are one call each. The iteration runs in
    bfloat16 on GPUs, as torch's does, and in float32 on the CPU, for which no library multiplies 16
    bits.
    """

    def __init__(
        self,
        params,
        lr=1e-3,
        weight_decay=0.1,
        momentum=0.95,
        nesterov=True,
        ns_coefficients=(3.4445, -4.7750, 2.0315),
        eps=1e-7,
        ns_steps=5,
        adjust_lr_fn=None,
    ):
        named = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "eps": eps}
        for name, number in named.items():
            if not number >= 0:
                raise ValueError(f"Muon: {name}: found {number}, wanted a number from 0 on")
        if adjust_lr_fn not in _RATIOS:
            wanted = ", ".join(map(repr, _RATIOS))
            raise ValueError(f"Muon: adjust_lr_fn: found {adjust_lr_fn!r}, wanted one of {wanted}")
        options = {
            **named,
            "nesterov": nesterov,
            "ns_coefficients": ns_coefficients,
            "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
        }
        super().__init__(params, options)

    def add_param_group(self, param_group):
        super().add_param_group(param_group)
        for param in self.param_groups[-1]["params"]:
            if param.dim() != 2 or param.is_complex():
                raise ValueError(
                    f"Muon: found a parameter of shape {tuple(param.shape)} and {param.dtype}, "
                    "wanted real matrices; train the others by AdamW"
                )

    @torch.no_grad()
    def step(self, closure=None):
        """Performs one step. closure: a function that computes the loss again and returns it."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            alike = {}  # parameters whose updates are one batch
            for param in group["params"]:
                if param.grad is None:
                    continue
                if param.grad.is_sparse:
                    raise RuntimeError("Muon: found a sparse gradient, wanted a dense one")
                if not self.state[param]:
                    self.state[param]["momentum_buffer"] = torch.zeros_like(param.grad)
                key = param.device, param.dtype, param.grad.dtype, param.shape
                alike.setdefault(key, []).append(param)
            for params in alike.values():
                self._step_of(group, params)
        return loss

    def _step_of(self, group, params):
        """Performs the step for parameters of one shape, dtype and device."""
        grads = [param.grad for param in params]
        momenta = [self.state[param]["momentum_buffer"] for param in params]
        torch._foreach_lerp_(momenta, grads, 1 - group["momentum"])
        if group["nesterov"]:
            momenta = torch._foreach_lerp(grads, momenta, group["momentum"])
        x = torch.stack(momenta)
        x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp_(min=group["eps"])
        x = x.to(torch.float32 if x.device.type == "cpu" else torch.bfloat16)
        by = dict(zip("abc", group["ns_coefficients"], strict=True))
        x = torch.ops.opdock.newton_schulz(x, steps=group["ns_steps"], **by)
        lr, ratio = float(group["lr"]), _RATIOS[group["adjust_lr_fn"]](*params[0].shape)
        torch._foreach_mul_(params, 1 - lr * group["weight_decay"])
        torch._foreach_add_(params, list(x.to(params[0].dtype)), alpha=-lr * ratio)
