"""Studies that are well formed and still cannot be: every one is told before anything is launched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from small_study import STUDY
from support.hook_arms import HOOK_ARMS
from support.saved_models import save_tiny_llama

from harness.errors import InputError
from harness.interventions.registry import INTERVENTIONS
from harness.study.checks import arm_findings
from harness.study.load import check_task, load_study
from harness.study.model_folder import weights_hash
from harness.study.schema import Arm
from harness.study.training import TrainingSpec

Write = Callable[..., Path]
Problems = Callable[..., list[str]]

EXAMPLE = Path(__file__).parents[2] / "preregistrations" / "dense-rewards-laptop.yaml"
BUDGET = "{generated_tokens: 240k, updates: 50}"


def warnings(path: Path) -> list[str]:
    return [str(warning) for warning in load_study(path).warnings]


@pytest.mark.parametrize(
    ("replacements", "told"),
    [
        ([("{first: 101, count: 3}", "[1, 2, 1]")], "18:8: seeds: seed 1 is given twice"),
        (
            [("[tiny-chain]", "[scripted]")],
            "5:10: models.0: preset 'scripted' is made for task 'scripted', not for 'chain'",
        ),
        ([("count: 3", "count: 1")], "18:1: seeds: 1 seed cannot decide a claim; at least 2 seeds"),
        ([("[tiny-chain]", "[tiny-chain, tiny-chain]")], "5:9: models: two models are called 'tiny-chain'"),
        (
            [("{learning_rate: 5e-4}", "{learning_rate: 0.001}")],
            "14:3: arms.slow: arms 'grpo' and 'slow' are the same",
        ),
        (
            [("training: {learning_rate: 5e-4}", "training: {}")],
            "14:3: arms.slow: arms 'grpo' and 'slow' are the same",
        ),
        (
            [("learning_rate: 1e-3", "decay: linear")],
            "10:10: training.decay: decay linear over no budget; add `decay_over:`",
        ),
        (
            [("learning_rate: 1e-3", "decay_over: updates")],
            "10:15: training.decay_over: a budget to decay over, but no decay",
        ),
        (
            [("learning_rate: 1e-3", "decay: cosine\n  decay_over: flops"), (BUDGET, "{updates: 50}")],
            "11:15: training.decay_over: decay over flops, in which no budget is given; one of the budgets: updates",
        ),
        (
            [("{learning_rate: 5e-4}", "{decay: linear, decay_over: updates}")],
            "16:23: arms.slow.training.decay: a decaying learning rate with 2 budgets (generated_tokens, updates)",
        ),
        ([(BUDGET, "{generated_tokens: 10, updates: 50}")], "19:1: budget: "),
        (
            [("baseline: grpo", "evaluate: {at: [1%, 100%]}\nbaseline: grpo")],
            "17:16: evaluate.at: 1% of 50 updates is 0",
        ),
        (
            [("baseline: grpo", "evaluate: {at: []}\nbaseline: grpo")],
            "17:16: evaluate.at: no run would ever be evaluated",
        ),
        (
            [("baseline: grpo", "charged: [continuation]\nbaseline: grpo")],
            "17:10: charged: nothing that is charged ever uses up the budget in generated_tokens",
        ),
        (
            [("baseline: grpo", "charged: [critic]\nbaseline: grpo"), (BUDGET, "{flops: 1e9, updates: 50}")],
            "17:10: charged: nothing that is charged ever uses up the budget in flops",
        ),
        (
            [
                ("baseline: grpo", "charged: [policy_train]\nevaluate: {generated_tokens: [9]}\nbaseline: grpo"),
                (BUDGET, "{updates: 50}"),
            ],
            "18:30: evaluate.generated_tokens: milestones in generated_tokens, which nothing that is charged adds to",
        ),
        (
            [("claim: acc", "model: other\n    claim: acc")],
            "22:12: claims.0.model: no model is called 'other'; known here: tiny-chain",
        ),
        (
            [
                (
                    "at 50 updates\n",
                    "at 50 updates\n  - {id: H1, claim: accuracy(slow) > accuracy(grpo) at 50 updates}\n",
                )
            ],
            "21:3: claims: two claims have the id 'H1'",
        ),
    ],
)
def test_what_cannot_be_decided_or_ended_is_refused(
    problems: Problems, replacements: list[tuple[str, str]], told: str
) -> None:
    assert problems(*replacements)[0].startswith(told)


def test_a_decay_over_the_only_budget_is_fine(write: Write) -> None:
    loaded = load_study(
        write(("learning_rate: 1e-3", "decay: linear\n  decay_over: updates"), (BUDGET, "{updates: 50}"))
    )
    assert loaded.study.training.decay_over == "updates"


def test_a_budget_below_one_update_names_each_such_arm_and_its_shortfall(problems: Problems) -> None:
    # 8 prompts x 8 rollouts are 64 samples; mc adds 4 continuations of each of the 8 prompts, shared by its group.
    # The shortest right answer has 3 steps of 2 tokens, `=`, the result and the end: 9 tokens.
    found = problems((BUDGET, "{generated_tokens: 500, updates: 50}"))
    assert [line.split("; ")[0] for line in found] == [
        "19:1: budget: 500 generated_tokens are 76 short of one update of arm 'grpo'",
        "19:1: budget: 500 generated_tokens are 364 short of one update of arm 'mc'",
        "19:1: budget: 500 generated_tokens are 76 short of one update of arm 'slow'",
    ]


def test_a_budget_in_flops_below_one_update_is_refused_likewise(problems: Problems, write: Write) -> None:
    # tiny-chain: N = 2 x (4 x 64 x 64 + 3 x 64 x 128) + 26 x 64 = 83,584; attention 4 x 2 x 64 per token and context.
    # A prompt of one token: 2 N + 512. An answer of nine tokens feeds eight, at contexts 2 to 9: 16 N + 512 x 44.
    prompts, answer = 8 * (2 * 83_584 + 512), 16 * 83_584 + 512 * 44
    found = problems((BUDGET, "{flops: 1000, updates: 50}"))
    assert [line.split("; ")[0] for line in found] == [
        f"19:1: budget: 1_000 flops are {prompts + 64 * answer - 1000:_} short of one update of arm 'grpo'",
        f"19:1: budget: 1_000 flops are {prompts + 96 * answer - 1000:_} short of one update of arm 'mc'",
        f"19:1: budget: 1_000 flops are {prompts + 64 * answer - 1000:_} short of one update of arm 'slow'",
    ]
    claim = ("at 50 updates", "at 100% of flops")
    assert load_study(write((BUDGET, f"{{flops: {prompts + 96 * answer}}}"), claim)).budgets


def test_problems_that_come_up_again_within_an_update_are_prefilled_once(problems: Problems) -> None:
    # Five problems for eight prompts. The tasks' pools are otherwise as above.
    least = 5 * (2 * 83_584 + 512) + 64 * (16 * 83_584 + 512 * 44)
    found = problems((BUDGET, f"{{flops: {least - 1}, updates: 50}}"), ("train: 1_000", "train: 5"))
    assert f"{least - 1:_} flops are 1 short of one update of arm 'grpo'" in found[0]


def test_an_update_beyond_all_numbers_is_one_line(problems: Problems) -> None:
    found = problems(("learning_rate: 1e-3", "prompts_per_update: 1e307"), (BUDGET, "{flops: 1, updates: 50}"))
    assert found[0].endswith("an update of the shortest right answers takes 1e+300")


@pytest.mark.parametrize(
    ("currency", "device", "flops_per_second"), [("cpu_hours", "cpu", 1e13), ("gpu_hours", "cuda", 1e17)]
)
def test_hours_that_no_device_could_make_an_update_in_are_refused(
    problems: Problems, write: Write, currency: str, device: str, flops_per_second: float
) -> None:
    # grpo's update as above takes 88,373,248 FLOPs at the least, mc's 131,889,152.
    claim, on = ("at 50 updates", f"at 100% of {currency}"), ("baseline: grpo", f"device: {device}\nbaseline: grpo")
    between = 1e8 / flops_per_second / 3600
    (told,) = problems((BUDGET, f"{{{currency}: {between}}}"), claim, on)
    assert f"{currency} are " in told and "short of one update of arm 'mc'" in told
    assert load_study(write((BUDGET, f"{{{currency}: {2 * between}}}"), claim, on)).budgets


def test_a_budget_in_flops_is_held_against_each_model(problems: Problems, tmp_path: Path) -> None:
    (tmp_path / "preregistrations").mkdir()
    save_tiny_llama(tmp_path / "preregistrations" / "llama")
    found = problems(
        (BUDGET, "{flops: 1e8, updates: 50}"),
        ("[tiny-chain]", "[tiny-chain, {name: llama, folder: llama}]"),
        ("at 50 updates", "at 50 updates\n    model: llama"),
    )
    assert [line.split(" short of one update of ")[1].split("; ")[0] for line in found] == [
        "arm 'mc' with model 'tiny-chain'"
    ]


def test_work_that_is_free_is_not_held_against_a_budget(problems: Problems, write: Write) -> None:
    # mc's rollouts alone: 64 x 9 tokens.
    few = (BUDGET, "{generated_tokens: 576, updates: 50}")
    free = ("baseline: grpo", "charged: [rollout, policy_train]\nbaseline: grpo")
    assert load_study(write(few, free)).budgets
    (told,) = problems(few)
    assert "arm 'mc'" in told


def test_what_a_family_fixes_shows_in_the_study_and_may_not_be_contradicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(INTERVENTIONS, "fixed", HOOK_ARMS["fixed"])
    base = TrainingSpec(advantage_scale="rms", learning_rate=2e-3)
    values = HOOK_ARMS["fixed"].Parameters()
    arm = Arm("fixed", values, TrainingSpec(learning_rate=2e-3))
    assert arm.training(base) == base.model_copy(update={"advantage_scale": "none"})
    assert arm.changes(base) == {"learning_rate": 2e-3, "advantage_scale": "none"}
    against = Arm("fixed", values, TrainingSpec(advantage_scale="group-std"))
    study = load_study(EXAMPLE).study.model_copy(update={"arms": {"mine": against}})
    (found,) = arm_findings(study)
    assert found.path == ("arms", "mine", "training", "advantage_scale")
    assert found.what == "fixed fixes advantage_scale to none, found group-std"


def test_a_claim_must_say_which_of_several_models_it_is_about(problems: Problems) -> None:
    (told,) = problems(("[tiny-chain]", "[tiny-chain, {name: other, preset: tiny-chain}]"))
    assert told.startswith("21:5: claims.0: the study has several models; add `model:`, one of tiny-chain, other")


def test_the_only_model_is_the_one_a_claim_is_about(write: Write) -> None:
    assert load_study(write()).claims[0].model == "tiny-chain"


@pytest.mark.parametrize(
    ("replacements", "told"),
    [
        (
            [("baseline: grpo", "evaluate: {updates: [60]}\nbaseline: grpo")],
            "evaluate.updates: a milestone at 60, above",
        ),
        ([(BUDGET, "{updates: 50, cpu_hours: 0.5}")], "budget: a budget in cpu_hours is measured by a clock"),
        ([(BUDGET, "{updates: 50, cpu_hours: 0.5}")], "only the first update tells whether one fits in"),
        (
            [
                ("{learning_rate: 5e-4}", "{top_p: 0.9}"),
                ("baseline: grpo", "health: {sampler_mismatch: 0.01}\nbaseline: grpo"),
            ],
            "health.sampler_mismatch: a gate on what arm 'slow' does not record, its top_p being 0.9",
        ),
    ],
)
def test_what_is_doubtful_is_a_warning(write: Write, replacements: list[tuple[str, str]], told: str) -> None:
    (warning,) = warnings(write(*replacements))
    assert told in warning


def test_a_study_without_claims_may_have_one_seed(write: Write) -> None:
    text = write(("count: 3", "count: 1")).read_text()
    told = warnings(write(text=text[: text.index("claims:")]))
    assert [line.split(": ")[1] for line in told] == ["claims", "seeds"]


def test_a_model_folder_that_is_not_there_is_one_line(problems: Problems, tmp_path: Path) -> None:
    (told,) = problems(("[tiny-chain]", "[{name: mine, folder: ../models/mine}]"))
    assert told.startswith("5:31: models.0.folder: there is no folder ")


def test_a_model_folder_that_no_disk_could_hold_is_one_line(problems: Problems) -> None:
    (told,) = problems(("[tiny-chain]", f"[{{name: mine, folder: {'x' * 5_000}}}]"))
    assert "cannot be looked at: File name too long" in told
    assert len(told) < 300


def test_a_model_folder_without_a_tokenizer_is_one_line(problems: Problems, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"")
    (told,) = problems(("[tiny-chain]", "[{name: mine, folder: ../mine}]"))
    assert "has no tokenizer (tokenizer.json or" in told
    assert "safetensors" not in told


def test_weights_decide_what_a_model_folder_is_and_its_place_does_not(write: Write, tmp_path: Path) -> None:
    hashes = []
    for name, weights in (("one", b"a"), ("two", b"a"), ("three", b"b")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        (folder / "tokenizer.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(weights)
        (folder / "README.md").write_text(name)
        hashes.append(weights_hash(folder))
    assert hashes[0] == hashes[1] != hashes[2]
    path = write(("[tiny-chain]", "[{name: mine, folder: ../one}]"))
    before = load_study(path).hash
    (tmp_path / "one" / "model.safetensors").write_bytes(b"b")
    assert load_study(path).hash != before


def test_pools_larger_than_the_problem_space_are_told_at_the_pool(write: Write) -> None:
    # one operation modulo 10: 10 x 3 x 10 expressions, of which 350 cannot be drawn
    loaded = load_study(
        write(("name: chain\n", "name: chain\n  steps: {min: 1, max: 1}\n"), ("train: 1_000", "train: 250"))
    )
    with pytest.raises(InputError) as caught:
        check_task(loaded)
    (problem,) = caught.value.problems
    assert problem.where == f"{loaded.path}:9:17"
    assert problem.field == "task.pool.train"


def test_pools_that_fit_pass(write: Write) -> None:
    check_task(load_study(write(("train: 1_000", "train: 100"))))


@pytest.mark.parametrize("key", ["title", "authors", "existing_data", "seeds", "budget"])
def test_a_refused_value_does_not_hide_what_is_wrong_elsewhere(problems: Problems, write: Write, key: str) -> None:
    line = next(line for line in write().read_text().splitlines() if line.startswith(f"{key}:"))
    told = problems((line, f"{key}: [{{}}]"), ("baseline: grpo", "baseline: grpoo"))
    assert any(f": {key}" in problem for problem in told)
    assert any("baseline: no arm is called 'grpoo'; did you mean grpo" in problem for problem in told)


def test_a_misspelt_intervention_is_pointed_at(problems: Problems) -> None:
    told = problems(text=STUDY.replace("intervention: mc-difference", "intervnetion: mc-difference"))
    assert any("intervention: unknown key intervnetion; did you mean intervention" in problem for problem in told)
