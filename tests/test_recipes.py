"""Every command of docs/RECIPES.md, on a policy of a few thousand parameters."""

from __future__ import annotations

import re
import runpy
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from http_server import CompletionServer, ScoringServer
from tiny import ROOT, no_figures
from tiny import merge as merge_yaml
from transformers import AutoTokenizer

from experiments.sweep import read_sweep, run_sweep
from r1lit.cli import main
from r1lit.evaluation.audit import main as audit
from r1lit.files import write_records
from r1lit.policy import load_policy
from r1lit.policy.merge import main as merge

PAGE = (ROOT / "docs" / "RECIPES.md").read_text()
BLOCK = re.compile(r"```(\w+)(?: (\S+))?\n(.*?)```", re.S)
FILES = {file: text for _, file, text in BLOCK.findall(PAGE) if file}
SECTIONS = {part.split("\n", 1)[0]: part for part in re.split(r"^## ", PAGE, flags=re.M)[1:]}
SMALL = {
    "model": {"init_args": {"sampling": {"max_tokens": 8}, "train_batch_size": 8}},
    "data": {"init_args": {"rollout": {"prompts_per_iteration": 4, "group_size": 4},
                           "num_iterations": 1, "evaluation": {"num_samples": 2}}},
}  # fmt: skip
OF_PROBLEMS = {"limit_val_batches": 0, "val_check_interval": 1}
VALIDATED = [{"class_path": "r1lit.worlds.WorldChain",
              "init_args": {"split": "held_out", "num_problems": 2}}]  # fmt: skip


def shrink(command: str, configs: list[str]) -> dict:
    """Return what makes a command small: nothing that the page says."""
    trainer: dict = {"precision": "32-true", "accelerator": "cpu", "enable_model_summary": False}
    if command != "fit":
        return {"model": {"init_args": {"policy": {"dtype": "float32"}}}}
    if "mini" in configs[0]:
        return {**SMALL, "trainer": {**trainer, **OF_PROBLEMS}}
    if "distill" in configs[0]:
        change = {"sampling": {"max_tokens": 8}}
        rollout = {"prompts_per_iteration": 2}
        return {"model": {"init_args": change}, "trainer": {**trainer, **OF_PROBLEMS},
                "data": {"init_args": {"num_iterations": 1, "rollout": rollout}}}  # fmt: skip
    return {"trainer": {**trainer, "max_epochs": 1}}


@pytest.fixture
def servers(policy: Path) -> Iterator[dict[str, str]]:
    """Return by section the address of the server that it needs."""
    teacher = ScoringServer(load_policy(str(policy)).eval(), AutoTokenizer.from_pretrained(policy))
    vllm = CompletionServer(is_vllm=True)
    yield {
        "A teacher behind a server": teacher.base_url,
        "Evaluation of what vLLM serves": vllm.base_url,
    }
    teacher.close()
    vllm.close()


LONG = {"A sweep": pytest.mark.long, "Evaluation": pytest.mark.long}


@pytest.mark.long
@pytest.mark.parametrize("name", [pytest.param(n, marks=LONG.get(n, ())) for n in SECTIONS])
def test_the_commands_of_a_task_run(
    name: str, tmp_path: Path, policy: Path, servers: dict[str, str], monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for _, file, text in BLOCK.findall(PAGE):
        if file:
            text = text.replace("r1lit:models/mini", str(policy))
            text = text.replace("http://127.0.0.1:8000/v1", servers.get(name, "http://unused"))
            (tmp_path / file).write_text(text)
            if file.endswith(".py"):
                sys.modules.pop(file.removesuffix(".py"), None)
    runpy.run_path("make_sums.py")
    ran = []
    for kind, _, text in BLOCK.findall(SECTIONS[name]):
        for line in text.strip().splitlines() if kind == "bash" else ():
            words = [w for w in shlex.split(line.replace("r1lit:models/mini", str(policy)))
                     if w != "PYTHONPATH=."]  # fmt: skip
            ran.append(words[0])
            if words[0] == "python":
                sweep(tmp_path / words[-1], policy)
                continue
            command = words[1]
            if command == "merge":
                merge(words[2:])
                assert (Path(words[3]) / "model.safetensors").is_file()
                continue
            configs = [words[i + 1] for i, word in enumerate(words) if word == "-c"]
            small = tmp_path / f"small-{len(ran)}.yaml"
            change = shrink(command, configs)
            change = merge_yaml(no_figures(*configs), change) if command == "fit" else change
            small.write_text(yaml.safe_dump(change))
            chosen = [] if command != "fit" else [f"--model.policy={policy}"]
            main([*words[1:], "-c", str(small), *chosen])
            run = Path(words[words.index("--run") + 1])
            assert (run / ("summary.json" if command == "fit" else "report.json")).is_file()
    assert ran


def sweep(path: Path, policy: Path) -> None:
    config = yaml.safe_load(path.read_text())
    small = shrink("fit", config["base"])
    small["model"]["init_args"]["policy"] = str(policy)
    small["trainer"]["limit_val_batches"] = 1
    small["data"]["init_args"]["validation"] = VALIDATED
    (path.parent / "small.yaml").write_text(yaml.safe_dump(small))
    path.write_text(yaml.safe_dump({**config, "base": [*config["base"], "small.yaml"]}))
    failed = run_sweep(read_sweep(path), launch=lambda arguments, log: 0 if main(arguments) else 1)
    results = Path("runs/sweep/results.jsonl").read_text().splitlines()
    assert not failed and len(results) == 4


def test_a_file_is_printed_before_the_command_that_takes_it() -> None:
    printed: set[str] = {"sums.jsonl", "held_out.jsonl"}  # which make_sums.py writes
    for kind, file, text in BLOCK.findall(PAGE):
        if file:
            printed.add(file)
        elif kind == "bash":
            taken = re.findall(r"(?<![\w:/.])[\w./]+\.(?:yaml|jsonl|py)\b", text)
            assert {*taken} <= printed, (text, {*taken} - printed)


def test_numbers_are_of_the_command_that_is_printed() -> None:
    """Where held-out pass@1 rose in 8 iterations, the held-out sums and 8 iterations are given."""
    own = yaml.safe_load(FILES["own_data.yaml"])["data"]["init_args"]
    assert own["num_iterations"] == 8 and "held_out.jsonl" in str(own["validation"])
    quoting = [name for name, text in SECTIONS.items() if "eld-out pass@1 r" in text]
    assert len(quoting) == 5
    for name in quoting:
        given = "".join(text for kind, file, text in BLOCK.findall(SECTIONS[name])
                        if kind == "bash" or file == "sweep.yaml")  # fmt: skip
        assert re.search(r"r1lit:mini/r1_zero\.yaml,?( -c)? own_data\.yaml", given), name


def test_the_verifier_pays_no_changed_answer(tmp_path: Path, monkeypatch) -> None:
    """By ``r1lit audit-verifier``, whose false positives RL learns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_verifier", raising=False)
    Path("my_verifier.py").write_text(FILES["my_verifier.py"])
    rows = [{"question": f"Start with {n}, plus 2.", "answer": str(n + 2)} for n in range(4, 9)]
    write_records(Path("sums.jsonl"), rows)
    audit(["--problems=TableProblems", "--problems.path=sums.jsonl",
           "--verifier=my_verifier.SameNumber", "--run=audit"])  # fmt: skip
    report = Path("audit/audit.md").read_text()
    assert re.search(r"wrong answers are paid: 0\.00% of \d\d", report)
    assert re.search(r"\| kept \| as it is \| 5 \| 0 \|", report)


def test_there_are_thirteen() -> None:
    assert len(SECTIONS) == 13
