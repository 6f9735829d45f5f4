"""From a study file to a checked study: every problem of the file at once, each with its line.

`LoadedStudy.resolved` is the study with everything written out (defaults, budgets, milestones, parsed claims,
hashes of weights): what a lock hashes, so that comments, key order, spelling of numbers and line ends do not
change `hash`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from harness.errors import InputError, Problem
from harness.study.canonical import canonical_hash
from harness.study.cap_checks import cap_findings, sweep_cap
from harness.study.caps import SweepCap
from harness.study.cell import Milestone
from harness.study.checks import (
    Finding,
    arm_findings,
    budget_findings,
    decay_findings,
    device_findings,
    doubts,
    missing_budget,
    model_findings,
    reference_findings,
    selection_findings,
    update_findings,
)
from harness.study.claims import Claim, ClaimError, ClaimGrammar
from harness.study.milestones import declared_milestones
from harness.study.model_folder import weights_hash
from harness.study.schema import Budget, Study
from harness.study.schema_errors import path_of, problems_of
from harness.study.strict_yaml import Document, read_file
from harness.tasks.registry import build_task

_SALVAGE_ROUNDS: Final = 3
_STAND_INS: Final[dict[str, Any]] = {
    "study": "stand-in",
    "title": "stand-in",
    "authors": ["stand-in"],
    "existing_data": "none",
    "task": {"name": "scripted", "pool": {"train": 1, "tuning": 1, "confirmatory": 1}},
    "seeds": [0, 1],
    "budget": {"updates": 1},
}
"""For required values that were refused, so that the rest of the file can be checked all the same. None of them can
bring a complaint of its own."""


@dataclass(frozen=True)
class LoadedStudy:
    """A study that passed every check of its file."""

    path: Path
    raw: bytes
    """The file as it is."""
    document: Document
    """Positions, for problems found later."""
    study: Study
    budgets: dict[str, float]
    """Currency to amount."""
    milestones: list[Milestone]
    claims: list[Claim]
    warnings: list[Problem]
    resolved: dict[str, Any]
    """The study as plain values, in full."""
    cap: SweepCap | None = None
    """On the whole sweep, its ceilings filled in."""

    @cached_property
    def hash(self) -> str:
        """SHA-256 (64 hex digits) of the canonical JSON of `resolved`."""
        return canonical_hash(self.resolved)

    @property
    def name(self) -> str:
        return self.study.study


def load_study(path: str | Path, budgets_folder: Path | None = None) -> LoadedStudy:
    """Reads and checks a study file; an InputError with every problem found.

    `budgets_folder`: where budgets named by the study are; by default `budgets/` beside the folder of the file.
    """
    path = Path(path)
    raw, document = read_file(path, "study file")
    problems = list(document.problems)
    study, whole = _study_of(document, problems)
    if study is None:
        raise InputError(_in_order(problems))
    folder = budgets_folder or path.absolute().parent.parent / "budgets"
    budget = _budget_of(study, folder, document, problems)
    budgets = budget.amounts() if budget is not None else {}
    arms = [*map(str, document.value["arms"])]
    findings = list(reference_findings(study, arms))
    milestones = declared_milestones(study.evaluate, budgets)
    # Of a budget that was refused in part, nobody knows which points a claim may speak of.
    points_known = budgets and not any(problem.field.startswith(("budget", "evaluate")) for problem in problems)
    claims = _claims_of(study, ClaimGrammar(arms, milestones, budgets), findings) if points_known else []
    if whole and budgets:
        findings += budget_findings(study, budgets, milestones)
        findings += update_findings(study, budgets, path.parent)
        findings += arm_findings(study)
        findings += selection_findings(study)
        findings += decay_findings(study, budgets)
        if budget is not None:
            findings += device_findings(study, budget)
            findings += cap_findings(budget.sweep, budgets)
        findings += model_findings(study, path.parent)
    problems += _placed(findings, document)
    if problems:
        raise InputError(_in_order(problems))
    warnings = _placed(doubts(study, budgets, milestones), document)
    resolved = _resolved(study, budgets, milestones, claims, path.parent)
    cap = sweep_cap(budget.sweep, budgets) if budget is not None and budget.sweep is not None else None
    if cap is not None:
        resolved["sweep"] = asdict(cap)
    return LoadedStudy(path, raw, document, study, budgets, milestones, claims, warnings, resolved, cap)


def check_task(loaded: LoadedStudy) -> None:
    """Builds the task, which takes longer than all other checks: an InputError when its pools cannot be had.

    Pools that overlap, or that have fewer distinct problems than the study asks for, show only then.
    """
    try:
        build_task(loaded.resolved["task"])
    except InputError as error:
        fields = [tuple((problem.field or "task").split(".")) for problem in error.problems]
        places = map(loaded.document.where, fields)
        raise InputError(
            [replace(problem, where=place) for problem, place in zip(error.problems, places, strict=True)]
        ) from None


def _study_of(document: Document, problems: list[Problem]) -> tuple[Study | None, bool]:
    """The study, and whether it is the whole file: else what is left without the values that were refused."""
    value = document.value
    for salvage in range(_SALVAGE_ROUNDS):
        try:
            return Study.model_validate(value), salvage == 0
        except ValidationError as error:
            if salvage == 0:
                problems += problems_of(error, document, Study)
            paths = {path_of(detail, value) for detail in error.errors(include_url=False)}
            if salvage:  # taking out the parts was not enough
                paths = {path[:1] for path in paths}
            value = _without(value, paths)
            if isinstance(value, dict):
                value = {**_STAND_INS, **value}
                if isinstance(value.get("arms"), dict):
                    value.setdefault("baseline", next(iter(value["arms"]), None))
    return None, False


def _without(value: Any, paths: Iterable[tuple[str | int, ...]]) -> Any:
    """A copy without the named parts of mappings; list items stay, so that indices keep their meaning."""
    value = copy.deepcopy(value)
    for path in sorted(paths, key=len, reverse=True):
        holder = value
        for part in path[:-1]:
            holder = holder[part]
        if path and isinstance(holder, dict):
            holder.pop(path[-1], None)
    return value


def _budget_of(study: Study, folder: Path, document: Document, problems: list[Problem]) -> Budget | None:
    """What runs and sweep may use; None, with a problem told, when it cannot be had."""
    if isinstance(study.budget, Budget):
        return study.budget
    path = folder / f"{study.budget}.yaml"
    if not path.is_file():
        problems += _placed([missing_budget(study.budget, folder)], document)
        return None
    _, budget_document = read_file(path, "budget file")
    problems += budget_document.problems
    try:
        return Budget.model_validate(budget_document.value)
    except ValidationError as error:
        problems += problems_of(error, budget_document, Budget)
        return None


def _claims_of(study: Study, grammar: ClaimGrammar, findings: list[Finding]) -> list[Claim]:
    claims = []
    for index, spec in enumerate(study.claims):
        try:
            model = spec.model or study.models[0].name
            claims.append(grammar.read(spec.claim, spec.id, spec.statement, model))
        except ClaimError as error:
            findings.append(Finding(("claims", index, "claim"), error.what, error.right, error.offset))
    return claims


def _in_order(problems: list[Problem]) -> list[Problem]:
    """By file, line and column."""

    def place(problem: Problem) -> tuple[str, int, int]:
        name, line, column = problem.where.rsplit(":", 2)
        return name, int(line), int(column)

    return sorted(problems, key=place)


def _placed(findings: Iterable[Finding], document: Document) -> list[Problem]:
    def where(found: Finding) -> str:
        of_mapping = found.path in document.keys and isinstance(document.at(found.path), dict)
        return document.where(found.path, found.offset, key=of_mapping)

    return [Problem(found.what, found.right, ".".join(map(str, found.path)), where(found)) for found in findings]


def _resolved(
    study: Study, budgets: dict[str, float], milestones: list[Milestone], claims: list[Claim], folder: Path
) -> dict[str, Any]:
    """Everything written out, as plain values."""
    models = [
        {"name": model.name, "preset": model.preset}
        if model.folder is None
        else {"name": model.name, "folder": model.folder, "weights_hash": weights_hash(folder / model.folder)}
        for model in study.models
    ]
    existing = study.existing_data
    return {
        "study": study.study,
        "title": study.title,
        "question": study.question,
        "authors": study.authors,
        "existing_data": existing if isinstance(existing, str) else existing.model_dump(mode="json"),
        "models": models,
        "task": study.task.model_dump(mode="json", exclude={"revision"}),  # the code's, not the promise's
        "training": study.training.model_dump(mode="json"),
        "arms": {
            name: {
                "intervention": arm.intervention,
                "parameters": arm.parameters.model_dump(mode="json"),
                "training": arm.changes(study.training),
                **({"selection": arm.selection.record()} if arm.selection is not None else {}),
            }
            for name, arm in study.arms.items()
        },
        "baseline": study.baseline,
        "seeds": study.seeds,
        "budgets": budgets,
        "milestones": [
            {"currency": point.currency, "amount": point.amount, "fraction": point.fraction} for point in milestones
        ],
        "evaluate": evaluation_values(study),
        "charged": study.charged_in_order(),
        "claims": [claim.record() for claim in claims],
        "alpha": study.alpha,
        "correction": study.correction,
        "exclusions": sorted(study.exclusions),
        "threads": study.threads,
        **study.model_dump(mode="json", include={"device", "health"}),  # not there at their defaults
    }


def evaluation_values(study: Study) -> dict[str, Any]:
    """How runs are evaluated, without when: `evaluate` as a cell holds it, the sample limit filled in."""
    evaluate = study.evaluate
    kept = evaluate.model_dump(
        mode="json", include={"pool", "decoding", "samples", "max_new_tokens", "diverged_accuracy"}
    )
    return {**kept, "max_new_tokens": evaluate.max_new_tokens or study.training.max_new_tokens}
