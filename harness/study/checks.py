"""What a well-formed study must also satisfy, so that its runs can end and its claims can be judged.

Each check returns findings at paths of the file; load.py gives them their lines. What only the built task can
tell (pools that overlap) is load.py's `check_task`, and what only a run can tell is left to the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness.compute.flops import MOST_FLOPS_PER_SECOND, decode_flops, forward_flops
from harness.compute.kinds import CURRENCIES, HOUR_CURRENCIES, KINDS, SAMPLED_KINDS
from harness.errors import brief
from harness.interventions.base import Intervention
from harness.interventions.registry import INTERVENTIONS
from harness.interventions.selection.registry import SELECTORS
from harness.models.presets import PRESETS
from harness.models.shapes import folder_shape
from harness.study.canonical import canonical_hash
from harness.study.cell import Milestone
from harness.study.milestones import amount_text, fraction_of
from harness.study.model_folder import missing_parts
from harness.study.schema import Arm, Budget, Study
from harness.study.strict_yaml import KeyPath
from harness.study.suggest import did_you_mean
from harness.study.training import TrainingSpec

LARGEST: Final = 10**300
"""Beyond it an amount is taken for this, so that floats can hold it."""

LEAST_SEEDS: Final = 2
"""A paired interval over seeds has no degrees of freedom with fewer."""
_LARGEST: Final = 10**300
"""Amounts are floats; a product of absurd values is not."""


@dataclass(frozen=True)
class Finding:
    """Something wrong (or, among warnings, doubtful) at a path of the file."""

    path: KeyPath
    what: str
    right: str = ""
    offset: int = 0
    """Character within the text at `path`."""


def reference_findings(study: Study, arms: Sequence[str]) -> Iterator[Finding]:
    """Names that must lead somewhere, and lists that must not repeat. `arms`: all that the file names."""
    if study.baseline not in arms:
        yield Finding(
            ("baseline",), f"no arm is called {brief(study.baseline)!r}", did_you_mean(study.baseline, arms)
        )
    models = [model.name for model in study.models]
    for name in _repeated(models):
        yield Finding(("models",), f"two models are called {name!r}", "give each its own name")
    for name in _repeated([claim.id for claim in study.claims]):
        yield Finding(("claims",), f"two claims have the id {name!r}", "give each its own id")
    for index, claim in enumerate(study.claims):
        if claim.model is None and len(models) > 1:
            yield Finding(
                ("claims", index), "the study has several models", f"add `model:`, one of {', '.join(models)}"
            )
        if claim.model is not None and claim.model not in models:
            at = ("claims", index, "model")
            yield Finding(at, f"no model is called {brief(claim.model)!r}", did_you_mean(claim.model, models))
    for seed in _repeated(study.seeds):
        yield Finding(("seeds",), f"seed {seed} is given twice", "a seed is one run of each arm: give each once")
    if study.claims and len(study.seeds) < LEAST_SEEDS:
        yield Finding(("seeds",), f"{len(study.seeds)} seed cannot decide a claim", f"at least {LEAST_SEEDS} seeds")


def budget_findings(study: Study, budgets: Mapping[str, float], milestones: Sequence[Milestone]) -> Iterator[Finding]:
    """Budgets that end no run; milestones at nothing, and those that no run reaches."""
    for index, percentage in enumerate(study.evaluate.at):
        if not 0 < fraction_of(percentage) <= 1:
            yield Finding(("evaluate", "at", index), f"found {percentage}", "above 0% and at most 100%")
    if not milestones:
        yield Finding(("evaluate", "at"), "no run would ever be evaluated", "at least 100%")
    for milestone in milestones:
        if milestone.fraction and milestone.amount == 0:
            whole = amount_text(budgets[milestone.currency])
            what = f"{milestone.fraction * 100:g}% of {whole} {milestone.currency} is 0"
            yield Finding(("evaluate", "at"), what, "a larger percentage or a larger budget")
    for currency in CURRENCIES:
        tokens = currency == "generated_tokens"
        ends = {"rollout"} if tokens else {"rollout", "policy_train"}  # done by arms of every family
        adds = {*SAMPLED_KINDS} if tokens else {*KINDS}
        if currency == "updates":
            continue
        if currency in budgets and not ends & {*study.charged}:
            what = f"nothing that is charged ever uses up the budget in {currency}"
            yield Finding(("charged",), what, "charge at least `rollout`")
        elif getattr(study.evaluate, currency) and not adds & {*study.charged}:
            what = f"milestones in {currency}, which nothing that is charged adds to"
            yield Finding(("evaluate", currency), what, "charge at least `rollout`, or remove them")


def missing_budget(name: str, folder: Path) -> Finding:
    """What to say of a budget that is named, and is no file in `folder`."""
    path = folder / f"{name}.yaml"
    if path.is_symlink():
        return Finding(("budget",), f"{path} is a link that leads to no file", "mend the link")
    if path.exists():
        return Finding(("budget",), f"{path} is not a file", "a YAML file of amounts by currency")
    known = sorted(found.stem for found in folder.glob("*.yaml") if found.is_file())
    return Finding(("budget",), f"there is no budget {name!r} in {folder}", did_you_mean(name, known))


def update_findings(study: Study, budgets: Mapping[str, float], folder: Path) -> Iterator[Finding]:
    """Budgets below one update of some arm. `folder`: where the study file is.

    By what is certain beforehand: samples no shorter than the task's shortest right answer, prompts of one token,
    each problem's prefilled once, and no training, since rollouts that all fare alike teach nothing. Hours are
    bounded by these FLOPs on a device faster than any; the first update tells the rest (train/run.py). A model folder
    that does not tell its shape bounds neither. What is not charged is left out.
    """
    hours = {"cpu": "cpu_hours", "cuda": "gpu_hours"}[study.device]
    for name, arm in study.arms.items() if "rollout" in study.charged else ():
        samples = _least_samples(study, arm)
        tokens = samples * study.task.least_answer_tokens()
        yield from _short(budgets, "generated_tokens", tokens, f"arm {name!r}")
        for model in study.models if {"flops", hours} & {*budgets} else ():
            shape = PRESETS[str(model.preset)].shape if model.folder is None else folder_shape(folder / model.folder)
            if shape is None:
                continue
            prompts = min(arm.training(study.training).prompts_per_update, study.task.pool.train)
            decode = decode_flops(shape, 1, study.task.least_answer_tokens())
            flops = prompts * forward_flops(shape, 1) + samples * decode
            whose = f"arm {name!r}" + (f" with model {model.name!r}" if len(study.models) > 1 else "")
            yield from _short(budgets, "flops", flops, whose)
            seconds = min(flops, LARGEST) / MOST_FLOPS_PER_SECOND[study.device]
            yield from _short(budgets, hours, seconds / 3600, whose)


def _least_samples(study: Study, arm: Arm) -> int:
    """Charged samples of one update: all that the arm's family says, or its rollouts where other kinds are free."""
    all_charged = {*SAMPLED_KINDS} <= {*study.charged}
    family = INTERVENTIONS[arm.intervention] if all_charged else Intervention
    training = arm.training(study.training)
    least = family.least_update_tokens(arm.parameters, training)
    if arm.selection is None:
        return least
    asked, reused = SELECTORS[arm.selection.name].probes(arm.selection.parameters, training)
    return least - reused + (asked if "probe" in study.charged else 0)


def selection_findings(study: Study) -> Iterator[Finding]:
    """Arms that cannot choose their prompts, or have nothing to choose from."""
    for name, arm in study.arms.items():
        if arm.selection is None:
            continue
        at: KeyPath = ("arms", name, "selection")
        candidates = arm.selection.parameters.candidates
        prompts, pool = arm.training(study.training).prompts_per_update, study.task.pool.train
        if reason := INTERVENTIONS[arm.intervention].NO_SELECTION:
            yield Finding(at, f"{arm.intervention} cannot choose its prompts: {reason}", "remove `selection`")
        if candidates < prompts:
            what = f"{candidates} candidates for the {prompts} prompts of an update"
            yield Finding((*at, "candidates"), what, f"at least {prompts}, and more to have a choice")
        elif candidates > pool:
            what = f"{candidates} candidates from a training pool of {pool}"
            yield Finding((*at, "candidates"), what, f"at most {pool}, or a larger `task.pool.train`")


def _short(budgets: Mapping[str, float], currency: str, least: float, whose: str) -> Iterator[Finding]:
    least = min(least, _LARGEST)
    budget = budgets.get(currency, least)
    if budget < least:
        what = f"{amount_text(budget)} {currency} are {amount_text(least - budget)} short of one update of {whose}"
        yield Finding(("budget",), what, f"an update of the shortest right answers takes {amount_text(least)}")


def arm_findings(study: Study) -> Iterator[Finding]:
    """Arms that are one arm under two names, or that can never be right."""
    shortest = study.task.least_answer_tokens()
    limits: dict[KeyPath, int] = {("training", "max_new_tokens"): study.training.max_new_tokens}
    for name, arm in study.arms.items():
        if "max_new_tokens" in arm.overrides.model_fields_set:
            limits["arms", name, "training", "max_new_tokens"] = arm.overrides.max_new_tokens
    for path, limit in limits.items():
        if limit < shortest:
            what = f"{limit} tokens are too few for any right answer"
            yield Finding(path, what, f"the task's shortest right answer takes {shortest}")
    for name, arm in study.arms.items():
        fixed = arm.training(study.training)
        for field in arm.overrides.model_fields_set:
            given, needed = getattr(arm.overrides, field), getattr(fixed, field)
            if given != needed:
                what = f"{arm.intervention} fixes {field} to {needed}, found {given}"
                yield Finding(("arms", name, "training", field), what, "remove it")
    first_with: dict[str, str] = {}
    for name, arm in study.arms.items():
        other = first_with.setdefault(canonical_hash(arm_content(study, arm)), name)
        if other != name:
            what = f"arms {other!r} and {name!r} are the same: intervention, parameters and training are equal"
            yield Finding(("arms", name), what, "change what was meant to differ, or remove one of them")


def arm_content(study: Study, arm: Arm) -> dict[str, Any]:
    """What an arm is, its name left out: intervention with all parameters, training values in full."""
    return {
        "intervention": {
            "name": arm.intervention,
            "parameters": arm.parameters.model_dump(mode="json"),
            **({"selection": arm.selection.record()} if arm.selection is not None else {}),
        },
        "training": arm.training(study.training).model_dump(mode="json"),
    }


def decay_findings(study: Study, budgets: Mapping[str, float]) -> Iterator[Finding]:
    """A decay needs one budget to follow, and no other that could outlast it (docs/method.md, section 3)."""
    yield from _decay_findings(study.training, budgets, ("training",))
    for name, arm in study.arms.items():
        if arm.overrides.model_fields_set & {"decay", "decay_over"}:
            yield from _decay_findings(arm.training(study.training), budgets, ("arms", name, "training"))


def _decay_findings(training: TrainingSpec, budgets: Mapping[str, float], path: KeyPath) -> Iterator[Finding]:
    over = training.decay_over
    if training.decay == "none":
        if over is not None:
            yield Finding((*path, "decay_over"), "a budget to decay over, but no decay", "set `decay`, or remove it")
        return
    if over is None:
        what = f"decay {training.decay} over no budget"
        yield Finding((*path, "decay"), what, f"add `decay_over:`, the budget in {' or '.join(budgets)}")
    elif over not in budgets:
        what = f"decay over {over}, in which no budget is given"
        yield Finding((*path, "decay_over"), what, f"one of the budgets: {', '.join(budgets)}")
    if len(budgets) > 1:
        what = f"a decaying learning rate with {len(budgets)} budgets ({', '.join(budgets)})"
        right = "one budget in such a study (write one study for each currency), or `decay: none`"
        yield Finding((*path, "decay"), what, right)


def device_findings(study: Study, budget: Budget) -> Iterator[Finding]:
    """GPU-hours are those of the GPU that a run has to itself; on the CPU it has none."""
    if study.device == "cuda":
        return
    right = "add `device: cuda`, or give cpu_hours"
    if budget.gpu_hours is not None:
        yield Finding(("budget",), "a budget in gpu_hours, and runs on the CPU", right)
    if budget.sweep is not None and "gpu_hours" in {**budget.sweep.total.amounts(), **budget.sweep.per_arm.amounts()}:
        yield Finding(("budget",), "a sweep's cap in gpu_hours, and runs on the CPU", right)
    if study.evaluate.gpu_hours:
        yield Finding(("evaluate", "gpu_hours"), "milestones in gpu_hours, and runs on the CPU", right)


def model_findings(study: Study, folder: Path) -> Iterator[Finding]:
    """Presets of another task; model folders that are not there, or not whole. `folder`: where the study file is."""
    for index, model in enumerate(study.models):
        if model.folder is None:
            made_for = PRESETS[str(model.preset)].task
            if made_for != study.task_name:
                what = f"preset {model.preset!r} is made for task {made_for!r}, not for {study.task_name!r}"
                yield Finding(("models", index), what, "that task, or a model folder")
            continue
        at = ("models", index, "folder")
        path = folder / model.folder
        try:
            there = path.is_dir()
        except OSError as error:  # a name too long, a folder above it that may not be entered
            what = f"the folder {brief(model.folder)!r} cannot be looked at: {error.strerror}"
            yield Finding(at, what, "a folder saved by transformers' save_pretrained")
            continue
        if not there:
            yield Finding(at, f"there is no folder {path}", "a folder saved by transformers' save_pretrained")
        else:
            missing = ", no ".join(missing_parts(path))
            if missing:
                yield Finding(at, f"the model folder {path} has no {missing}", "save model and tokenizer into it")


def doubts(study: Study, budgets: Mapping[str, float], milestones: Sequence[Milestone]) -> Iterator[Finding]:
    """What is allowed, and still probably not what was meant."""
    for milestone in milestones:
        budget = budgets.get(milestone.currency)
        if budget is not None and milestone.amount > budget:
            at = ("evaluate", milestone.currency)
            what = f"a milestone at {amount_text(milestone.amount)}, above the budget of {amount_text(budget)}"
            yield Finding(at, what, "arms that stop before it will read `not reached`")
    if study.health is not None and study.health.sampler_mismatch is not None:
        for name, arm in study.arms.items():
            if (top_p := arm.training(study.training).top_p) < 1:
                what = f"a gate on what arm {name!r} does not record, its top_p being {top_p:g}"
                right = "a sampler's log-probabilities are the whole distribution's only at top_p 1"
                yield Finding(("health", "sampler_mismatch"), what, right)
    if not study.claims:
        yield Finding(("claims",), "no claims", "nothing will be judged; the tables are exploratory")
    if len(study.seeds) < LEAST_SEEDS:
        yield Finding(("seeds",), "a single seed", "no interval can be given")
    for currency in HOUR_CURRENCIES:
        if currency in budgets:
            what = f"a budget in {currency} is measured by a clock"
            right = "runs cannot be repeated to the bit, and only the first update tells whether one fits in"
            yield Finding(("budget",), what, f"{right}; hours compare on one device only")


def _repeated(values: Sequence[Any]) -> list[Any]:
    return [value for value, count in Counter(values).items() if count > 1]
