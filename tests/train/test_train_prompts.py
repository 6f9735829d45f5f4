from harness.tasks.base import Problem
from harness.train.prompts import PromptStream

POOL = [Problem(f"p{i}", str(i), f"hash{i}") for i in range(5)]


def test_each_pass_visits_every_problem_once_and_counts_visits():
    draws = PromptStream(POOL, run_seed=3).draw(10)
    assert sorted(draw.index for draw in draws[:5]) == list(range(5))
    assert [draw.visit for draw in draws] == [0] * 5 + [1] * 5
    assert all(draw.problem is POOL[draw.index] for draw in draws)


def test_the_order_depends_on_the_run_seed_and_on_the_pass():
    first, second = PromptStream(POOL, 1).draw(10), PromptStream(POOL, 2).draw(10)
    assert [d.index for d in first] != [d.index for d in second]
    assert [d.index for d in first[:5]] != [d.index for d in first[5:]]


def test_a_stream_continues_from_its_position():
    whole = [draw.index for draw in PromptStream(POOL, 7).draw(12)]
    stream = PromptStream(POOL, 7)
    stream.draw(4)
    again = PromptStream(POOL, 7, stream.position)
    assert [draw.index for draw in again.draw(8)] == whole[4:]
