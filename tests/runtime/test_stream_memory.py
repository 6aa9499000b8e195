"""Where images wait in a stream: queues of tokens and answers in order, against plain lists."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from maqee.runtime.in_order import DONE, InOrder
from maqee.runtime.token_queue import Group, TokenQueue


def group_of(numbers: list[int]) -> Group:
    """Tokens that tell their image, so that a mix-up shows."""
    values = torch.tensor(numbers, dtype=torch.float32)
    return Group(np.array(numbers, dtype=np.int64), values[:, None] + torch.tensor([0.1, 0.2]), {2: -values[:, None]})


@given(batch=st.integers(1, 5), turns=st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=30))
def test_a_queue_is_a_list(batch: int, turns: list[tuple[int, bool]]) -> None:
    """Up to a batch is put at a time, and full batches are taken, or at times all there is."""
    queue, expected, count = TokenQueue(batch), list[int](), 0
    for size, take_all in turns:
        size = min(size, batch)
        given = list(range(count, count + 2 * size))
        if size:
            queue.put(group_of(given), np.arange(1, 2 * size, 2))  # every second one stays
        expected, count = expected + given[1::2], count + 2 * size
        while queue.count >= batch or (take_all and queue.count):
            size = min(batch, queue.count)
            taken, (wanted, expected) = queue.take(size), (expected[:size], expected[size:])
            want = group_of(wanted)
            assert taken.numbers.tolist() == wanted
            assert torch.equal(taken.x, want.x)
            assert torch.equal(taken.kept[2], want.kept[2])
        assert queue.count == len(expected)


def test_answers_come_out_in_order_by_hand() -> None:
    inside = InOrder(limit=6)
    first = inside.begin(3)
    assert first.tolist() == [0, 1, 2]
    assert (inside.room, inside.oldest_road) == (3, 0)
    answers = torch.tensor([[1.0], [2.0], [3.0]])
    inside.write(first, answers, 0, torch.tensor([0.1, 0.2, 0.3]))
    inside.move(first[1:], DONE)
    inside.move(first[:1], 1)
    assert inside.hand_out() is None  # 1 and 2 wait for 0
    assert inside.oldest_road == 1
    second = inside.begin(2)  # the ring grows with answers in it
    inside.write(second, torch.tensor([[4.0], [5.0]]), 0, torch.tensor([0.4, 0.5]))
    inside.move(second[:1], DONE)
    inside.write(first[:1], torch.tensor([[9.0]]), 1, torch.tensor([0.9]))
    inside.move(first[:1], DONE)
    found = inside.hand_out()
    assert found is not None
    assert found.output.tolist() == [[9.0], [2.0], [3.0], [4.0]]
    assert found.exit.tolist() == [1, 0, 0, 0]
    assert torch.equal(found.confidence, torch.tensor([0.9, 0.2, 0.3, 0.4]))
    assert (inside.count, inside.room) == (1, 5)


@given(data=st.data(), limit=st.integers(1, 12))
def test_any_order_of_answers_and_growth(data: st.DataObject, limit: int) -> None:
    inside, unfinished, out = InOrder(limit), list[int](), list[float]()
    for _ in range(20):
        begun = inside.begin(data.draw(st.integers(0, inside.room)))
        unfinished += begun.tolist()
        chosen = data.draw(st.lists(st.sampled_from(unfinished), unique=True)) if unfinished else []
        unfinished = [number for number in unfinished if number not in chosen]
        if chosen:
            numbers = np.array(chosen, dtype=np.int64)
            inside.write(numbers, torch.tensor(chosen)[:, None] * 10.0, 3, torch.tensor(chosen) * 1.0)
            inside.move(numbers, DONE)
        handed = inside.hand_out()
        out += [] if handed is None else handed.output[:, 0].tolist()
        assert inside.count <= limit
        assert len(out) == (min(unfinished) if unfinished else inside.first)
    assert out == [10.0 * number for number in range(len(out))]
