"""Study files that are not in order: status 2, one line per problem with its place, nothing run, nothing written."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.command_line import Ran, isobudget
from support.saved_models import save_tiny_llama
from support.studies import FLIP, write_study

COMMANDS = ("check", "plan", "lock", "sweep", "status")


def refused(file: Path, command: str, tmp_path: Path) -> list[str]:
    """What a command says of a bad study, the file's name left out."""
    runs = tmp_path / "runs"
    ran = isobudget(command, file, *([] if command == "check" else ["--runs", runs]))
    assert_refused(ran)
    assert not runs.exists()
    assert sorted(path.name for path in file.parent.iterdir() if path.is_file()) == [file.name]
    return [line.removeprefix(f"isobudget: {file}:") for line in ran.complaints()]


def assert_refused(ran: Ran) -> None:
    assert ran.code == 2
    assert ran.out == ""
    assert "Traceback" not in ran.err
    assert ran.complaints()


def edited(tmp_path: Path, old: str, new: str) -> Path:
    file = FLIP.write(tmp_path)
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))
    return file


def line_of(file: Path, text: str) -> int:
    (line,) = (number for number, line in enumerate(file.read_text().splitlines(), 1) if text in line)
    return line


@pytest.mark.parametrize("command", COMMANDS)
def test_a_typo_is_told_with_line_column_and_what_was_meant(command: str, tmp_path: Path) -> None:
    file = edited(tmp_path, "prompts_per_update", "promts_per_update")
    place = f"{line_of(file, 'promts_per_update')}:3"
    told = f"{place}: training.promts_per_update: unknown key; did you mean prompts_per_update"
    assert refused(file, command, tmp_path) == [told]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_duplicate_key_is_told_with_both_lines(command: str, tmp_path: Path) -> None:
    file = edited(tmp_path, "baseline: plain\n", "alpha: 0.05\nbaseline: plain\nalpha: 0.1\n")
    first = line_of(file, "alpha: 0.05")
    told = f"{first + 2}:1: alpha: key 'alpha' again, first on line {first}; give each key once: remove one of them"
    assert refused(file, command, tmp_path) == [told]


def test_tokens_is_no_currency_and_brings_no_second_complaint(tmp_path: Path) -> None:
    file = edited(tmp_path, "generated_tokens: 1610", "tokens: 1e6")
    told = f"{line_of(file, 'tokens: 1e6')}:3: budget.tokens: unknown key; did you mean generated_tokens"
    assert refused(file, "check", tmp_path) == [told]


@pytest.mark.parametrize("written", ["1e6", "1_000_000", "1.0M"])
def test_a_million_tokens_however_written_is_an_integer_and_echoed(written: str, tmp_path: Path) -> None:
    file = edited(tmp_path, "generated_tokens: 1610", f"generated_tokens: {written}")
    said = isobudget("check", file)
    assert (said.code, said.err) == (0, "")
    assert "1_000_000 generated_tokens" in said.out
    budget = isobudget("check", file, "--json").json()["resolved"]["budgets"]["generated_tokens"]
    assert (budget, type(budget)) == (1_000_000, int)


@pytest.mark.parametrize("name", ["on", "no", "yes", "y", "off"])
def test_an_arm_named_as_yaml_names_truth_stays_text(name: str, tmp_path: Path) -> None:
    file = FLIP.write(tmp_path)
    file.write_text(file.read_text().replace("dense", name))
    assert f"\n  {name}:\n" in file.read_text()
    planned = isobudget("plan", file, "--runs", tmp_path / "runs", "--json")
    assert planned.code == 0, planned.err
    assert {arm["arm"] for arm in planned.json()["arms"]} == {"plain", name}
    assert {cell["arm"] for cell in planned.json()["cells"]} == {"plain", name}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_budget_below_one_update_names_the_arm_and_what_is_missing(command: str, tmp_path: Path) -> None:
    """An update of the arm `dense` is 2 x 2 rollouts of 10 tokens, each with three continuations of 10: 160."""
    file = edited(tmp_path, "generated_tokens: 1610", "generated_tokens: 100")
    (told,) = refused(file, command, tmp_path)
    assert "100 generated_tokens are 60 short of one update of arm 'dense'" in told
    assert told.endswith("takes 160")


@pytest.mark.parametrize("command", COMMANDS)
def test_two_arms_that_are_one_are_refused(command: str, tmp_path: Path) -> None:
    file = edited(tmp_path, "gain: 0.1\n    continuations: 3", "gain: 0.05\n    continuations: 0")
    (told,) = refused(file, command, tmp_path)
    assert "arms 'plain' and 'dense' are the same" in told


def test_all_problems_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    file = edited(tmp_path, "gain: 0.05", "gian: 0.05")
    text = file.read_text().replace("count: 4", "count: four").replace("title: A planted truth", "titel: A truth")
    file.write_text(text)
    told = refused(file, "check", tmp_path)
    fields = {": ".join(line.split(": ")[1:2]) for line in told}
    assert {"arms.plain.gian", "seeds.count", "titel"} <= fields
    places = [tuple(map(int, line.split(": ")[0].split(":"))) for line in told]
    assert places == sorted(places)


@pytest.mark.parametrize("command", ["check", "lock", "sweep"])
def test_pools_that_overlap_are_refused(command: str, tmp_path: Path) -> None:
    """Reasoning Gym's shipped recipe, training seed 1 and validation seed 2, shares all but one item."""
    seeds = {"train": 1, "tuning": 900_000, "confirmatory": 2}
    pool = {"train": 50, "tuning": 10, "confirmatory": 50}
    save_tiny_llama(tmp_path / "preregistrations" / "mine")
    file = FLIP.write(
        tmp_path,
        models=[{"name": "mine", "folder": "mine"}],
        task={"name": "reasoning-gym", "dataset": "chain_sum", "pool": pool, "seeds": seeds},
    )
    (told,) = refused(file, command, tmp_path)
    assert told.split(": ")[1] == "task.pool"
    assert "pools confirmatory and train share 49 of 50 problems" in told


@pytest.mark.parametrize(
    ("part", "told"),
    [("tokenizer.json", "has no tokenizer"), ("config.json", "has no configuration"), (None, "there is no folder")],
)
def test_a_model_folder_that_is_not_whole_is_refused(part: str | None, told: str, tmp_path: Path) -> None:
    folder = tmp_path / "preregistrations" / "mine"
    if part:
        save_tiny_llama(folder)
        (folder / part).unlink()
    file = FLIP.write(
        tmp_path,
        models=[{"name": "mine", "folder": "mine"}],
        task={"name": "chain", "pool": {"train": 64, "tuning": 8, "confirmatory": 8}},
        budget={"generated_tokens": "1M", "updates": 10},
    )
    (line,) = refused(file, "plan", tmp_path)
    assert line.split(": ")[1] == "models.0.folder"
    assert told in line and str(folder) in line


@pytest.mark.parametrize("command", ["check", "plan", "status", "watch", "sweep"])
def test_a_study_s_name_where_a_file_is_due_brings_the_file_to_give(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_study(tmp_path, {"study": "mine"})
    monkeypatch.chdir(tmp_path)
    for given, right in [
        ("mine", "the study's file: preregistrations/mine.yaml"),
        ("yours", "the path of a study file (YAML)"),
        ("../mine", "the path of a study file (YAML)"),
    ]:
        ran = isobudget(command, given)
        assert_refused(ran)
        assert ran.complaints() == [f"isobudget: {given}: no such file; {right}"]
    ran = isobudget(command, "n" * 5_000)
    assert_refused(ran)
    assert len(ran.complaints()) == 1 and len(ran.err) < 300


def test_a_file_that_is_not_there_or_not_yaml_is_one_line(tmp_path: Path) -> None:
    for command in COMMANDS:
        ran = isobudget(command, tmp_path / "nowhere.yaml")
        assert_refused(ran)
        assert ran.complaints() == [
            f"isobudget: {tmp_path / 'nowhere.yaml'}: the study file cannot be read: No such file or directory; "
            "name a YAML file"
        ]
    torn = edited(tmp_path, "title:", "\ttitle:")
    (told,) = refused(torn, "check", tmp_path)
    assert told.startswith("2:1: not valid YAML")
    not_text = write_study(tmp_path / "other", {"study": "x"})
    not_text.write_bytes(b"study: \xff\xfe\n")
    (told,) = refused(not_text, "check", tmp_path)
    assert told == "1:8: not UTF-8 text; save the file as UTF-8"
