"""README's Python runs as it stands."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tiny import ROOT

BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)


@pytest.mark.parametrize("is_conversation", [False, True])
def test_the_reward_function_for_trl_reads_texts_and_conversations(is_conversation: bool) -> None:
    """TRL passes each completion as a text, or as the messages that the policy wrote."""
    [block] = [text for text in BLOCKS if "def accuracy(completions" in text]
    names: dict[str, Any] = {}
    exec(block, names)
    texts = [r"So it is \boxed{7}.", "<answer> 8 </answer>"]
    messages = [[{"role": "assistant", "content": text}] for text in texts]
    completions = messages if is_conversation else texts
    prompts = [[{"role": "user", "content": "What is 3 plus 4?"}]] * 2
    rewards = names["accuracy"](completions, ["7", "7"], prompts=prompts, completion_ids=[[1], [2]])
    assert rewards == [1.0, 0.0]
