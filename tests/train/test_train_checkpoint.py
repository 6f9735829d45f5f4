"""Checkpoints survive a crash at any point, and a damaged one is refused in favour of the one before it."""

import json

import pytest
import torch

from harness.train import checkpoint as checkpoints
from harness.train.checkpoint import Checkpoint, DamagedCheckpoint, load, load_newest, name_of, save


def made(update: int, attempt: int = 1) -> Checkpoint:
    tensors = {"model.w": torch.full((3,), float(update)), "optimiser.step.w": torch.tensor(float(update))}
    return Checkpoint(name_of(attempt, update), attempt, 10 * update, {"update": update}, tensors)


def test_what_is_saved_is_loaded_to_the_bit(tmp_path):
    values = torch.randn(50, generator=torch.Generator().manual_seed(1))
    save(tmp_path, Checkpoint("c", 2, 7, {"passed": [["updates", 5]], "x": 0.1}, {"a": values}))
    found = load(tmp_path / "c")
    assert (found.attempt, found.seq, found.state) == (2, 7, {"passed": [["updates", 5]], "x": 0.1})
    assert torch.equal(found.tensors["a"], values)


def test_the_last_two_are_kept_and_a_later_attempt_is_newer(tmp_path):
    for checkpoint in (made(5), made(10), made(15), made(10, attempt=2)):
        save(tmp_path, checkpoint)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [name_of(1, 15), name_of(2, 10)]
    newest, damaged = load_newest(tmp_path)
    assert newest is not None and (newest.attempt, newest.state["update"]) == (2, 10) and not damaged


@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json"])
@pytest.mark.parametrize("harm", ["cut", "flip", "remove"])
def test_a_damaged_checkpoint_is_refused_and_the_one_before_it_used(tmp_path, name, harm):
    save(tmp_path, made(5))
    save(tmp_path, made(10))
    victim = tmp_path / name_of(1, 10) / name
    content = bytearray(victim.read_bytes())
    if harm == "cut":
        victim.write_bytes(content[: len(content) // 2])
    elif harm == "flip":
        content[len(content) // 2] ^= 1
        victim.write_bytes(content)
    else:
        victim.unlink()
    with pytest.raises(DamagedCheckpoint):
        load(tmp_path / name_of(1, 10))
    newest, damaged = load_newest(tmp_path)
    assert newest is not None and newest.state["update"] == 5
    assert len(damaged) == 1 and name_of(1, 10) in damaged[0]


def test_state_that_was_edited_with_valid_json_is_refused(tmp_path):
    save(tmp_path, made(5))
    path = tmp_path / name_of(1, 5) / "state.json"
    outer = json.loads(path.read_text())
    outer["record"] = outer["record"].replace('"update": 5', '"update": 6')
    path.write_text(json.dumps(outer))
    assert load_newest(tmp_path)[0] is None


def test_what_a_dead_process_wrote_aside_is_never_loaded_and_removed_later(tmp_path, monkeypatch):
    save(tmp_path, made(5))

    def dies(path):
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoints, "_sync", dies)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path, made(10))
    monkeypatch.undo()
    newest, damaged = load_newest(tmp_path)
    assert newest is not None and newest.state["update"] == 5 and not damaged
    save(tmp_path, made(15))
    assert not list(tmp_path.glob(".*"))


def test_no_checkpoint_is_no_trouble(tmp_path):
    assert load_newest(tmp_path / "absent") == (None, [])
