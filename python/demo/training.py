# SPDX-License-Identifier: Apache-2.0
"""The demo's training: a small GPT, plain and with its layers and optimizer on Opdock's ops."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "train_gpt"))

import train_gpt

STEPS = 12
BAR = 1e-3  # largest allowed difference of the losses, relative to the last one


def show(device):
    """Trains both and prints their losses; returns the largest difference, relative to the last
    loss."""
    text = Path(train_gpt.__file__).read_bytes()
    plain, _ = train_gpt.train(text, STEPS, device=device)
    patched, report = train_gpt.train(text, STEPS, patched=True, device=device)
    print("report = opdock.torch.patch(model, measure=example); print(report)\n")
    print("  " + str(report).replace("\n", "\n  ") + "\n")
    for name, losses in (("plain", plain), ("patched", patched)):
        print(f"  loss of the {name} model: " + " ".join(f"{x:.3f}" for x in losses[:: STEPS // 4]))
    difference = train_gpt.largest_difference(plain, patched) / plain[-1]
    print(f"Largest difference in {STEPS} steps: {difference:.1e} of the loss (bar {BAR:.0e})")
    return difference
