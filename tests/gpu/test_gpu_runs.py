"""The same checks of real training on the CPU and on a GPU; `make gpu-check` runs those that need one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.short_warm_start import with_cache
from support.studies import CHAIN_TASK, chain_study, write_study
from support.sweeps import assert_ledger_is_the_recount, counts, planned

from harness.compute.kinds import Device
from harness.events.fold import fold_run
from harness.events.reader import read_events
from harness.interventions.base import Rollout
from harness.layout import CellFolder, RunsFolder
from harness.models.presets import build_policy
from harness.models.torch_policy import TorchPolicy
from harness.rollout.protocol import Request, Sampling
from harness.study.cell import Cell
from harness.tasks.registry import build_task
from harness.train.attempt import run_cell
from harness.train.exit_codes import EXIT_COMPLETED, EXIT_INTERRUPTED
from harness.train.losses import Row, token_logprobs

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Device:
    chosen: Device = request.param
    return chosen


def cell_on(device: Device, folder: Path, cache: Path) -> tuple[CellFolder, RunsFolder]:
    runs = with_cache(RunsFolder(folder), cache)
    study = chain_study("device", {"updates": 6}, device=device, seeds=[1, 2])
    return planned(write_study(folder, study), runs, "mc"), runs


def test_sampler_and_learner_agree_on_log_probabilities(device: Device, tmp_path: Path, chain_cache: Path) -> None:
    task = build_task(CHAIN_TASK)
    cache = with_cache(RunsFolder(tmp_path / "runs"), chain_cache).cache("warm-start")
    policy = build_policy({"preset": "tiny-chain"}, task, cache, device=device).policy
    assert isinstance(policy, TorchPolicy)
    assert next(policy.module.parameters()).device.type == device
    requests = [
        Request("rollout", policy.encode(problem.prompt), Sampling(12), seed, 0)
        for seed, problem in enumerate(task.pool("tuning"))
    ]
    samples = policy.engine().generate(requests)
    rows = [
        Row(Rollout(request, sample, "", 0.0), (1.0,) * len(sample.token_ids), 1.0)
        for request, sample in zip(requests, samples, strict=True)
    ]
    with torch.no_grad():
        learned = token_logprobs(policy.module, rows, 1.0).cpu()
    for row, sample in enumerate(samples):
        told = torch.tensor(sample.logprobs, dtype=torch.float32)
        torch.testing.assert_close(learned[row, : len(told)], told, atol=1e-4, rtol=0)


def test_a_run_is_metered_on_its_device_and_goes_on_from_a_checkpoint(
    device: Device, tmp_path: Path, chain_cache: Path
) -> None:
    whole, runs = cell_on(device, tmp_path / "whole", chain_cache)
    assert run_cell(whole.spec, runs) == EXIT_COMPLETED
    run = fold_run(whole.path)
    assert run.updates == 6
    assert (run.charge["gpu_hours"] > 0) == (device == "cuda")
    assert read_events(whole.events(1)).events[0].payload["device"].startswith(device)
    assert Cell.read(whole.spec).content.get("device", "cpu") == device
    assert_ledger_is_the_recount(whole, run)

    halved, runs = cell_on(device, tmp_path / "halved", chain_cache)
    assert run_cell(halved.spec, runs, lambda: b'"update":3,' in halved.events(1).read_bytes()) == EXIT_INTERRUPTED
    assert run_cell(halved.spec, runs) == EXIT_COMPLETED
    again = fold_run(halved.path)
    assert again.updates == 6 and len(halved.attempt_numbers()) == 2
    assert_ledger_is_the_recount(halved, again)
    if device == "cpu":  # on a GPU nobody promises equal bits
        assert again.history == run.history
        assert counts(again.algorithmic) == counts(run.algorithmic)
