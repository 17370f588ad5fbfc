"""Which step of a Countdown search is the first that cannot lead to the answer."""

from __future__ import annotations

import numpy as np
import pytest

from r1lit.batches import Problem
from r1lit.text.scored_text import cut_steps
from r1lit.worlds.countdown import SEPARATORS, first_wrong_step, number_sets, targets
from r1lit.worlds.language import Voice
from r1lit.worlds.writing import search

PROBLEM = Problem(
    uid="u", question="?", answer="( 9 - 5 ) * 7", source="s", verifier="countdown",
    meta={"numbers": [9, 5, 7], "target": 28},
)  # fmt: skip
TRIED = "9 + 7 = 16: 16 + 5 = 21 < 28, 16 - 5 = 11 < 28, 16 * 5 = 80 > 28."
FOUND = "Wait, 9 - 5 = 4: 4 + 7 = 11 < 28, 7 - 4 = 3 < 28, 4 * 7 = 28, yes."
ANSWER = "</think> <answer> ( 9 - 5 ) * 7 </answer>"


@pytest.mark.parametrize(
    ("text", "index"),
    [
        (f"Let me try. {TRIED} {FOUND} {ANSWER}", -1),
        (f"{FOUND} Check: 9 - 5 = 4, 4 * 7 = 28. {ANSWER}", -1),
        (f"{TRIED} {FOUND} </think> <answer> 9 + 5 * 7 </answer>", 2),
        (f"{TRIED} 9 - 5 = 3: 3 + 7 = 10 < 28. {ANSWER}", 1),  # false
        (f"{TRIED} 9 - 5 = 4: 4 + 7 = 11 > 28. {ANSWER}", 1),  # so is the comparison
        (f"{TRIED} 9 - 5 = 4: 4 + 7 = 11 < 29. {ANSWER}", 1),  # or its target
        (f"{TRIED} 9 - 5 = 4: 4 + 7 = 11 < 28. {FOUND}", 1),  # the solution is left out
        (f"{TRIED} 9 - 5 = 4: 4 + 7 = 11 < 28", -1),  # cut, and may go on
        (f"{TRIED} 9 - 6 = 3: 3 + 7 = 10 < 28. {ANSWER}", 1),  # there is no 6
        (f"{TRIED} 9 - 5 = 4: 9 + 7 = 16 < 28. {ANSWER}", 1),  # 9 is used up
        (f"{TRIED} I give up. {ANSWER}", 1),  # a lucky guess
        (f"我猜。 {ANSWER}", 0),
        (f"<think> {ANSWER}", -1),
    ],
)
def test_by_hand(text: str, index: int):
    assert first_wrong_step(PROBLEM, cut_steps(text, SEPARATORS)) == index


def test_who_never_gives_up_makes_no_wrong_step_and_who_does_makes_one():
    rng = np.random.default_rng(0)
    pool = [(n, t) for n in number_sets("corpus") for t in targets(n)]
    for index in rng.choice(len(pool), 100, replace=False):
        numbers, target = pool[index]
        meta = {"numbers": list(numbers), "target": target}
        problem = Problem(uid="u", question="?", answer="", source="s", meta=meta)
        for effort in (None, 3):
            voice = Voice(language="zh" if index % 2 else "en", mix=0.5)
            work = search(numbers, target, effort, rng, voice)
            text = f" <think> {work.thinking} </think> <answer> {work.answer} </answer>"
            steps = cut_steps(text, SEPARATORS)
            gave_up = "give up" in text or "放弃" in text
            assert (first_wrong_step(problem, steps) >= 0) == gave_up, text
