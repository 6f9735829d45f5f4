"""Study files: what is accepted, and every problem at its place, all at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from small_study import STUDY

from harness.study.load import load_study

Write = Callable[..., Path]
DECODING = "evaluate.decoding.temperature"
Problems = Callable[..., list[str]]


def hash_of(path: Path) -> str:
    return load_study(path).hash


def test_a_study_in_order_is_resolved_with_every_default(write: Write) -> None:
    loaded = load_study(write())
    assert loaded.budgets == {"generated_tokens": 240_000, "updates": 50}
    assert loaded.study.seeds == [101, 102, 103]
    assert loaded.resolved["training"]["learning_rate"] == 0.001
    assert loaded.resolved["training"]["group_size"] == 8
    assert loaded.resolved["arms"]["mc"]["parameters"] == {
        "continuations": 4,
        "every_steps": 1,
        "merge_equal_prefixes": True,
    }
    assert loaded.resolved["arms"]["slow"]["training"] == {"learning_rate": 0.0005}
    assert loaded.resolved["evaluate"]["max_new_tokens"] == loaded.resolved["training"]["max_new_tokens"]
    assert loaded.warnings == []


@pytest.mark.parametrize("spelled", ["240_000", "2.4e5", "240000", "0.24M"])
def test_numbers_are_what_they_mean_however_written(write: Write, spelled: str) -> None:
    plain = hash_of(write())
    loaded = load_study(write(("240k", spelled)))
    assert loaded.budgets["generated_tokens"] == 240_000
    assert isinstance(loaded.budgets["generated_tokens"], int)
    assert loaded.hash == plain


def test_arms_named_on_and_no_are_text(write: Write) -> None:
    loaded = load_study(
        write(("grpo: {intervention", "on: {intervention"), ("  mc:", "  no:"), ("baseline: grpo", "baseline: on"),
              ("accuracy(mc) > accuracy(grpo)", "accuracy(no) > accuracy(on)"))
    )  # fmt: skip
    assert list(loaded.study.arms) == ["on", "no", "slow"]
    assert loaded.study.baseline == "on"


def test_text_that_looks_like_a_number_stays_as_written(write: Write) -> None:
    loaded = load_study(write(("A study for tests", "695e0514"), ("[A. Author]", "[1e6, 007]")))
    assert loaded.study.title == "695e0514"
    assert loaded.study.authors == ["1e6", "007"]


def test_comments_key_order_layout_and_line_ends_do_not_change_the_hash(write: Write) -> None:
    plain = hash_of(write())
    assert hash_of(write(text=STUDY.replace("\n", "\r\n"))) == plain
    assert hash_of(write(text="\ufeff# a comment\n" + STUDY.replace("alpha", "alpha"))) == plain
    first, rest = STUDY.split("\n", 1)
    assert hash_of(write(text=rest + first + "\n")) == plain
    assert hash_of(write(("existing_data: none", "existing_data:   'none'   # nothing"))) == plain


def test_writing_a_default_out_does_not_change_the_hash(write: Write) -> None:
    plain = hash_of(write())
    assert hash_of(write(text=STUDY + "alpha: 0.05\ncorrection: holm\nthreads: 1\n")) == plain
    assert hash_of(write(("{first: 101, count: 3}", "[101, 102, 103]"))) == plain
    assert hash_of(write(("learning_rate: 1e-3", "learning_rate: 0.001\n  group_size: 8.0"))) == plain


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("learning_rate: 1e-3", "learning_rate: 2e-3"),
        ("count: 3", "count: 4"),
        ("continuations: 4", "continuations: 5"),
        ("updates: 50}", "updates: 50, cpu_hours: 1}"),
        ("  grpo: {", "  base: {intervention: grpo, training: {group_size: 4}}\n  grpo: {"),
        ("A study for tests", "Another title"),
    ],
)
def test_a_change_of_content_changes_the_hash(write: Write, old: str, new: str) -> None:
    plain = hash_of(write())
    assert hash_of(write((old, new))) != plain


def test_a_typo_is_refused_with_a_suggestion(problems: Problems) -> None:
    assert problems(("learning_rate: 1e-3", "learing_rate: 1e-3")) == [
        "10:3: training.learing_rate: unknown key; did you mean learning_rate"
    ]


def test_a_duplicate_key_is_refused_naming_both_lines(problems: Problems) -> None:
    text = STUDY + "alpha: 0.05\nalpha: 0.01\n"
    assert problems(text=text) == [
        "24:1: alpha: key 'alpha' again, first on line 23; give each key once: remove one of them"
    ]


def test_unknown_keys_are_matched_against_the_arm_that_is_meant(problems: Problems) -> None:
    assert problems(("continuations: 4", "continuation: 4")) == [
        "13:37: arms.mc.continuation: unknown key; did you mean continuations"
    ]
    # `continuations` is a key of another intervention, and not one of grpo's
    found = problems(("{intervention: grpo}", "{intervention: grpo, continuations: 4}"))
    assert found == ["12:30: arms.grpo.continuations: unknown key; known here: intervention, training, selection"]


@pytest.mark.parametrize(
    ("old", "new", "line", "field", "right"),
    [
        ("{train: 1_000,", "{train: many,", 8, "task.pool.train", "a whole number, such as 1_000_000, 1e6 or 1.5M"),
        ("{train: 1_000,", "{train: 1.5,", 8, "task.pool.train", "a whole number"),
        ("{train: 1_000,", '{train: "1000",', 8, "task.pool.train", "a whole number"),
        ("{train: 1_000,", "{train: true,", 8, "task.pool.train", "a whole number"),
        ("{train: 1_000,", "{train: 0,", 8, "task.pool.train", "above 0"),
        ("{train: 1_000,", "{train: -1e3,", 8, "task.pool.train", "above 0"),
        ("{train: 1_000, ", "{", 8, "task.pool.train", "add it"),
        ("learning_rate: 1e-3", "learning_rate: fast", 10, "training.learning_rate", "a number"),
        ("learning_rate: 1e-3", "learning_rate: .nan", 10, "training.learning_rate", "a number"),
        ("learning_rate: 1e-3", "learning_rate:", 10, "training.learning_rate", "a number"),
        ("learning_rate: 1e-3", "decay: liner", 10, "training.decay", "one of: none, linear, cosine"),
        ("learning_rate: 1e-3", "mask_truncated: yes", 10, "training.mask_truncated", "true or false"),
        ("learning_rate: 1e-3", "adam_betas: 0.9", 10, "training.adam_betas", "a list, such as [a, b]"),
        ("mc-difference", "mc-diference", 13, "arms.mc.intervention", "did you mean mc-difference"),
        ("intervention: mc-difference, ", "", 13, "arms.mc.intervention", "add it"),
        ("{intervention: grpo}", "grpo", 12, "arms.grpo", "a mapping"),
        ("title: A study for tests", "title: true", 2, "title", "in quotes"),
        ("title: A study for tests\n", "", 1, "title", "add it"),
        ("study: small", "study: ../small", 1, "study", "letters, digits, dot, dash and underscore"),
        ("authors: [A. Author]", "authors: []", 3, "authors", "at least one"),
        ("authors: [A. Author]", "authors: A. Author", 3, "authors", "a list"),
        ("existing_data: none", "existing_data: nothing", 4, "existing_data", "none, or a mapping"),
        ("existing_data: none", "existing_data: {pilots: 1}", 4, "existing_data.pilots", "did you mean pilot"),
        ("existing_data: none", "existing_data: {}", 4, "existing_data", "give `pilot` or `seen`"),
        ("[tiny-chain]", "[tiny-chian]", 5, "models.0", "did you mean tiny-chain"),
        ("[tiny-chain]", "[{name: x}]", 5, "models.0", "give one of them"),
        ("name: chain", "name: chains", 7, "task.name", "did you mean chain"),
        ("{generated_tokens: 240k", "{tokens: 1e6", 19, "budget.tokens", "did you mean generated_tokens"),
        ("budget: {generated_tokens: 240k, updates: 50}", "budget: {}", 19, "budget", "at least one of"),
        ("{first: 101, count: 3}", "{first: 101, cuont: 3}", 18, "seeds.cuont", "did you mean count"),
        ("{first: 101, count: 3}", "[1, -2]", 18, "seeds.1", "at least 0"),
        ("baseline: grpo", "baseline: grpo\nevaluate: {at: [0.2, 100%]}", 18, "evaluate.at.0", "a percentage"),
        ("baseline: grpo", "baseline: grpo\nevaluate: {at: [0%, 100%]}", 18, "evaluate.at.0", "above 0%"),
        ("baseline: grpo", "baseline: grpo\nevaluate: {at: [101%, 100%]}", 18, "evaluate.at.0", "at most 100%"),
        ("baseline: grpo", "baseline: grpo\nevaluate: {decoding: {temperature: 0}}", 18, DECODING, "above 0"),
        ("baseline: grpo", "baseline: grpo\ncharged: [rollout, rollout]", 18, "charged", "give each one once"),
        ("baseline: grpo", "baseline: grpo\ncharged: [rolout]", 18, "charged.0", "rollout"),
        ("baseline: grpo", "baseline: grpo\nalpha: 5", 18, "alpha", "below 1"),
        ("baseline: grpo", "baseline: grpo\nexclusions: [bad luck]", 18, "exclusions.0", "verifier-outage"),
        ("baseline: grpo", "baseline: grop", 17, "baseline", "did you mean grpo"),
        ("accuracy(grpo) at", "accuracy(gpro) at", 22, "claims.0.claim", "did you mean grpo"),
    ],
)  # fmt: skip
def test_one_wrong_value_gives_one_line_that_says_what_is_right(
    problems: Problems, old: str, new: str, line: int, field: str, right: str
) -> None:
    (told,) = problems((old, new))
    assert told.startswith(f"{line}:")
    assert f": {field}: " in told
    assert right in told.split("; ", 1)[1]


def test_a_claim_error_points_at_the_word_in_the_file(problems: Problems) -> None:
    (told,) = problems(("at 50 updates", "at 51 updates"))
    line = STUDY.split("\n")[21]
    assert told.startswith(
        f"22:{line.index('50 updates') + 1}: claims.0.claim: 51 updates is not a declared milestone"
    )
    assert "100% of updates (50)" in told


def test_all_problems_of_a_file_are_told_at_once_in_its_order(problems: Problems) -> None:
    found = problems(
        ("title:", "titel:"),
        ("learning_rate: 1e-3", "learning_rate: fast"),
        ("continuations: 4", "continuation: 4"),
        ("count: 3", "count: 3, count: 4"),
        ("240k", "lots"),
    )
    assert [line.split(": ")[1] for line in found] == [
        "titel", "training.learning_rate", "arms.mc.continuation", "seeds.count", "budget.generated_tokens",
    ]  # fmt: skip


def test_references_are_checked_although_some_values_are_refused(problems: Problems) -> None:
    found = problems(
        ("learning_rate: 1e-3", "learing_rate: 1e-3"),
        ("baseline: grpo", "baseline: grop"),
        ("accuracy(grpo) at 50", "accuracy(nope) at 50"),
    )
    assert [line.split(": ")[1] for line in found] == ["training.learing_rate", "baseline", "claims.0.claim"]


def test_a_refused_value_brings_no_further_complaint(problems: Problems) -> None:
    # without its (misspelled) override the arm would look like grpo, and be told so
    assert len(problems(("{learning_rate: 5e-4}", "{learning_rat: 5e-4}"))) == 1
    # an arm that is refused is still an arm for claims
    assert len(problems(("intervention: mc-difference", "intervention: mc"))) == 1


@pytest.mark.parametrize("text", ["", "[1, 2]", "just words"])
def test_a_file_that_is_no_mapping_is_one_line(problems: Problems, text: str) -> None:
    (told,) = problems(text=text)
    assert told.startswith("1:1: found ")


def test_a_named_budget_is_found_beside_the_folder_of_the_study(write: Write, tmp_path: Path) -> None:
    (tmp_path / "budgets").mkdir()
    (tmp_path / "budgets" / "mine.yaml").write_text("generated_tokens: 240k\nupdates: 50 # enough\n")
    plain = hash_of(write())
    loaded = load_study(write(("{generated_tokens: 240k, updates: 50}", "mine")))
    assert loaded.budgets == {"generated_tokens": 240_000, "updates": 50}
    assert loaded.hash == plain  # what counts is what the budget says, not how it is called


def test_a_named_budget_that_is_not_there_is_told_with_those_that_are(problems: Problems, tmp_path: Path) -> None:
    (tmp_path / "budgets").mkdir()
    (tmp_path / "budgets" / "mine.yaml").write_text("updates: 50\n")
    (told,) = problems(("{generated_tokens: 240k, updates: 50}", "mien"))
    assert told.startswith("19:9: budget: ")
    assert told.endswith("did you mean mine")


@pytest.mark.parametrize("leads_to", ["nowhere.yaml", "mine.yaml"])
def test_a_named_budget_that_is_a_broken_link_is_told_as_one(
    problems: Problems, tmp_path: Path, leads_to: str
) -> None:
    (tmp_path / "budgets").mkdir()
    (tmp_path / "budgets" / "mine.yaml").symlink_to(leads_to)
    (told,) = problems(("{generated_tokens: 240k, updates: 50}", "mine"))
    assert told.startswith("19:9: budget: ")
    assert told.endswith("mine.yaml is a link that leads to no file; mend the link")
    # and it is no suggestion for another name
    (told,) = problems(("{generated_tokens: 240k, updates: 50}", "mien"))
    assert told.endswith("known here: nothing")


def test_a_named_budget_that_is_a_folder_is_told_as_one(problems: Problems, tmp_path: Path) -> None:
    (tmp_path / "budgets" / "mine.yaml").mkdir(parents=True)
    (told,) = problems(("{generated_tokens: 240k, updates: 50}", "mine"))
    assert "mine.yaml is not a file; " in told


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  slow:", "  {long}:"),
        ("baseline: grpo", "baseline: {long}"),
        ("{intervention: grpo}", "{{intervention: {long}}}"),
        ("{intervention: grpo}", "{{intervention: grpo, {long}: 1}}"),
        ("accuracy(mc)", "accuracy({long})"),
        ("accuracy(mc)", "{long}"),
        ("at 50 updates", "at 1{long} updates"),
        ("[tiny-chain]", "[{long}]"),
        ("name: chain", "name: {long}"),
        ("baseline: grpo", "charged: [{long}]\nbaseline: grpo"),
        ("  slow:", "  {long}: 1\n  {long}: 2\n  slow:"),
    ],
)
def test_what_is_longer_than_any_name_is_not_repeated_in_full(problems: Problems, old: str, new: str) -> None:
    found = problems((old, new.format(long="x" * 900)))
    assert any("xxx... (90" in line for line in found)
    assert not any("x" * 81 in line for line in found)


def test_a_problem_of_a_budget_file_names_that_file(problems: Problems, tmp_path: Path) -> None:
    (tmp_path / "budgets").mkdir()
    (tmp_path / "budgets" / "mine.yaml").write_text("updates: 50\nupdates: 60\ntoken: 5\n")
    found = problems(("{generated_tokens: 240k, updates: 50}", "mine"))
    assert [line.rsplit("/", 1)[1].split("; ")[0] for line in found] == [
        "mine.yaml:2:1: updates: key 'updates' again, first on line 1",
        "mine.yaml:3:1: token: unknown key",
    ]
