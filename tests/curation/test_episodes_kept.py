"""Episodes that rejection sampling keeps: conversations, with the loss on the model's turns."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tally import GOLD, LINE
from transformers import AutoTokenizer

from r1lit.callbacks.rejection_sampling import _opening
from r1lit.curation import Context, Correct, Finished, MaxPerProblem, SmallPatch, ValidCalls
from r1lit.curation.curate import curate
from r1lit.curation.curation import Curation
from r1lit.data import CuratedDocuments
from r1lit.environments import ChatTurns, InlineTurns
from r1lit.files import read_records, write_records
from r1lit.problems import Problem
from r1lit.rollout import ModelSpec
from r1lit.text.prompts import Conversation
from r1lit.verifiers import Grader

TOOLS = [{"type": "function", "function": {"name": "run_tests", "parameters": {}}}]
OPENING = Conversation.of([{"role": "user", "content": "Mend it."}], TOOLS)
PROBLEM = Problem(uid="t", question="Mend it.", answer=GOLD, source="tally", verifier="repository")
TEST_PATCH = GOLD.replace("tally/core.py", "tests/test_core.py")
LONG = GOLD.replace(f"+{LINE.replace('-=', '+=')}", "".join(f"+x = {n}\n" for n in range(70)))


def record(sample: int, response: str = GOLD, **change: Any) -> dict[str, Any]:
    turns = [
        {
            "role": "assistant",
            "content": "<tool_call>run</tool_call>",
            "tool_calls": [{"name": "run_tests", "arguments": {}}],
        },
        {"role": "tool", "name": "run_tests", "content": "1 failed"},
        {"role": "assistant", "content": f"Done {sample}."},
    ]
    row = {"uid": "t", "sample": sample, "response": response, "status": "right", "reason": ""}
    row |= {"num_tokens": 30 + sample, "finished": True, "turns": turns, "num_invalid": 0}
    return row | change


def test_kept_episodes_are_documents_of_the_models_turns_alone(tmp_path: Path, policy: Path):
    records = [
        record(0),
        record(1, status="wrong"),
        record(2, finished=False),
        record(3, num_invalid=1),
        record(4, TEST_PATCH),
        record(5, LONG),
        record(6),
        record(7),
    ]
    write_records(tmp_path / "responses.jsonl", records)
    model = ModelSpec(name="p", tokenizer=AutoTokenizer.from_pretrained(policy), policy=None)
    filters = [Finished(), Correct(), ValidCalls(), SmallPatch(), MaxPerProblem(2, "first")]
    stats = curate(
        Curation(filters=filters),
        tmp_path / "responses.jsonl",
        [PROBLEM],
        len(records),
        Grader({}),
        Context(seed=0, folder=tmp_path, model=model, opening=lambda problem: OPENING),
    )
    assert stats.num_kept == 2
    dropped = {row["sample"]: row["filter"] for row in read_records(tmp_path / "dropped.jsonl")}
    assert dropped == {
        **{1: "correct", 2: "finished", 3: "valid_calls", 4: "small_patch", 5: "small_patch"},
        7: "max_per_problem",
    }
    why = {row["sample"]: row["why"] for row in read_records(tmp_path / "dropped.jsonl")}
    assert why[4] == "changes the test tests/test_core.py" and why[5] == "changes 71 lines"
    first, second = read_records(tmp_path / "sft.jsonl")
    assert (first["sample"], second["sample"]) == (0, 6) and first["answer"] == GOLD
    assert [m["role"] for m in first["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert not any("tool_calls" in message for message in first["messages"])  # the text has them
    assert first["tools"] == TOOLS and first["num_tokens"] == 30
    documents = CuratedDocuments(str(tmp_path / "sft.jsonl")).documents()
    assert [d.response for d in documents] == [
        *("<tool_call>run</tool_call>", "Done 0."),
        *("<tool_call>run</tool_call>", "Done 6."),
    ]
    assert [len(d.before.messages) for d in documents] == [1, 3, 1, 3]
    assert all(d.chat and d.before.tools_text == OPENING.tools_text for d in documents)


def test_an_episode_begins_as_its_prompt_did():
    prompts = SimpleNamespace(system_prompt="Be brief.")
    data = SimpleNamespace(turns=ChatTurns(), prompts=prompts, opening=lambda problem: "Mend it.")
    assert [m["content"] for m in _opening(data, PROBLEM).messages] == ["Be brief.", "Mend it."]
    data.opening = lambda problem: OPENING
    assert _opening(data, PROBLEM).tools_text == OPENING.tools_text
    data.turns = InlineTurns()
    with pytest.raises(ValueError, match=r"set it to r1lit\.environments\.ChatTurns"):
        _opening(data, PROBLEM)
