"""Prints every benchmark as a plain table: `python -m benchmarks [--only NAME] [--repeats N]`."""

from __future__ import annotations

import argparse

import torch

from benchmarks.sampling import against_generate, shared_prefill
from benchmarks.sweeps import gathering, launching, metering, planning

BENCHMARKS = {
    "sampler": against_generate,
    "prefill": shared_prefill,
    "plan": planning,
    "launch": launching,
    "gather": gathering,
    "meter": metering,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", choices=sorted(BENCHMARKS), help="run this one alone")
    parser.add_argument("--repeats", type=int, default=5, help="rounds that the medians are taken over")
    options = parser.parse_args()
    torch.set_num_threads(1)
    chosen = [options.only] if options.only else list(BENCHMARKS)
    print(f"{'what':<68} {'ours':>16} {'rival':>16} {'ratio':>6}")
    for name in chosen:
        for row in BENCHMARKS[name](options.repeats):
            print(f"{row.name:<68} {row.ours:>16} {row.rival:>16} {row.ratio:>5.2f}x  {row.note}", flush=True)


if __name__ == "__main__":
    main()
