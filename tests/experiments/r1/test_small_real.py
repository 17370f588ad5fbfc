"""The small scale on one GPU: its price, its data files from public schemas, and a tiny run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from suite_rows import write_rows
from test_full import (
    CPU,
    IN_PROCESS,
    JUDGE,
    KEEPS_ALL,
    WORDS,
    config_of,
    early,
    made_once,
    move_to,
    save_policy,
)
from test_stage_presets import begin_at
from tiny import ROOT, merge

from experiments.r1.__main__ import main
from experiments.r1.data import REPAIRS, read_files
from experiments.r1.data import main as build_data
from r1lit.files import read_records, write_records

SMALL = Path("experiments/r1/small_real.yaml")
SUITES = ("gsm8k", "math500", "mbpp", "ifeval", "mmlu_redux")


def test_the_whole_is_priced_below_a_day_on_one_gpu_of_80_gb(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert main(["--scale", "small_real", "--dry-run"]) == 0
    out = capsys.readouterr().out
    steps = [step["name"] for step in yaml.safe_load(SMALL.read_text())["steps"]]
    rows = re.findall(r"^\| .+? \| (\w+) \| ([\d.]+) \| [\d.]+ \| .* \| (\d+|–) \|$", out, re.M)
    assert [name for name, *_ in rows] == steps
    [(hours, memory)] = re.findall(
        rf"^\| all \| {len(steps)} steps \| ([\d.]+) \|.*\| (\d+) \|$", out, re.M
    )
    assert sum(float(hour) for _, hour, _ in rows) == pytest.approx(
        float(hours), abs=0.05 * len(rows)
    )
    assert 8 < float(hours) < 24
    assert int(memory) <= 0.9 * (80 - 24)  # beside the judge's 24
    assert "Does not fit" not in out and "(of one iteration)" not in out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": {"zeroo": {}}}, "'zeroo' is no step; did you mean zero"),
        ({"steps": {"zero": {"tokens": 1}}}, "unknown key 'tokens'"),
        ({"gpu": 1}, "unknown key 'gpu'"),
    ],
)
def test_an_unknown_assumption_is_an_error(change, message, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(ROOT)
    content = yaml.safe_load(SMALL.read_text()) | {"assumes": change}
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    assert main([str(tmp_path / "p.yaml"), "--scale", "small_real", "--dry-run"]) == 2
    assert message in capsys.readouterr().err


# public data sets in their own columns, two rows of which do not fit

CHOSEN = {"role": "assistant", "content": "Yes, gladly."}


def sources() -> dict[str, list[dict[str, Any]]]:
    sums = [{"question": f"{i} plus 9?", "answer": f"So.\n#### 1,00{i}"} for i in range(4)]
    feedback = [
        {
            "prompt": f"Say {word}.",
            "chosen": [{"role": "user", "content": "-"}, CHOSEN],
            "rejected": [{"role": "user", "content": "-"}, {"role": "assistant", "content": word}],
        }
        for word in WORDS
    ]
    aegis = [
        {"prompt": f"{word}?", "response": text, "response_label": label, "prompt_label": label}
        for word in WORDS
        for text, label in (("No.", "safe"), ("Do it.", "unsafe"))
    ]
    hidden = {**aegis[1], "prompt": "REDACTED"}
    return {
        "openai__gsm8k__main__train": [*sums, {"question": "How?", "answer": "no mark"}],
        "openai__gsm8k__main__test": [
            {"question": f"{i} less 9?", "answer": f"So.\n#### {i - 9}"} for i in (10, 11)
        ],
        "nlile__hendrycks-MATH-benchmark": [{"problem": "1 + 1?", "answer": "2"}],
        "google-research-datasets__mbpp__full": [
            {"text": "Add.", "code": "-", "test_list": ["assert add(1, 2) == 3"]}
        ],
        "databricks__databricks-dolly-15k": [{"instruction": f"Say {word}!"} for word in WORDS],
        "HuggingFaceH4__ultrafeedback_binarized__test_prefs": feedback,
        "HuggingFaceH4__ultrafeedback_binarized__train_prefs": feedback,
        "nvidia__Aegis-AI-Content-Safety-Dataset-2.0": [
            *aegis, hidden, {**aegis[0], "response": None}
        ],
    }  # fmt: skip


def write_sources(folder: Path) -> Path:
    for name, rows in sources().items():
        write_records(folder / f"{name}.jsonl", rows)
    return folder


def test_the_data_files_are_made_from_the_columns_of_their_sources(tmp_path, capsys, monkeypatch):
    local, folder = write_sources(tmp_path / "local"), tmp_path / "made"
    arguments = ["small_real", str(folder), "--local", str(local), "--only"]
    assert build_data([*arguments, "math", "code", "general", "safety", "pairs", "test"]) == 0
    math = read_records(folder / "math.jsonl")
    assert {"1000", "2"} <= {line["answer"] for line in math} and len(math) == 5
    assert all(line["kind"] == "reasoning" and line["language"] == "en" for line in math)
    assert read_records(folder / "code.jsonl")[0]["tests"] == ["assert add(1, 2) == 3"]
    general = read_records(folder / "general.jsonl")
    assert {line["kind"]: line["answer"] for line in general} == {
        "general": "Yes, gladly.", "harmful": "unsafe"
    }  # fmt: skip
    assert not any("REDACTED" in line["question"] for line in general)
    assert {line["label"] for line in read_records(folder / "safety.jsonl")} == {"safe", "unsafe"}
    assert read_records(folder / "pairs.jsonl")[0]["chosen"] == "Yes, gladly."
    card = json.loads((folder / "card.json").read_text())
    [gsm8k, _] = card["math"]["sources"]
    assert gsm8k["taken"] == 4 and gsm8k["do_not_fit"]["answer"] == 1
    assert gsm8k["licence"] == "MIT"
    before = (folder / "math.jsonl").read_bytes()
    capsys.readouterr()
    assert build_data([*arguments, "math"]) == 0
    assert "made before" in capsys.readouterr().out
    assert (folder / "math.jsonl").read_bytes() == before


def test_a_file_of_ones_own_is_checked_and_stays(tmp_path, capsys):
    puzzle = {"prompt": "Who?", "task": "gcd", "entry": {"answer": "1"}}
    write_records(tmp_path / "logic.jsonl", [puzzle])
    before = (tmp_path / "logic.jsonl").read_bytes()
    assert build_data(["full", str(tmp_path), "--only", "logic"]) == 0
    assert "yours, 1 lines" in capsys.readouterr().out
    assert (tmp_path / "logic.jsonl").read_bytes() == before
    choice = {"question": "?", "choices": ["1", "2"], "answer": "3"}
    write_records(tmp_path / "stem.jsonl", [choice])
    assert build_data(["full", str(tmp_path), "--only", "stem"]) == 2
    assert "line 1: answer: '3' is no letter" in capsys.readouterr().err


def test_wrong_columns_are_named(tmp_path, capsys):
    problem = {"q": "1 + 1?", "answer": "2"}
    write_records(tmp_path / "nlile__hendrycks-MATH-benchmark.jsonl", [problem])
    write_records(tmp_path / "openai__gsm8k.jsonl", sources()["openai__gsm8k__main__train"])
    folder = tmp_path / "made"
    assert build_data(["small_real", str(folder), "--only", "math", "--local", str(tmp_path)]) == 2
    message = capsys.readouterr().err
    assert "none of the 1 rows of nlile/hendrycks-MATH-benchmark" in message
    assert "its columns: q, answer" in message and not (folder / "math.jsonl").exists()


@pytest.mark.parametrize(
    ("tests", "kept"),
    [
        ('{"inputs": ["1"], "outputs": ["2"]}', {"inputs": ["1"], "outputs": ["2"]}),
        ({"input": ["1"], "output": ["2"]}, {"inputs": ["1"], "outputs": ["2"]}),
        (
            [{"type": "stdin_stdout", "input": "1", "output": "2"}],
            {"inputs": ["1"], "outputs": ["2"]},
        ),
        ([{"type": "function_call", "input": "1", "output": "2"}], None),
        ('{"fn_name": "f", "inputs": [[1]], "outputs": [2]}', None),
        ({"inputs": ["1"], "outputs": []}, None),
        ("not JSON", None),
    ],
)
def test_tests_of_programs_come_in_every_public_form(tests, kept):
    from experiments.r1.data import KINDS

    assert KINDS["tests"](tests) == kept


def test_every_listed_source_has_a_licence_and_no_more_lines_than_rows(capsys):
    assert build_data(["--list"]) == 0
    out = capsys.readouterr().out
    for scale in ("full", "small_real"):
        for file in read_files(scale):
            for source in file.sources:
                of_its_own = source.path in ("made", REPAIRS)
                assert source.licence and (source.take <= source.rows or of_its_own)
                assert f"| {scale} | {file.name} | {source.take:,} |" in out


# the whole of it, tiny


def small(step: dict[str, Any], tiny: str, suites: Path) -> dict[str, Any]:
    """Return what makes a step tiny: other models, lengths and counts on the same path."""
    config = config_of(step)
    given, data = config["model"]["init_args"], config["data"]["init_args"]
    policy = given["policy"]
    path = policy["path"] if isinstance(policy, dict) else policy
    path = path if path.startswith("runs/") else tiny
    model: dict[str, Any] = {"policy": {"path": path, "dtype": "float32"}}
    change: dict[str, Any] = {}
    trainer: dict[str, Any] = dict(CPU)
    if step["command"] in ("predict", "test"):
        # at a lower temperature the tiny policy ends at once
        model |= {"engine": IN_PROCESS, "sampling": {"max_tokens": 8, "temperature": 1.0}}
        if step["command"] == "test":
            model["judge"] = None
            change = {"folder": str(suites), "limit": 2, "suites": list(SUITES)}
        else:
            change = {"evaluation": {"num_samples": 2}}
        if "callbacks" in config["trainer"]:
            trainer["callbacks"] = KEEPS_ALL
    elif "rewards" in given:
        model |= {
            "train_batch_size": 4, "micro_batch_tokens": 2048, "rewards": early(given["rewards"]),
            "sampling": {"max_tokens": 8}, "validation_sampling": {"max_tokens": 8},
            "engine": {"init_args": {"max_rows": 8}},
        }  # fmt: skip
        change = {
            "train": begin_at(data["train"], 1),
            "rollout": {"prompts_per_iteration": 4, "group_size": 2},
            "num_iterations": 2,
        }
        trainer["val_check_interval"] = 1
    elif "packing" in data:
        model["micro_batch_tokens"] = 2048
        change = {"packing": {"max_seq_len": 512, "documents_per_update": 2}, "num_iterations": 1}
        trainer["max_epochs"] = 1
    else:
        model["micro_batch_tokens"] = 2048
        change = {"train_batch_size": 2, "score_on": "response", "num_iterations": 1}
        trainer["val_check_interval"] = 1
    return {"model": {"init_args": model}, "data": {"init_args": change}, "trainer": trainer}


@pytest.mark.slow
def test_every_step_runs_from_the_one_file_with_tiny_models(tmp_path, monkeypatch):
    move_to(tmp_path, monkeypatch)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    tiny = save_policy(tmp_path / "tiny")
    suites = write_rows(tmp_path / "suites", *SUITES)
    write_sources(tmp_path / "local")
    content = yaml.safe_load(SMALL.read_text())
    for step in content["steps"]:
        if step.get("command"):
            step["set"] = merge(step.get("set", {}), small(step, tiny, suites))
        elif step["name"] == "data":
            step["arguments"] += ["--local", "local"]
        elif step["name"] == "pairs":
            step["arguments"] = [*JUDGE, *step["arguments"][1:]]
    run = made_once(content)
    table = (run / "table.md").read_text().splitlines()
    assert table[0].startswith("| | GSM8K") and table[0].count("|") == 2 + len(SUITES)
    stages = ["base", "zero", "dev1", "dev2", "dev3", "r1", "distilled", "small_rl"]
    assert [line.split()[1] for line in table[2:10]] == stages
    r1 = read_records(run / "rl_2/metrics.jsonl")
    first, second = ({row[f"train/reward/{name}"] for name in ("helpful", "safe")} for row in r1)
    assert first == {0.0} != second  # four prompts need not hold both kinds
