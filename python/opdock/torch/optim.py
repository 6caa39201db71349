# SPDX-License-Identifier: Apache-2.0
"""torch.optim's Adam and AdamW, with a step by Opdock's ops: one call for all tensors. And Lion,
which torch lacks, and Muon, which older ones lack.

The constructor arguments, param groups, hooks and the state_dict of Adam and AdamW are torch's, so
that a state is taken from torch's optimizer and continued there. What the ops cannot do (amsgrad,
differentiable, complex parameters, betas that are tensors) is torch's own step.
"""

import torch

from opdock.torch import _functional
from opdock.torch._muon import Muon

__all__ = ["Adam", "AdamW", "Lion", "Muon"]


class _Steps:
    """The step of both optimizers. The tensors that were updated equally often share one counter,
    which the op raises: torch has a counter for each tensor, as state_dict() returns them."""

    def __init__(self, *args, **keywords):
        super().__init__(*args, **keywords)
        self._join_counters()

    def __setstate__(self, state):
        super().__setstate__(state)
        self._join_counters()

    @property
    def _step_supports_amp_scaling(self):
        """Whether torch.amp.GradScaler leaves unscaling, and skipping a step, to step()."""
        return all(_is_ours(group) or group["fused"] for group in self.param_groups)

    @_step_supports_amp_scaling.setter
    def _step_supports_amp_scaling(self, value):
        pass  # torch's constructor sets it for fused=True

    def _join_counters(self):
        """Gives each group's tensors with equal counts one counter on their device. Reads the
        counts, which waits for a GPU: only after a state was loaded."""
        for group in self.param_groups:
            if not _is_ours(group):
                continue
            known = {}
            for param in group["params"]:
                state = self.state.get(param)
                if state:
                    count = float(state["step"])
                    key = param.device, count
                    if key not in known:
                        known[key] = torch.tensor(count, dtype=torch.float32, device=param.device)
                    state["step"] = known[key]

    def state_dict(self):
        found = super().state_dict()
        # Each tensor gets a counter of its own: torch's optimizer would raise a shared one several
        # times in a step.
        found["state"] = {
            key: {**one, "step": one["step"].clone()} if "step" in one else one
            for key, one in found["state"].items()
        }
        return found

    state_dict.__doc__ = torch.optim.Optimizer.state_dict.__doc__

    @torch.no_grad()
    def step(self, closure=None):
        """Performs one step. closure: a function that computes the loss again and returns it."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        theirs = []
        for group in self.param_groups:
            if _is_ours(group):
                self._step_of(group)
            else:
                theirs.append(group)
        if theirs:
            self._step_of_torch(theirs)
        return loss

    def _step_of_torch(self, groups):
        """Performs torch's step for some of the groups."""
        every = self.param_groups
        try:
            self.param_groups = groups
            super().step()
        finally:
            self.param_groups = every

    def _step_of(self, group):
        params = [p for p in group["params"] if p.grad is not None]
        if not params:
            return
        self._begin(group, params)
        beta1, beta2 = group["betas"]
        lr, options = group["lr"], {}
        options["weight_decay"] = group["weight_decay"]
        options["maximize"] = group["maximize"]
        options |= {"beta1": beta1, "beta2": beta2, "eps": group["eps"]}
        op = torch.ops.opdock.adamw_ if group["decoupled_weight_decay"] else torch.ops.opdock.adam_
        for counter, lists in self._by_counter(group, params):
            op(*lists, counter, **options, **_numbers(self, lr, counter.device))

    def _begin(self, group, params):
        """Makes the states of tensors that get their first gradient."""
        counters = {}
        for param in params:
            _refuse_sparse(self, param, "use torch.optim.SparseAdam")
            state = self.state[param]
            if not state:
                if param.device not in counters:
                    counters[param.device] = torch.zeros((), device=param.device)
                state["step"] = counters[param.device]
                for name in ("exp_avg", "exp_avg_sq"):
                    state[name] = torch.zeros_like(param, memory_format=torch.preserve_format)

    def _by_counter(self, group, params):
        """Yields (counter, [params, gradients, exp_avgs, exp_avg_sqs]) of the tensors that one call
        of the op updates: on one device and of one dtype."""
        users, found = {}, {}
        for param in group["params"]:
            state = self.state.get(param)
            if state:
                key = id(state["step"])
                users[key] = users.get(key, 0) + 1
        for param in params:
            state = self.state[param]
            key = id(state["step"]), param.dtype, param.grad.dtype
            found.setdefault(key, []).append(param)
        for (key, *_), those in found.items():
            counter = self.state[those[0]]["step"]
            if len(those) != users[key]:
                # The others have no gradient this time, or are of another dtype: they keep the old
                # count.
                counter = counter.clone()
                for param in those:
                    self.state[param]["step"] = counter
                users[key] -= len(those)
            yield counter, self._lists(those)

    def _lists(self, params):
        return _lists(params, self.state, ("exp_avg", "exp_avg_sq"))


def _refuse_sparse(optimizer, param, advice):
    if param.grad.is_sparse:
        raise RuntimeError(
            f"{type(optimizer).__name__}: found a sparse gradient, wanted a dense one; {advice}"
        )


def _lists(params, states, names):
    """Returns lists of the parameters, of their gradients, and of their states of these names."""
    lists = tuple([] for _ in range(2 + len(names)))
    for param in params:
        local = [param, param.grad, *(states[param][name] for name in names)]
        if type(param) is not torch.nn.Parameter:
            local = [_local(x) for x in local]
        if local[1].stride() != local[0].stride():
            local[1] = torch.empty_like(local[0], dtype=local[1].dtype).copy_(local[1])
        for one, x in zip(lists, local, strict=True):
            one.append(x)
    return lists


def _numbers(optimizer, lr, device):
    """Returns the keywords of an op for the learning rate, and for what GradScaler has set."""
    on = {"lr_tensor": _number_on(lr, device)} if isinstance(lr, torch.Tensor) else {"lr": lr}
    for name in ("grad_scale", "found_inf"):
        one = getattr(optimizer, name, None)
        if one is not None:
            on[name] = _number_on(one, device)
    return on


def _is_ours(group):
    """Returns whether the ops can do a group's step."""
    if group["amsgrad"] or group["differentiable"]:
        return False
    if any(isinstance(beta, torch.Tensor) for beta in group["betas"]):
        return False
    return all(_is_updatable(param) for param in group["params"])


def _is_updatable(param):
    x = param if type(param) is torch.nn.Parameter else _local(param)
    return _functional.takes_rows(x if x.dim() else x[None]) and _has_no_gaps(x)


def _has_no_gaps(x):
    return x.is_contiguous() or torch.empty_like(x, device="meta").stride() == x.stride()


def _local(x):
    """Returns this process's part of a DTensor, or x."""
    return x.to_local() if hasattr(x, "to_local") else x


def _number_on(x, device):
    return x.to(device=device, dtype=torch.float32, non_blocking=True)


class Adam(_Steps, torch.optim.Adam):
    """torch.optim.Adam by the op adam_."""


class AdamW(_Steps, torch.optim.AdamW):
    """torch.optim.AdamW by the op adamw_."""


class Lion(torch.optim.Optimizer):
    """Lion (Chen et al., https://arxiv.org/abs/2302.06675) by the op lion_.

    The arguments are those of torch.optim.AdamW without what Lion has no use for. betas: the weight
    of the average in a step's direction, and in the next average. Lion is used with a third to a
    tenth of AdamW's lr, and with a weight_decay that is larger by as much. A step waits for no GPU,
    and may be captured; torch.amp.GradScaler leaves unscaling, and skipping a step, to it.
    """

    _step_supports_amp_scaling = True

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0, *, maximize=False):
        named = {"lr": lr, "weight_decay": weight_decay}
        named |= {f"betas[{i}]": beta for i, beta in enumerate(betas)}
        for name, number in named.items():
            below = 1 if name.startswith("betas") else float("inf")
            if not 0 <= number < below:
                raise ValueError(f"Lion: {name}: found {number}, wanted a number from 0 to {below}")
        options = {"lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, options)

    @torch.no_grad()
    def step(self, closure=None):
        """Performs one step. closure: a function that computes the loss again and returns it."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            alike = {}  # what one call of the op updates
            for param in group["params"]:
                if param.grad is None:
                    continue
                _refuse_sparse(self, param, "make it dense by to_dense()")
                if not self.state[param]:
                    self.state[param]["exp_avg"] = torch.zeros_like(
                        param, memory_format=torch.preserve_format
                    )
                key = param.device, param.dtype, param.grad.dtype
                alike.setdefault(key, []).append(param)
            beta1, beta2 = group["betas"]
            for (device, *_), params in alike.items():
                torch.ops.opdock.lion_(
                    *_lists(params, self.state, ("exp_avg",)),
                    beta1=beta1,
                    beta2=beta2,
                    weight_decay=group["weight_decay"],
                    maximize=group["maximize"],
                    **_numbers(self, group["lr"], device),
                )
        return loss
