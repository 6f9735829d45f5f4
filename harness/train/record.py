"""What a run writes down: ledger, updates, evaluations, and the token sidecar that lets others recount.

Deterministic values go to payloads, what a clock measured beside them. A sidecar part is on disk before the
line that names it, so whatever a log counts can be recounted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from harness.compute.clock import Clock
from harness.compute.kinds import HOUR_CURRENCIES, Kind
from harness.compute.meter import Meter
from harness.errors import InputError
from harness.events.attempts import Fault
from harness.events.writer import EventWriter
from harness.rollout.protocol import Request, Sample
from harness.rollout.sidecar import SampleRecord, TokenSidecar
from harness.study.cell import Milestone
from harness.train.evaluation import Evaluation

Charge = dict[str, float]
"""Cumulative algorithmic charge by currency, `updates` among them."""


class RunRecord:
    """Writes one attempt's events, from the meter and clock that it reads."""

    def __init__(
        self, events: EventWriter, sidecar: TokenSidecar, meter: Meter, clock: Clock, charged: Collection[Kind]
    ):
        self.events = events
        self._sidecar = sidecar
        self._meter = meter
        self._clock = clock
        self._charged = charged
        self._sampled: list[tuple[Request, Sample]] = []
        self._discarded: set[int] = set()

    def sampled(self, requests: Sequence[Request], samples: Sequence[Sample]) -> None:
        """Keeps what an engine returned until the next line that accounts for it."""
        self._sampled.extend(zip(requests, samples, strict=True))

    def discarded(self, samples: Iterable[Sample]) -> None:
        """Of the samples kept, those whose groups were dropped."""
        self._discarded.update(map(id, samples))

    def charge(self, updates: int, lost: bool = True) -> Charge:
        """What the run has been charged so far, in every currency. `lost`: with what it lost by its own fault."""
        return {
            "generated_tokens": self._meter.charge("generated_tokens", self._charged, lost),
            "flops": self._meter.charge("flops", self._charged, lost),
            **hours_charged(self._clock, lost),
            "updates": updates,
        }

    def ledger(self, update: int, prompts: Mapping[int, str], graded: Mapping[int, tuple[str, float]]) -> None:
        """The work since the last line, as one row per kind. `prompts`: text by problem index."""
        rows, part = self._drain(update, prompts, graded)
        seconds = {kind: spent.record() for kind, spent in self._clock.drain().items()}
        payload = {"update": update, "rows": rows, "part": part}
        self.events.append("ledger", payload, {"rows": seconds, "charge": _hours(self.charge(update))})

    def leftover(self, update: int) -> None:
        """The work that no line has told of, when a run ends in the middle of it: without the samples, if need be."""
        if self._meter.state()["pending"]:
            try:
                self.ledger(update, {}, {})
            except InputError:  # no room for them
                self._sampled = []
                self.ledger(update, {}, {})

    def update(self, update: int, charge: Charge, values: Mapping[str, Any]) -> None:
        """One optimiser step, with the charge at its barrier."""
        payload = {"update": update, "charge": _counted(charge), **values}
        self.events.append("update", payload, {"charge": _hours(charge)})

    def evaluation(
        self,
        evaluation: Evaluation | None,
        milestones: Sequence[Milestone],
        policy_charge: Charge,
        charge_after: Charge,
        spec: Mapping[str, Any],
        prompts: Mapping[int, str],
    ) -> None:
        """One evaluation for all the milestones that were due together; None is a policy that diverged."""
        update = int(policy_charge["updates"])
        rows, part = self._drain(update, prompts, evaluation.graded if evaluation else {})
        spent = self._clock.drain().get("evaluation")
        told = [
            {"currency": m.currency, "amount": m.amount, "charge_after": charge_after[m.currency]} for m in milestones
        ]
        payload = {
            "updates": update,
            "pool": spec["pool"],
            "charge": {**_counted(policy_charge), "updates": update},
            "milestones": [entry for entry in told if entry["currency"] not in HOUR_CURRENCIES],
            "outcomes": evaluation.outcomes if evaluation else [],
            "samples_per_problem": spec["samples"],
            "verifier_errors": evaluation.verifier_errors if evaluation else 0,
            "accuracy": evaluation.accuracy if evaluation else spec["diverged_accuracy"],
            "diverged": evaluation is None,
            "rows": rows,
            "part": part,
        }
        measured = {
            "milestones": [entry for entry in told if entry["currency"] in HOUR_CURRENCIES],
            "charge": _hours(policy_charge),
            **(spent.record() if spent else {}),
        }
        self.events.append("evaluation", payload, measured)

    def finished(self, status: str, reason: str, charge: Charge, diverged: bool, fault: Fault | None = None) -> None:
        """The last line of an attempt. `fault`: of a failure, where it was not the run's own."""
        payload = {
            "status": status,
            "reason": reason,
            "updates": int(charge["updates"]),
            "charge": _counted(charge),
            "diverged": diverged,
            **({"fault": fault} if fault else {}),
        }
        self.events.append("finished", payload, {"charge": _hours(charge)})
        self.events.sync()

    def _drain(
        self, update: int, prompts: Mapping[int, str], graded: Mapping[int, tuple[str, float]]
    ) -> tuple[dict[str, Any], str | None]:
        """Rows and part of one line. The part first: where it cannot be written, the rows are still to be told."""
        part = self._write_part(update, prompts, graded) if self._sampled else None
        self._sampled, self._discarded = [], set()
        return {kind: counts.record() for kind, counts in self._meter.drain().items()}, part

    def _write_part(self, update: int, prompts: Mapping[int, str], graded: Mapping[int, tuple[str, float]]) -> str:
        records = []
        for request, sample in self._sampled:
            completion, reward = graded.get(id(sample), ("", None))
            records.append(
                SampleRecord(
                    kind="discarded" if id(sample) in self._discarded else request.purpose,
                    problem=request.problem,
                    visit=request.visit,
                    index=request.index,
                    prompt_ids=request.prompt_ids,
                    token_ids=sample.token_ids,
                    finish_reason=sample.finish_reason,
                    prompt=prompts.get(request.problem, ""),
                    completion=completion,
                    reward=reward,
                )
            )
        return self._sidecar.write_part(update, records)


def hours_charged(clock: Clock, lost: bool = True) -> Charge:
    """What the clock has charged so far. `lost`: with what the run lost by its own fault."""
    return {currency: clock.charge(currency, lost) for currency in HOUR_CURRENCIES}


def _counted(charge: Charge) -> dict[str, float]:
    return {currency: charge[currency] for currency in ("generated_tokens", "flops")}


def _hours(charge: Charge) -> dict[str, float]:
    return {currency: charge[currency] for currency in HOUR_CURRENCIES}
