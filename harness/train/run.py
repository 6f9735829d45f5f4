"""The training loop: updates until every budget is exhausted. It is blind to which arm it runs.

One update: converse with the intervention and the engine, ask for its advantages, scale them, backward; then the
barrier, where milestones that the charge has passed are evaluated on the policy in memory; then the step.
Strictly on policy, one step per batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.compute.clock import Clock
from harness.compute.meter import Meter
from harness.compute.work import Work
from harness.errors import InputError
from harness.interventions.base import Conversation, Group, Intervention, Step
from harness.models.policy import Policy
from harness.rollout.metered import MeteredEngine
from harness.rollout.protocol import Engine, NotFinite, Sampling
from harness.study.cell import Cell, Milestone
from harness.study.milestones import amount_text
from harness.study.training import TrainingSpec
from harness.tasks.base import Task
from harness.train import checkpoint as checkpoints
from harness.train.advantages import scale_advantages, zero_variance_share
from harness.train.ceilings import CeilingReached, Ceilings
from harness.train.evaluation import evaluate
from harness.train.learner import Gradient, Learner
from harness.train.milestones import Schedule, learning_rate_factor
from harness.train.modules import load_tensors, tensors_of
from harness.train.prompts import PromptStream
from harness.train.record import Charge, RunRecord
from harness.train.signals import entropy

if TYPE_CHECKING:
    from harness.models.trainable import Trainable


@dataclass(frozen=True)
class Parts:
    """What a run is put together from."""

    task: Task
    policy: Policy
    intervention: Intervention
    modules: Mapping[str, Trainable]
    """The intervention's, to be kept in checkpoints."""
    learner: Learner
    engine: MeteredEngine
    meter: Meter
    clock: Clock
    work: Work
    record: RunRecord
    ceilings: Ceilings


class Run:
    """One attempt's training, from update 0 or from a checkpoint."""

    def __init__(self, cell: Cell, parts: Parts, attempt: int, checkpoint_folder: Path):
        content = cell.content
        self._arm = cell.arm
        self._parts = parts
        self._attempt = attempt
        self._checkpoint_folder = checkpoint_folder
        self._training = TrainingSpec.model_validate_json(_json(content["training"]))
        self._evaluate = content["evaluate"]
        self._seed: int = content["seed"]
        self._budgets: dict[str, float] = content["budgets"]
        milestones = [Milestone(**milestone) for milestone in content["milestones"]]
        self._milestones = milestones
        self._schedule = Schedule(milestones, self._budgets)
        self._prompts = PromptStream(parts.task.pool("train"), self._seed)
        self.updates = 0
        self.diverged = False
        self.reason = "every budget is exhausted"
        """Why it ended, once it has."""
        self._policy_charge: Charge = parts.record.charge(0, lost=False)
        self._last_checkpoint = 0

    def train(self, stop: Callable[[], bool], lost: Callable[[], bool] = lambda: False) -> str:
        """Trains until every budget is exhausted ("completed") or `stop` or `lost` says so ("interrupted").

        `lost`: the cell is somebody else's by now, and so are its checkpoints.
        """
        if not self.diverged and self._schedule.exhausted(self.charge()):  # by what it has lost by its own fault
            self._evaluate_due(self.charge(), after_step=False)
        while not (self.diverged or self._schedule.exhausted(self.charge())):
            if lost():
                return "interrupted"
            if stop():
                if self.updates > self._last_checkpoint:
                    self.save()
                return "interrupted"
            if not self._one_update():
                break
            if self.updates % self._training.checkpoint_every_updates == 0:
                self.save()
        self.save()
        return "completed"

    def charge(self) -> Charge:
        """The algorithmic charge so far."""
        return self._parts.record.charge(self.updates)

    def _one_update(self) -> bool:
        """Whether a step was taken; False: the last budget was exhausted at the barrier."""
        with self._parts.clock.phase("training"):
            step = self._next_step()
            try:
                self._parts.ceilings.check()
                groups = self._collect(step)
            except NotFinite:
                self._end_diverged(step)
                return False
            except CeilingReached as reached:
                self._end_at(reached, step)
                return False
            intervention = self._parts.intervention
            intervention.advantages(groups, step)
            scale_advantages(groups, self._training)
            gradient = self._parts.learner.backward(groups, self._parts.work, intervention.loss_term())
            prompts = {draw.index: draw.problem.prompt for draw in (*step.draws, *step.further)}
            self._parts.record.ledger(step.update, prompts, step.graded)
            charge = self.charge()
            self._require_room()
            self._evaluate_due(charge, after_step=False)
            if self.diverged or self._schedule.exhausted(charge):
                return False
            learning_rate = self._learning_rate(step.update, charge)
            finite = self._parts.learner.step(learning_rate)
            self.updates += 1
        self._policy_charge = {**charge, "updates": self.updates}
        self.diverged = not (finite and gradient.finite)
        self._parts.record.update(
            self.updates, self._policy_charge, self._told(step, groups, gradient, learning_rate)
        )
        self._evaluate_due(self._policy_charge, after_step=True)
        return True

    def _collect(self, step: Step) -> list[Group]:
        parts = self._parts
        try:
            return converse(parts.intervention.collect(step), parts.engine)
        finally:  # what was sampled is booked whatever came of it
            parts.engine.discard([(rollout.request, rollout.sample) for rollout in step.discarded])
            parts.record.discarded(rollout.sample for rollout in step.discarded)

    def _require_room(self) -> None:
        """An arm that cannot make one update within a budget has no accuracy at that budget to speak of.

        Refused before launch where it can be known (study/checks.py); the first update tells the rest.
        """
        charge = self._parts.record.charge(0, lost=False)
        for currency, amount in self._budgets.items() if self.updates == 0 else ():
            if currency != "updates" and charge[currency] > amount:
                short = amount_text(charge[currency] - amount)
                what = f"{amount_text(amount)} {currency} are {short} short of one update of arm {self._arm!r}"
                raise InputError(what, f"the first update took {amount_text(charge[currency])}")

    def _end_diverged(self, step: Step) -> None:
        """Weights can be finite and still give logits that are not: the policy in memory samples nothing more."""
        self.diverged = True
        self._parts.record.ledger(step.update, {}, {})
        self._evaluate_due(self.charge(), after_step=False)

    def _end_at(self, reached: CeilingReached, step: Step) -> None:
        """The step in hand is given up, what it sampled is charged; milestones that it passed are evaluated."""
        self.reason = str(reached)
        self._parts.record.leftover(step.update)
        self._evaluate_due(self.charge(), after_step=False)

    def _next_step(self) -> Step:
        training = self._training
        return Step(
            update=self.updates + 1,
            draws=self._prompts.draw(training.prompts_per_update),
            group_size=training.group_size,
            sampling=Sampling(training.max_new_tokens, training.temperature, training.top_p),
            run_seed=self._seed,
            policy=self._parts.policy,
            task=self._parts.task,
            work=self._parts.work,
            stream=self._prompts.draw,
        )

    def _evaluate_due(self, charge: Charge, *, after_step: bool) -> None:
        due = self._schedule.due(charge, after_step=after_step)
        if due or self.diverged:
            self._evaluate_policy(due, charge)

    def _evaluate_policy(self, due: list[Milestone], charge: Charge) -> None:
        parts, spec = self._parts, self._evaluate
        with parts.clock.phase("evaluation"):
            result = None
            if not self.diverged:
                try:
                    result = evaluate(spec, parts.policy, parts.engine, parts.task, self._seed)
                except NotFinite:
                    self.diverged = True
            if self.diverged:  # no later policy can be sampled: milestones still to come score the declared floor
                due = due + [m for m in self._schedule.open() if m.amount <= self._budgets.get(m.currency, 0)]
                if not due:
                    return
            prompts = {index: problem.prompt for index, problem in enumerate(parts.task.pool(spec["pool"]))}
            parts.record.evaluation(result, due, self._policy_charge, charge, spec, prompts)

    def _learning_rate(self, update: int, charge: Charge) -> float:
        training = self._training
        over = training.decay_over
        fraction = charge[over] / self._budgets[over] if over else 0.0
        factor = learning_rate_factor(training.decay, fraction, training.warmup_updates, update)
        return training.learning_rate * factor

    def _told(self, step: Step, groups: list[Group], gradient: Gradient, learning_rate: float) -> dict[str, Any]:
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        return {
            "learning_rate": learning_rate,
            "loss": gradient.loss,
            "grad_norm": gradient.grad_norm,
            "reward_mean": float(np.mean([rollout.reward for rollout in rollouts])),
            "clipped_share": float(np.mean([r.sample.finish_reason == "length" for r in rollouts])),
            "zero_variance_share": zero_variance_share(groups),
            "verifier_errors": step.verifier_errors,
            "entropy": entropy(rollout.sample for rollout in rollouts),
            "sampler_mismatch": gradient.sampler_mismatch,
            "trained_tokens": gradient.trained_tokens,
            "notes": step.notes,
            **({"choices": [asdict(choice) for choice in step.choices]} if step.choices else {}),
            "diverged": self.diverged,
        }

    def save(self) -> None:
        """Writes a checkpoint as the crash rule says (train/checkpoint.py)."""
        parts = self._parts
        with parts.clock.phase("checkpoint"):
            seq = parts.record.events.sync()
            name = checkpoints.name_of(self._attempt, self.updates)
            state = {
                "update": self.updates,
                "diverged": self.diverged,
                "meter": parts.meter.state(),
                "clock": parts.clock.state(),
                "passed": self._schedule.passed,
                "prompts": self._prompts.position,
                "policy_charge": self._policy_charge,
                "intervention": parts.intervention.state(),
            }
            tensors = {**parts.learner.tensors(), **tensors_of(parts.modules)}
            checkpoint = checkpoints.Checkpoint(name, self._attempt, seq, state, tensors)
            checkpoints.save(self._checkpoint_folder, checkpoint)
            parts.record.events.append(
                "checkpoint", {"update": self.updates, "name": name, "attempt": self._attempt, "seq": seq}
            )
        self._last_checkpoint = self.updates

    def restore(self, checkpoint: checkpoints.Checkpoint) -> None:
        """Goes on from a checkpoint of this cell, whose meter and clock are restored already."""
        parts, state = self._parts, checkpoint.state
        parts.learner.load_tensors(checkpoint.tensors)
        load_tensors(parts.modules, checkpoint.tensors)
        parts.intervention.load_state(state["intervention"])
        passed = [(currency, amount) for currency, amount in state["passed"]]
        self._schedule = Schedule(self._milestones, self._budgets, passed)
        self._prompts.position = state["prompts"]
        self._policy_charge = state["policy_charge"]
        self.updates = self._last_checkpoint = state["update"]
        self.diverged = state["diverged"]


def converse(conversation: Conversation, engine: Engine) -> list[Group]:
    """Answers an intervention's requests until it returns its groups."""
    try:
        requests = next(conversation)
        while True:
            requests = conversation.send(engine.generate(requests))
    except StopIteration as done:
        groups: list[Group] = done.value
        return groups


def _json(value: Any) -> str:
    import json

    return json.dumps(value)
