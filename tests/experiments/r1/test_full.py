"""The full scale: what it would cost, and all of it with tiny models, from one file."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import yaml
from tally import write_tally
from test_stage_presets import CHAT, begin_at, lines_of
from tiny import ROOT, merge, save_policy_that_ends
from tiny_pipeline import environment, manifest, states
from transformers import AutoTokenizer

from experiments.pipeline import read_pipeline
from experiments.r1 import plan
from experiments.r1.__main__ import main
from experiments.r1.data import TARGETS, DataFile, Source, read_files, shares_of
from experiments.r1.data import lines_of as data_lines
from experiments.r1.paper_cost import paper_table, parts_of
from r1lit.evaluation.suites import build
from r1lit.files import read_records, write_records
from r1lit.modules.compute_plan import Gpu
from r1lit.modules.memory_plan import GB, most_memory
from r1lit.policy.source import settings_of
from r1lit.verifiers import ReasoningGymVerifier

FULL = Path("experiments/r1/full.yaml")
SIZES = ("1.5B", "7B", "32B", "70B")
DRAWN = {"responses", "rejection_sampling"}  # by servers
ROW = re.compile(r"^\| `(\S+)` \| (\S+) \| (.*?) \| (\d+) \| (\d+) \| (yes|no).*\|$", re.MULTILINE)


def table() -> list[tuple[str, ...]]:
    """Return the rows of docs/MEMORY.md: preset, size, files behind it, GPUs, GB, whether."""
    return ROW.findall((ROOT / "docs" / "MEMORY.md").read_text())


def test_the_table_has_every_preset_and_size():
    named = {(name, size) for name, size, *_ in table()}
    presets = {p.stem for p in (ROOT / "configs/r1/full").glob("*.yaml")} - DRAWN
    assert named >= {(f"r1/full/{name}", size) for name in presets for size in SIZES}
    students = {p.stem for p in (ROOT / "configs/distill").glob("*b*.yaml")} - {"base"}
    assert {name for name, _ in named} >= {f"distill/{student}" for student in students}


@pytest.mark.parametrize("row", table(), ids=lambda row: f"{row[0]}-{row[1]}")
def test_the_table_of_presets_is_what_the_formula_says(row):
    name, size, behind, ranks, gigabytes, fits = row
    files = [name, *re.findall(r"`(\S+?)`", behind)]
    if name.startswith("distill/"):
        files = ["data/jsonl", "distill/base", *files]
    preset = plan.read_preset("+".join(str(ROOT / "configs" / f"{file}.yaml") for file in files))
    made = plan.plan_of(name, preset, gpu=Gpu(), model=size)
    assert made.work.memory.ranks == int(ranks)
    assert round(most_memory(made.memory) / GB) == int(gigabytes)
    assert made.fits(Gpu()) == (fits == "yes")


@pytest.mark.long
def test_a_dry_run_prints_every_steps_command_and_plan(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(ROOT)
    run = tmp_path / "run"
    assert main(["--scale", "full", "--dry-run", "--run", str(run)]) == 0
    out = capsys.readouterr().out
    assert not run.exists()
    pipeline = read_pipeline(FULL, run=run)
    for step in pipeline.steps:
        [_, text] = out.split(f"# {step.stage}: {step.name} (new)\n")
        text = text.split("\n# ")[0]
        if step.command is None:
            assert f"-m {step.module} " in text
            continue
        assert f"-m r1lit.cli {step.command} -c {run}/configs/{step.name}/0.yaml" in text
        assert ("GPU-hours: " in text) != ("drawn by deepseek-ai/DeepSeek-V3" in text)
        if step.command == "fit":
            assert "; fits with 10% to spare" in text and "activations" in text
    assert out.count("drawn by") == 2
    assert "needs, and is not there" not in out  # the first step makes the data
    rows = re.findall(
        r"^\| .+? \| (\w+) \| [\d,.]+ \| [\d,.]+ \| .* \| [\d–]+ \|$", out, re.MULTILINE
    )
    assert rows == [step.name for step in pipeline.steps]  # each with its price
    assert re.search(rf"^\| all \| {len(rows)} steps \| [\d,.]+ \|", out, re.MULTILINE)
    assert "(of one iteration)" not in out and "Does not fit" not in out


@pytest.mark.long
def test_documents_are_counted_from_their_sources_to_the_papers_table(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert main(["--scale", "full", "--dry-run"]) == 0
    out = capsys.readouterr().out
    rows = re.findall(
        r"^\| (\w+) \| ([\d,]+) \| .*? \| ([\d,]+) \| ([\d,]+) \| enough \|$", out, re.MULTILINE
    )
    counts = {name: int(wanted.replace(",", "")) for name, _, _, wanted in rows}
    assert counts == {
        "math": 395_285, "code": 211_129, "stem": 10_124, "logic": 10_395, "other": 177_812
    }  # fmt: skip
    assert sum(counts.values()) == 804_745
    mixture = yaml.safe_load((ROOT / "configs/r1/full/sft_800k.yaml").read_text())["data"]
    [mixture] = mixture["init_args"]["documents"]
    assert {p["name"]: p["share"] for p in mixture["init_args"]["parts"]} == counts
    assert mixture["init_args"]["num_documents"] == 804_745
    files = {file.name: file.take for file in read_files("full")}
    prompts = {name: int(number.replace(",", "")) for name, number, *_ in rows}
    assert prompts["math"] == files["math"] + files["rejection_math"] > 26_000
    assert (
        "| stem | 22,000 | 22,000 | 20,394 | 1,606 | chemistry 10,230, biology 6,754, physics"
        in out
    )
    named = {
        "math": 26,
        "code": 17,
        "stem": 22,
        "logic": 15,
        "bugs": 8,
        "general": 78,
        "safety": 106,
    }
    assert {name: files[name] // 1000 for name in named} == named  # the supplement's


def test_the_science_prompts_have_the_papers_subjects_and_numbers_of_options():
    """B.3.1: 46.5, 30.7, 15.5 and 7.3 % of 22,000, 4 to 8 options; questions in two languages."""
    files = {file.name: file for file in read_files("full")}
    subjects = shares_of(files["stem"], "subject")
    assert subjects == TARGETS["stem"] and sum(subjects.values()) == 22_000
    for subject, share in zip(("chemistry", "biology", "physics", "other"),
                              (0.465, 0.307, 0.155, 0.073), strict=True):  # fmt: skip
        assert subjects[subject] == round(share * 22_000)
    assert all(list(source.num_choices) == [4, 8] for source in files["stem"].sources)
    for name in ("math", "stem", "general", "other"):
        assert {*shares_of(files[name], "language")} == {"en", "zh"}, name
    assert any(source.before == {"Year": 2023} for source in files["math"].sources)
    asked = [source.wordings.get("question", "") for source in files["other"].sources]
    assert any("repair" in text for text in asked)


def test_a_source_gives_the_rows_that_it_is_asked_for(tmp_path):
    rows = [
        {"question": f"{subject} {n}?", "choices": {"text": list("abcd")[:n]}, "answerKey": key,
         "domain": subject}
        for subject, n, key in (("Physics", 4, "D"), ("Physics", 3, "A"), ("Biology", 4, "A"),
                                ("Physics", 4, "E"))
    ]  # fmt: skip
    write_records(tmp_path / "own__science.jsonl", rows)
    source = Source(path="own/science", licence="-", rows=4, take=4, where={"domain": "Physics"},
                    num_choices=[4, 8], columns={"choices": "choices.text", "answer": "answerKey"},
                    constants={"subject": "physics"})  # fmt: skip
    schema = {"question": "text", "choices": "choices", "answer": "letter"}
    file = DataFile(name="stem", holds="-", schema=schema, constants={}, sources=[source])
    lines, [card] = data_lines(file, tmp_path)
    assert [(line["question"], line["subject"]) for line in lines] == [("Physics 4?", "physics")]
    assert card["other_rows"] == 1
    assert card["do_not_fit"] == {"question": 0, "choices": 1, "answer": 1}
    dated = Source(path="-", licence="-", rows=0, take=0, before={"Year": 2023})
    held = [dated.holds({"Year": year}) for year in ("2022", 2023, 1999, None, "-")]
    assert held == [True, False, True, False, False]


def test_logic_is_of_several_families_whose_gold_answers_are_right(tmp_path):
    """Lines as JSON and back, through zero.yaml's source: code-IO, Zebra, ciphers and others."""
    pytest.importorskip("reasoning_gym")
    [file] = [file for file in read_files("full") if file.name == "logic"]
    assert sum(shares_of(file, "subject").values()) == 15_000 and len(file.sources) == 7
    few = replace(file, sources=[replace(source, take=2) for source in file.sources])
    lines, _ = data_lines(few, None)
    tasks = [line["task"] for line in lines]
    assert sorted(tasks) == sorted(2 * [source.name for source in file.sources])
    assert tasks != sorted(tasks, key=[source.name for source in file.sources].index)  # mixed
    write_records(tmp_path / "logic.jsonl", lines)
    zero = yaml.safe_load((ROOT / "configs/r1/full/zero.yaml").read_text())
    [source] = [s for s in zero["data"]["init_args"]["train"] if "logic" in s["init_args"]["path"]]
    source["init_args"]["path"] = str(tmp_path / "logic.jsonl")
    problems = build(source).problems()
    verifier = ReasoningGymVerifier()
    for problem in problems:
        gold = problem.meta["entry"].get("answer")
        if gold is not None:
            assert verifier.verify(f"<answer> {gold} </answer>", problem).value == 1.0, problem
        assert verifier.verify("<answer> no </answer>", problem).value < 1.0


def test_served_sampling_is_checked_for_fit(monkeypatch):
    """32B: 65 GB of weights beside a vLLM's 64 are 130 GB; a server of its own holds them once."""
    monkeypatch.chdir(ROOT)
    [step] = [s for s in read_pipeline(FULL).steps if s.name == "paper_distilled_32b"]
    config = plan.merge({}, *step.configs)
    engine = config["model"]["init_args"]["engine"]
    assert engine["class_path"].endswith("ServerEngine")
    alone = plan.plan_of("x", config, gpu=Gpu(), model="Qwen/Qwen2.5-32B")
    assert alone.fits(Gpu()) and "of a server of 2 GPUs, each 32.8 GB" in plan.as_text(alone, Gpu())
    flags = {"gpu-memory-utilization": 0.8, "tensor-parallel-size": 2}
    served = {"serve": True, "flags": flags}
    beside = {"class_path": "r1lit.rollout.VLLMEngine", "init_args": served}
    config = plan.merge(config, {"model": {"init_args": {"engine": beside}}})
    twice = plan.plan_of("x", config, gpu=Gpu(), model="Qwen/Qwen2.5-32B")
    assert round(most_memory(twice.memory) / GB) == 130 and not twice.fits(Gpu())
    assert "**Does not fit**" in plan.as_text(twice, Gpu())


def test_the_papers_hours_stand_beside_those_of_the_formulas():
    zero, data, r1 = parts_of(8_000, 2.5e10, 1_600)
    assert [part.hours_of_paper for part in (zero, data, r1)] == [101e3, 5e3, 41e3]
    tokens = 10_400 * 512 * 8_000
    by_hand = (6 * 37e9 * tokens * 5 / 3 / (989e12 * 0.35) + tokens / 1850) / 3600
    assert zero.hours(Gpu(), 1850) == pytest.approx(by_hand)
    assert data.hours(Gpu(), 1850) == pytest.approx(2.5e10 / 1850 / 3600)
    text = "\n".join(paper_table(Gpu(), 1850, 8_000, 2.5e10, 1_600))
    assert f"| R1-Zero | 101,000 | {by_hand:,.0f} | {101e3 / by_hand:.1f} times |" in text
    assert "| all | 147,000 |" in text


def test_pairs_are_of_prompts_that_no_rule_grades(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = yaml.safe_load((ROOT / "configs/r1/full/responses.yaml").read_text())
    [source] = own["data"]["init_args"]["predict"]
    rows = [{"question": f"{kind}?", "answer": "-", "language": "en", "kind": kind}
            for kind in ("general", "harmful")]  # fmt: skip
    write_records(tmp_path / "data/r1/general.jsonl", rows)
    assert [p.question for p in build(source).problems()] == ["general?"]


def test_zero_qwen_32b_learns_from_maths_code_and_stem_alone(monkeypatch):
    monkeypatch.chdir(ROOT)
    [step] = [s for s in read_pipeline(FULL).steps if s.name == "zero_qwen_32b"]
    config = plan.merge({}, *step.configs)
    paths = [source["init_args"]["path"] for source in config["data"]["init_args"]["train"]]
    assert paths == [f"data/r1/{name}.jsonl" for name in ("math", "code", "stem")]
    assert config["data"]["init_args"]["num_iterations"] * 16 == 10_000


def leaves(value: Any, *keys: str) -> set[str]:
    """Return the texts under any of these keys, wherever they are."""
    if isinstance(value, list):
        return {text for item in value for text in leaves(item, *keys)}
    if not isinstance(value, dict):
        return set()
    here = {v for k, v in value.items() if k in keys and isinstance(v, str)}
    return here | {text for item in value.values() for text in leaves(item, *keys)}


def test_a_step_names_all_it_reads_and_writes(monkeypatch):
    """Or it would not be made anew when its input has changed."""
    monkeypatch.chdir(ROOT)
    for step in read_pipeline(FULL).steps:
        config = plan.merge({}, *step.configs)
        own = {str(step.folder)}
        named = leaves(config, "policy", "path") - own
        named = {text for text in named if text.startswith(("runs/", "data/"))}
        assert named <= {str(path) for path in step.reads}, step.name
        assert all(str(path).startswith(tuple(own)) for path in step.writes if step.configs)


# the whole of it, tiny

WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight")
IN_PROCESS = {"class_path": "r1lit.rollout.InProcessEngine", "init_args": {"max_rows": 8}}
DEDUPE = {"filters": [{"class_path": "r1lit.curation.Dedupe"}]}
KEEPS_ALL = [{"class_path": "r1lit.callbacks.RejectionSampling", "init_args": DEDUPE}]
"""Rejection sampling for a random policy, which is never right."""
JUDGE = ["--judge=test_full.prefers", "--score_on=response", "--balance=false"]
CPU = {
    "accelerator": "cpu", "devices": 1, "strategy": "auto", "precision": "32-true",
    "enable_model_summary": False,
}  # fmt: skip


def prefers(prompt: str, first: str, second: str) -> float:
    """A judge: by the alphabet, so whatever the lengths."""
    return 2.0 if first > second else -2.0


def save_policy(folder: Path) -> str:
    """Save one with a chat template, and a context that holds the few-shot example."""
    save_policy_that_ends(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 4096}))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(folder)
    return str(folder)


def write_tables(folder: Path) -> None:
    """Write what the user of the full scale brings."""
    for name in ("math", "code", "stem", "logic"):
        write_records(folder / f"{name}.jsonl", lines_of(name))
    for name in ("math", "code"):
        write_records(folder / f"rejection_{name}.jsonl", lines_of(name))
    general = [
        {"question": f"Say {word}.", "answer": "-", "language": "en", "kind": kind}
        for word in WORDS
        for kind in ("general", "harmful")
    ]
    write_records(folder / "general.jsonl", general)
    write_records(
        folder / "other.jsonl",
        [
            {"question": f"Say {word}.", "answer": "-", "kind": "general", "language": "en"}
            for word in WORDS
        ],
    )
    labels = [
        {"prompt": f"{word}?", "response": f"{label}!", "label": label}
        for word in WORDS
        for label in ("safe", "unsafe")
    ]
    write_records(folder / "safety.jsonl", labels)
    sums = [
        {"question": f"{i} + 9?", "answer": str(i + 9), "kind": "reasoning", "language": "en"}
        for i in range(2)
    ]
    write_records(folder / "sums.jsonl", sums)
    write_records(folder / "aime2024.jsonl", [{"problem": "1 + 9?", "answer": "10"}])


def config_of(step: dict[str, Any]) -> dict[str, Any]:
    """Return the merged config of a step as its file has it."""
    files = [yaml.safe_load(Path(name).read_text()) for name in step.get("config", [])]
    return reduce(merge, [*files, step.get("set", {})], {})


def early(rewards: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Let rewards come at iteration 1, of whole responses: a random policy has no summaries."""
    return json.loads(json.dumps(begin_at(rewards, 1)).replace('"summary"', '"response"'))


def move_to(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder with the checkout's configs, where commands find the tests' modules."""
    for name in ("configs", "experiments"):
        (folder / name).symlink_to(ROOT / name)
    paths = {"PYTHONPATH": f"{environment()['PYTHONPATH']}:{Path(__file__).parent}"}
    for key, value in (environment() | paths).items():
        monkeypatch.setenv(key, value)
    monkeypatch.chdir(folder)


def made_once(content: dict[str, Any]) -> Path:
    """Make a whole pipeline, which a second start leaves as it is; return its run folder."""
    path, run = Path("tiny.yaml"), Path(content["run"])
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    status = main([str(path)])
    failed = [name for name, state in states(run).items() if state != "finished"]
    assert status == 0, "".join((run / f"logs/{name}.log").read_text()[-3000:] for name in failed)
    assert set(states(run)) == {step["name"] for step in content["steps"]}
    before = (run / "manifest.json").read_bytes()
    assert main([str(path)]) == 0
    assert (run / "manifest.json").read_bytes() == before
    return run


def small(step: dict[str, Any], tiny: str) -> dict[str, Any]:
    """Return what makes a step tiny: other models, lengths and counts on the same path."""
    config = config_of(step)
    sums = {
        "class_path": "r1lit.data.TableProblems",
        "init_args": {"path": "data/r1/sums.jsonl", "meta": ["kind", "language"]},
    }
    given = config["model"]["init_args"]
    model: dict[str, Any] = {}
    data: dict[str, Any] = {}
    trainer: dict[str, Any] = dict(CPU)
    path = settings_of(given["policy"])["path"]
    model["policy"] = path = path if path.startswith("runs/") else tiny
    if step["command"] in ("predict", "test"):
        # at a lower temperature the tiny policy ends at once
        model |= {"engine": IN_PROCESS, "sampling": {"max_tokens": 8, "temperature": 1.0}}
        model["policy"] = {"path": path, "dtype": "float32"}
        data["evaluation"] = {"num_samples": 3}
        if "cold_start" in given["dirpath"]:
            data["predict"] = [sums]
        if step["command"] == "test":
            data["test"], model["by"] = [sums], None
        if "callbacks" in config["trainer"]:
            trainer["callbacks"] = KEEPS_ALL
        return {"model": {"init_args": model}, "data": {"init_args": data}, "trainer": trainer}
    trainer["max_epochs"] = 1
    data["num_iterations"] = 1
    model["micro_batch_tokens"] = 4096
    if "rewards" in given:
        model |= {
            "train_batch_size": 8, "engine": IN_PROCESS, "rewards": early(given["rewards"]),
            "sampling": {"max_tokens": 8}, "validation_sampling": {"max_tokens": 8},
        }  # fmt: skip
        if "max_tokens_from" in given:
            model["max_tokens_from"] = {513: 16, 1: 9}
        data |= {
            "train": begin_at(config["data"]["init_args"]["train"], 1),
            "validation": [sums],
            "rollout": {"prompts_per_iteration": 4, "group_size": 2},
            "num_iterations": 2,
            "evaluation": {"num_samples": 2},
            "prompts": {"max_tokens": 2048},
        }
        trainer["val_check_interval"] = 1
    elif "packing" in config["data"]["init_args"]:
        data["packing"] = {"max_seq_len": 512, "documents_per_update": 1}
        documents = config["data"]["init_args"]["documents"]
        for source in documents:
            source["init_args"].pop("num_documents", None)
            for part in source["init_args"].get("parts", []):
                part["share"] = 1
        data["documents"] = documents
    else:
        data |= {"max_tokens": 128, "train_batch_size": 2, "score_on": "response"}
        trainer["val_check_interval"] = 1
    return {"model": {"init_args": model}, "data": {"init_args": data}, "trainer": trainer}


@pytest.mark.slow
def test_the_full_path_runs_from_its_one_file_with_tiny_models(tmp_path, monkeypatch):
    move_to(tmp_path, monkeypatch)
    tiny = save_policy(tmp_path / "tiny")
    write_tables(tmp_path / "data/r1")
    content = yaml.safe_load(FULL.read_text())
    steps = [s for s in content["steps"] if not re.search("_(dev1|dev2|dev3|32b)$", s["name"])]
    for step in steps:
        if step.get("command"):
            change = small(step, tiny)
            step.get("set", {}).get("model", {}).get("init_args", {}).pop("engine", None)  # vLLM's
            step["set"] = merge(step.get("set", {}), change)
        elif step["name"] == "data":
            continue  # its files are there
        elif step["name"] == "bugs":  # the real maker, of a library of 30 lines
            library = tmp_path / "tally-1.0"
            write_tally(library)
            step["arguments"] = [str(library), *step["arguments"][-10:]]
            step["arguments"][step["arguments"].index("--total") + 1] = 2
        elif step["name"] == "student":
            step["arguments"] = [tiny, *step["arguments"][1:-1], 4096]
        else:
            step["arguments"] = [*JUDGE, *step["arguments"][1:]]
    run = made_once(content | {"steps": steps})
    entries = manifest(run)
    assert all("pass_at_1" in entry["scores"] for name, entry in entries.items() if "500_" in name)
    zero = read_records(run / "zero/responses.jsonl")
    assert zero
    bugs = read_records(Path("data/r1/bugs/tasks.jsonl"))
    sampled = {row["uid"] for row in read_records(run / "rejection/code/responses.jsonl")}
    assert len(bugs) == 2 and {bug["instance_id"] for bug in bugs} < sampled
    r1 = read_records(run / "rl_2/metrics.jsonl")
    assert r1[0]["train/reward/safe"] == 0.0 != r1[1]["train/reward/safe"]
    student = json.loads((run / "distilled/policy/config.json").read_text())
    assert student["max_position_embeddings"] == 4096
