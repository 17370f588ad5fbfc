"""The Python of docs/USE_THE_MODEL.md runs on an exported policy."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from huggingface_hub import ModelCard
from tiny import ROOT
from transformers import AutoTokenizer

from r1lit.cli import OTHERS
from r1lit.cli.chat import COMMANDS
from r1lit.text.prompts import encode_prompts, render

PAGE = (ROOT / "docs" / "USE_THE_MODEL.md").read_text()


def test_its_python_runs_and_the_chat_template_is_the_runs(tmp_path: Path, policy, monkeypatch):
    shutil.copytree(policy, tmp_path / "runs/aha/policy")
    monkeypatch.chdir(tmp_path)
    programs = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    assert len(programs) == 3
    names: dict = {}
    exec("".join(programs).replace("max_new_tokens=384", "max_new_tokens=8"), names)
    served = tmp_path / "runs/aha/served"
    tokenizer = AutoTokenizer.from_pretrained(served)
    question = "Using 5, 9 and 7, make 21."
    messages = [{"role": "user", "content": question}]
    chat = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    ids = tokenizer(chat, add_special_tokens=False)["input_ids"]
    assert tuple(ids) == encode_prompts(tokenizer, [render("small_world", question)])[0]
    assert names["output"].shape[1] <= names["inputs"]["input_ids"].shape[1] + 8
    card = ModelCard.load(served / "README.md")
    assert card.data.library_name == "transformers" and render("small_world", "{question}") in str(
        card
    )


def test_what_it_says_of_the_command_line_exists():
    named = set(re.findall(r"`(/\w+)`", PAGE))
    assert named and named <= COMMANDS.keys()
    commands = set(re.findall(r"\br1lit (\w+)", PAGE)) - {"merge"}
    assert "chat" in commands and commands | {"merge"} <= OTHERS.keys()


def test_its_links_lead_somewhere():
    for name in ("USE_THE_MODEL.md", "CHOOSING.md", "COMING_FROM.md", "FROM_PYTHON.md"):
        text = (ROOT / "docs" / name).read_text()
        for target in re.findall(r"\]\((?!http)([^)#]+)", text):
            assert (ROOT / "docs" / target).exists(), f"{name}: {target}"
