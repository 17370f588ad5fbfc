"""The tasks of docs/RECIPES.md: r1lit's files and commands from the page, TRL's from `trl/`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import yaml

from r1lit.cli.composition import find

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "RECIPES.md").read_text()
SCRIPTS = Path(__file__).with_name("trl")
BLOCK = re.compile(r"```(\w+)(?: (\S+))?\n(.*?)```", re.S)
DATA = (".jsonl",)
SERVED = ("A teacher behind a server", "Evaluation of what vLLM serves")
"""Tasks whose r1lit side needs a server of /v1/completions."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """One side of a task: the files that are written for it, what it begins from, its commands."""

    files: dict[str, str]
    presets: dict[str, str]
    commands: tuple[str, ...]
    missing: str = ""

    def lines(self) -> tuple[int, int]:
        """Return the lines of code and configuration: own ones, and those of the presets."""
        return num_lines(self.files), num_lines(self.presets)


def num_lines(files: dict[str, str]) -> int:
    r"""Return how many lines are neither empty, nor comments, nor the docstring of a script.

    >>> num_lines({"a.py": 'import re\n\n# why\nx = 1\n', "b.jsonl": "{}"})
    2
    """
    count = 0
    for name, text in files.items():
        if not name.endswith(DATA):
            text = re.sub(r'\A""".*?"""\n', "", text, flags=re.S)
            lines = (line.strip() for line in text.splitlines())
            count += sum(bool(line) and not line.startswith("#") for line in lines)
    return count


def ours() -> dict[str, Task]:
    """Return r1lit's side by task: what stands in the section, its presets by ``r1lit:`` names."""
    sections = re.split(r"^## ", PAGE, flags=re.M)[1:]
    tasks = {}
    for section in sections:
        blocks = BLOCK.findall(section)
        bash = "".join(text for kind, name, text in blocks if kind == "bash" and not name)
        commands = tuple(line for line in bash.splitlines() if line.strip())
        sweeps = [
            yaml.safe_load(text).get("base", []) for kind, _, text in blocks if kind == "yaml"
        ]
        bases = [name for base in sweeps for name in base]
        presets = {
            *re.findall(r"-c (r1lit:\S+)", bash),
            *(n for n in bases if n.startswith("r1lit:")),
        }
        own = {name: text for _, name, text in blocks if name}
        own |= {
            name: text
            for _, name, text in BLOCK.findall(PAGE)
            if name and (name in bash or name in bases)
        }
        tasks[section.split("\n", 1)[0]] = Task(
            files=own,
            presets={name: find(name).read_text() for name in sorted(presets)},
            commands=commands,
        )
    return tasks


def theirs() -> dict[str, Task]:
    """Return TRL's side by task; one without commands is what TRL does not do."""
    grpo = "--config grpo.yaml --output_dir"
    lora = "--use_peft --lora_r 8 --lora_alpha 16 --lora_target_modules all-linear"
    return {
        "Own problems": _trl(["own_problems.py"], ["grpo.yaml"],
                             [f"python own_problems.py {grpo} runs/own_problems"]),
        "Own reward": _trl(["own_reward.py"], ["own_problems.py", "grpo.yaml"],
                           [f"python own_reward.py {grpo} runs/own_reward"]),
        "Own verifier": _trl(["own_verifier.py"], ["own_problems.py", "grpo.yaml"],
                             [f"python own_verifier.py {grpo} runs/own_verifier"],
                             "is a reward function; no time limit, no process of its own"),
        "A tool from a Python function": _trl(
            ["own_tool.py"], ["own_problems.py", "chat.py", "grpo.yaml"],
            [f"python own_tool.py {grpo} runs/own_tool"],
            "calls are read in the chat templates that TRL knows alone"),
        "A Gymnasium game": _trl(
            ["own_game.py"], ["own_tool.py", "own_problems.py", "chat.py", "grpo.yaml"],
            [f"python own_game.py {grpo} runs/own_game"],
            "a game's actions are tools: `step(text)` has to be rewritten as one"),
        "A chat model": _trl(["chat.py"], ["own_problems.py", "grpo.yaml"],
                             [f"python chat.py {grpo} runs/chat"]),
        "Supervised fine-tuning": _trl(["sft.py"], ["sft.yaml"],
                                       ["python sft.py --config sft.yaml --output_dir runs/sft"]),
        "A teacher behind a server": _trl(
            ["teacher.py"], ["teacher.yaml"],
            ["python teacher.py --config teacher.yaml --output_dir runs/student"],
            "the teacher is in the process; behind a server it needs `trl vllm-serve`"
            " (experimental), and vLLM in the trainer's environment"),
        "Evaluation": _trl([], [], [], "not there: lm-evaluation-harness or lighteval"),
        "Evaluation of what vLLM serves": _trl([], [], [], "not there, as above"),
        "A reward model, and reinforcement learning with it": _trl(
            ["with_reward_model.py", "reward.yaml"], ["own_problems.py", "grpo.yaml"],
            ["trl reward --config reward.yaml --output_dir runs/reward",
             f"python with_reward_model.py {grpo} runs/with_reward_model"],
            "no calibration, no length baseline, rewards are not clipped"),
        "LoRA": _trl(["merge.py"], ["own_problems.py", "grpo.yaml"],
                     [f"python own_problems.py {grpo} runs/lora {lora} --learning_rate 1e-3",
                      "python merge.py runs/lora runs/lora/merged"]),
        "A sweep": _trl(["sweep.py"], ["own_problems.py", "grpo.yaml"], ["python sweep.py"],
                        "a loop of one's own: no resuming, no figure, no paired comparison"),
    }  # fmt: skip


def _trl(files: list[str], presets: list[str], commands: list[str], missing: str = "") -> Task:
    def read(names: list[str]) -> dict[str, str]:
        return {name: (SCRIPTS / name).read_text() for name in names}

    return Task(files=read(files), presets=read(presets), commands=tuple(commands), missing=missing)
