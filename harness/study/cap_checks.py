"""From what a budget says of the whole sweep to the cap that binds, and what is wrong with it.

Where a run's only budget is in a capped currency, its ceiling is twice the budget: an arm that cannot make one update
within the budget is refused, so that budget and one update are within twice the budget.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from harness.study.caps import SweepCap
from harness.study.checks import Finding

if TYPE_CHECKING:
    from harness.study import schema

HELD_EXACTLY: Final = "generated_tokens"
"""Never sampled beyond a ceiling; other currencies are looked at once per update."""


def sweep_cap(spec: schema.SweepCap, budgets: Mapping[str, float]) -> SweepCap:
    """The cap with every ceiling filled in. A spec that passed `cap_findings`."""
    total, per_arm = spec.total.amounts(), spec.per_arm.amounts()
    given, steps = spec.ceiling.amounts(), spec.step.amounts()
    capped = sorted({*total, *per_arm})
    ceilings = {name: given[name] if name in given else 2 * budgets[name] for name in capped}
    return SweepCap(total, per_arm, ceilings, {name: steps.get(name, 0) for name in capped}, spec.retries)


def cap_findings(spec: schema.SweepCap | None, budgets: Mapping[str, float]) -> Iterator[Finding]:
    """Caps that nothing bounds a run in, or that no block fits in."""
    if spec is None:
        return
    capped = sorted({*spec.total.amounts(), *spec.per_arm.amounts()})
    if not capped:
        yield Finding(("budget",), "a sweep's cap without any amount", "`total` or `per_arm`, e.g. {gpu_hours: 100}")
    for name in capped:
        if name not in spec.ceiling.amounts() and set(budgets) != {name}:
            what = f"the sweep is capped in {name}, and nothing bounds what one run takes of it"
            yield Finding(("budget",), what, f"add `sweep: {{ceiling: {{{name}: ...}}}}`: the run ends beyond it")
        if name != HELD_EXACTLY and name not in spec.step.amounts():
            what = f"the sweep is capped in {name}, and nothing bounds what one update takes of it"
            yield Finding(("budget",), what, f"add `sweep: {{step: {{{name}: ...}}}}`, the most that one can take")
    for name, amount in spec.ceiling.amounts().items():
        if name in budgets and amount < 2 * budgets[name] and set(budgets) == {name}:
            what = f"a ceiling of {amount:g} {name} may end a run before its budget of {budgets[name]:g} is used up"
            yield Finding(("budget",), what, f"at least twice the budget, {2 * budgets[name]:g}")
