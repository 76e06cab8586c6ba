"""Peak rate of one core in matrix products: float32, bfloat16 and int8, as torch multiplies them.

    python benchmarks/peak.py

A product of two matrices of 1,024 x 1,024 numbers fits into the cache. The largest of many rounds counts, by CPU
time, which other programs change little. No implementation can be faster, so the share of the peak tells how much a
better one could gain.
"""

from __future__ import annotations

import time

import torch
from harness import Table, options

SIZE = 1024


def rate(kind: torch.dtype, seconds: float) -> float:
    """Return billions of multiply-adds per second."""
    shape = (SIZE, SIZE)
    whole = kind == torch.int8
    left, right = (torch.randint(-127, 128, shape, dtype=kind) if whole else torch.randn(shape).to(kind) for _ in "ab")
    multiply = torch._int_mm if whole else torch.mm
    best, started = 0.0, time.process_time()
    while time.process_time() - started < seconds:
        begun = time.process_time()
        multiply(left, right.T)
        best = max(best, SIZE**3 / (time.process_time() - begun) / 1e9)
    return best


def main() -> None:
    args = options(__doc__, seconds=3.0)
    torch.set_num_threads(1)
    table = Table("Multiply-adds of one core, billions per second")
    for kind in (torch.float32, torch.bfloat16, torch.int8):
        table.add(str(kind).removeprefix("torch."), "G/s", rate(kind, args.seconds))
    table.end("peak", args.save, "torch")


if __name__ == "__main__":
    main()
