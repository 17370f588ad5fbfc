"""Few-shot prompts: who is shown, and who is not."""

from __future__ import annotations

import pytest
from test_datamodule import setup
from trainer_doubles import numbered

from r1lit.data import FewShot, PromptOptions, R1DataModule


def prompts(tokenizer, seed: int = 0, num_shots: int = 2, **options: str) -> list[str]:
    shots = FewShot(
        [numbered(5), numbered(4, "t", "other")], num_shots, wording="[{question}|{answer}]"
    )
    data = R1DataModule(
        test=[numbered(3)], shots=shots, seed=seed, prompts=PromptOptions(**options)
    )
    setup(data, tokenizer, stage="test")
    questions = [problem.question for problem in data.problems["test"]]
    texts = ["".join(tokenizer.convert_ids_to_tokens(ids)) for ids in data.prompt_ids["test"]]
    assert all(question in text for question, text in zip(questions, texts, strict=True))
    return texts


def test_shots_stand_before_each_question_and_none_is_asked(tokenizer):
    asked = [problem.question for problem in numbered(3).problems()]
    given = {
        f"[{p.question}|{p.answer}]"
        for s in (numbered(5), numbered(4, "t", "other"))
        for p in s.problems()
    }
    texts = prompts(tokenizer, template="plain")
    before = {text.removesuffix(question) for text, question in zip(texts, asked, strict=True)}
    assert len(before) == 1, "the same for all"
    shown = [part + "]" for part in before.pop().split("]")[:-1]]
    assert len(set(shown)) == 2 and set(shown) <= given
    assert not any(question in shot for shot in shown for question in asked)
    assert prompts(tokenizer, template="plain") == texts
    others = {prompts(tokenizer, seed, template="plain")[0] for seed in range(6)}
    assert len(others) > 2, "another seed shows others"
    assert prompts(tokenizer, num_shots=0, template="plain") == asked


def test_too_few_to_show_and_wordings_without_an_answer_are_refused(tokenizer):
    with pytest.raises(ValueError, match=r"data\.shots\.num_shots: 7"):
        prompts(tokenizer, num_shots=7, template="plain")
    with pytest.raises(ValueError, match=r"data\.shots\.wording: '\{question\}'"):
        FewShot([numbered(3)], wording="{question}")


def test_a_dropped_problem_is_no_shot_either(tokenizer):
    asked, others = numbered(11), numbered(3, "s", "shown")
    data = R1DataModule(
        train=[asked],
        shots=FewShot([asked, others], num_shots=2, wording="[{question}|{answer}]"),
        prompts=PromptOptions(template="plain", max_tokens=32, too_long="drop"),
    )
    with pytest.warns(UserWarning, match="1 of 11 problems are left out"):
        setup(data, tokenizer)
    assert [problem.uid for problem in data.dropped_problems["train"]] == ["u10"]
    for seed in range(20):
        data.seed = seed
        assert "[question" not in data.prompts_of("train").wording
