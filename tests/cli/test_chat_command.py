"""``r1lit chat``: replies are the policy's, in the run's template, graded by the run's grader."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from rich.console import Console
from tiny import ROOT, grpo_config, model, save_policy, save_policy_that_ends
from transformers import AutoTokenizer

from r1lit.cli.chat import main, shown
from r1lit.cli.columns import Columns
from r1lit.cli.speaker import Speaker, Thinking
from r1lit.cli.trained import policy_of, run_of, trained
from r1lit.policy import load_policy
from r1lit.rollout import InProcessEngine, ModelSpec, Request, Sampling, texts_of
from r1lit.rollout.streaming import StreamingEngine, TextStream
from r1lit.text.prompts import encode_prompts, render


def make_run(folder: Path, policy: Path, *changes: dict[str, Any]) -> Path:
    """Make a run folder as a fit leaves it: its configuration and its policy."""
    config = yaml.safe_load(grpo_config(folder, policy, *changes).read_text())
    folder.mkdir(exist_ok=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    (folder / "policy").symlink_to(policy)
    return folder


@pytest.fixture
def run(tmp_path: Path, policy: Path) -> Path:
    return make_run(tmp_path / "run", policy)


@pytest.fixture
def say(monkeypatch, capsys):
    """Run the command on lines that come through a pipe; return its status and what it wrote."""

    def chat(*args: object, lines: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
        capsys.readouterr()
        status = main([str(arg) for arg in args])
        return status, *capsys.readouterr()

    return chat


def generated(policy: Path, question: str, seed: int, max_tokens: int = 8) -> str:
    """Return what training's engine generates of a question, in the run's template."""
    tokenizer = AutoTokenizer.from_pretrained(policy)
    engine = InProcessEngine(compile=False)
    loaded = load_policy(str(policy)).eval()
    engine.bind(ModelSpec(name="x", tokenizer=tokenizer, policy=loaded))
    (ids,) = encode_prompts(tokenizer, [render("small_world", question)])
    sampling = Sampling(max_tokens=max_tokens)
    request = Request(prompt=ids, samples=(0,), sampling=sampling, seed=seed)
    return texts_of(engine.generate([request]), tokenizer)[0]


def words(text: str) -> str:
    return " ".join(text.split())


def test_a_reply_is_the_policys_in_the_runs_template(say, run, policy):
    status, out, err = say(run, "--seed", 4, lines="Which numbers?\n/again\n")
    first, second = (generated(policy, "Which numbers?", seed) for seed in (4, 5))
    assert first != second and status == 0
    assert f"> Which numbers? {words(shown(first))} [" in words(out)
    assert f"> /again {words(shown(second))} [" in words(out)
    assert "template small_world" in err and "temperature 1, seed 4, at most 8 tokens" in err
    assert "one of 3 held-out problems (data.validation)" in err


def test_settings_are_set_and_shown(say, run, policy):
    lines = "/temperature 0\n/seed 9\n/tokens 3\nWhich?\n/seed 2\nWhich?\n"
    status, out, _ = say(run, lines=lines)
    assert status == 0 and "temperature 0, seed 9, at most 3 tokens" in out
    replies = re.findall(r"> Which\?\n(.*?)\n?\[.*?; temperature 0, seed (\d)\]", out, re.S)
    assert [seed for _, seed in replies] == ["9", "2"]
    assert replies[0][0] == replies[1][0]  # the likeliest tokens, whatever the seed


def test_a_problem_of_the_data_is_graded_by_the_runs_grader(say, tmp_path, policy):
    tired = model(grader={"class_path": "tiny.TiredJudge"})
    run = make_run(tmp_path / "tired", policy, tired)
    problem = trained(run).problems[1]
    lines = f"/problem 2\n{problem.question}\nAnother question?\n/problem\n"
    _, out, _ = say(run, lines=lines)
    assert "problem 2 of 3" in out and problem.question in out
    notes = re.findall(r"\[(.*?); .* tokens? in ", out)
    graded = [note for note in notes if note.startswith(("timeout", "error", "wrong"))]
    assert len(graded) == 3 and all("(tired)" in note for note in graded), out


def test_a_right_answer_is_called_right(run, policy):
    from r1lit.cli.speaker import Reply, Speaker

    found = trained(run)
    speaker = Speaker("run", str(policy), found)
    problem = found.problems[0]
    gold = found.grader.verifier_of(problem).gold_text(problem)
    reply = Reply(text=f"<answer> {gold} </answer>", num_tokens=3, finished=True, seconds=0, seed=0)
    assert speaker.verdict(reply, problem) == "right"


def test_two_are_asked_the_same_with_the_same_seed(say, run, policy, tmp_path):
    other = save_policy(tmp_path / "other", seed=5)
    _, out, _ = say(other, run, lines="Which?\n")
    replies = re.search(rf"{other}:\n(.*)\n\[.*{run}:\n(.*)\n\[", out, re.S)
    assert replies is not None, out
    assert words(replies[1]) == words(shown(generated(other, "Which?", 0)))  # the run's template
    assert words(replies[2]) == words(shown(generated(policy, "Which?", 0)))
    assert out.count("seed 0]") == 2


def test_a_conversation_goes_on_in_a_chat_template(say, run):
    lines = "First one\nSecond one\n/prompt\n/new\nThird one\n/prompt\n"
    _, out, _ = say(run, "--template", "chat", lines=lines)
    second, third = (part.split("> /")[0] for part in out.split("> /prompt\n")[1:])
    assert "First one" in second and "Second one" in second
    assert "Third one" in third and "Second" not in third
    _, out, _ = say(run, lines="First one\nSecond one\n/prompt\n")
    assert "First one" not in out.split("> /prompt\n")[1]


def test_a_question_may_have_several_lines(say, run):
    _, out, _ = say(run, lines="One \\\ntwo\n/prompt\n/quit\nnever asked\n")
    assert "User: One \ntwo" in out and "never asked" not in out


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("/probelm", "/probelm is no command; did you mean /problem?"),
        ("/problem 4", "/problem: '4' is not a whole number from 1 to 3"),
        ("/temperature hot", "temperature: 'hot' is no number"),
        ("/temperature -1", "temperature: -1.0 is not at least 0"),
        ("/tokens 0", "max_tokens: 0 is not at least 1"),
        ("/seed x", "/seed: 'x' is not a whole number from 0 on"),
        ("/again", "/again: nothing has been asked yet"),
        ("/prompt", "/prompt: nothing has been asked yet"),
        ("/new now", "/new: takes no value, and 'now' is given"),
        ("a" * 2000, "no room for a reply in the model's context of 256; ask a shorter question"),
    ],
)
def test_a_refused_line_is_one_line_and_the_next_one_is_read(say, run, line, words):
    status, out, err = say(run, lines=f"{line}\n/help\n")
    assert status == 2 and "/temperature T" in out
    (refusal,) = [x for x in err.splitlines() if x.startswith("r1lit chat: ")]
    assert words in refusal


def test_mistakes_on_the_command_line_name_what_would_be_right(tmp_path, run, policy, monkeypatch):
    (tmp_path / "empty").mkdir()
    unfinished = make_run(tmp_path / "unfinished", policy)
    (unfinished / "policy").unlink()
    changed = make_run(tmp_path / "changed", policy)
    text = (changed / "config.yaml").read_text()
    (changed / "config.yaml").write_text(text.replace("R1DataModule", "R2DataModule"))
    monkeypatch.chdir(tmp_path)
    for args, wanted in (
        (["none"], "run: none does not exist in "),
        (["run/non"], "run: run/non does not exist in "),
        (["empty"], "neither a run folder"),
        (["unfinished"], "has no policy folder yet; r1lit.callbacks.ExportHuggingFace"),
        (["changed"], "data of changed/config.yaml cannot be made"),
        (["run", "run", "run"], "3 are named"),
        (["run", "--template", "none"], "template: 'none' is neither one of"),
        (["run", "--sead", "1"], "unrecognized arguments: --sead 1; did you mean seed?"),
        ([], "the following arguments are required: RUN; r1lit chat --help"),
        (["."], "(no config.json); runs in it: changed, run, unfinished"),
    ):
        with pytest.raises(ValueError, match=re.escape(wanted)) as refusal:
            main(args)
        assert "\n" not in str(refusal.value)


def test_a_policy_folder_within_a_run_is_of_the_run(run, policy):
    assert policy_of(str(run)) == str(run / "policy")
    assert run_of(str(run / "policy")) == run.absolute()
    assert run_of(str(policy)) is None


def test_pieces_are_the_whole_text(policy):
    tokenizer = AutoTokenizer.from_pretrained(policy)
    text = "5 * 3 ~ 15, wait … Größe 漢字 🙂 end"
    stream = TextStream(tokenizer)
    pieces = [stream.add(token) for token in tokenizer(text, add_special_tokens=False)["input_ids"]]
    assert "".join(pieces) + stream.rest() == tokenizer.decode(
        tokenizer(text, add_special_tokens=False)["input_ids"], skip_special_tokens=True
    )
    assert sum(map(bool, pieces)) > 5


@pytest.mark.parametrize(("most", "threads"), [(20_000_000, 1), (10, 2)])
def test_a_small_policy_replies_on_one_thread(policy, monkeypatch, most, threads):
    monkeypatch.setattr("r1lit.cli.speaker.SMALL", most)
    speaker = Speaker("x", str(policy), None)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        seen = set[int]()
        sampling = Sampling(max_tokens=5)
        speaker.reply("1", None, sampling, 0, lambda *_: not seen.add(torch.get_num_threads()))
        assert seen == {threads} and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_reply_ends_where_the_reader_ends_it(policy):
    tokenizer = AutoTokenizer.from_pretrained(policy)
    engine = StreamingEngine()
    loaded = load_policy(str(policy)).eval()
    engine.bind(ModelSpec(name="x", tokenizer=tokenizer, policy=loaded))
    request = Request(prompt=(5, 6), samples=(0,), sampling=Sampling(max_tokens=50), seed=0)
    pieces: list[str] = []
    whole = engine.reply(request, lambda text: pieces.append(text) is None)
    assert "".join(pieces) == texts_of([whole], tokenizer)[0]
    assert whole.token_ids is not None and whole.num_tokens > 5
    left = iter(range(4))
    cut = engine.reply(request, lambda text: next(left, None) is not None)
    assert cut.token_ids is not None
    assert cut.token_ids.tolist() == whole.token_ids[:5].tolist()


def test_nothing_is_streamed_behind_the_end_token(tmp_path):
    policy = save_policy_that_ends(tmp_path / "ends")
    tokenizer = AutoTokenizer.from_pretrained(policy)
    engine = StreamingEngine()
    loaded = load_policy(str(policy)).eval()
    engine.bind(ModelSpec(name="x", tokenizer=tokenizer, policy=loaded))
    for seed in range(8):
        request = Request(prompt=(5, 6), samples=(0,), sampling=Sampling(max_tokens=50), seed=seed)
        pieces: list[str] = []
        reply = engine.reply(request, lambda text, into=pieces: into.append(text) is None)
        assert reply.finished and "".join(pieces) == texts_of([reply], tokenizer)[0]
        assert len(pieces) == reply.num_tokens + 1  # and the rest


def test_thinking_is_what_lies_between_its_tags():
    thinking = Thinking("User: x. Assistant:")
    pieces = (" ", "<th", "ink>", " so", "</think>", " 4")
    assert [thinking.add(text) for text in pieces] == [False, False, True, True, True, False]
    assert Thinking("<|assistant|><think>\n").add("so")


def test_columns_show_the_last_lines_and_then_all(monkeypatch):
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=60, height=14, color_system=None)
    with Columns(console, ["base", "trained"]) as columns:
        write = columns.write(1)
        for number in range(40):
            write(f"line {number}\n", False)
        live = Console(file=io.StringIO(), width=60, record=True)
        live.print(columns.table(5))
        columns.end(1, "[right]")
    text = live.export_text()
    assert "line 39" in text and "line 30" not in text
    last = file.getvalue()
    assert all(f"line {number}" in last for number in range(40)) and "[right]" in last


def test_text_cannot_steer_the_terminal():
    assert shown("a\x1b[2Jb\n\tc\x07\x9b") == "a�[2Jb\n\tc��"


@pytest.mark.long
def test_ctrl_c_ends_a_reply_and_ctrl_d_leaves(tmp_path, policy):
    """In a pseudo-terminal, as a user has it over ssh."""
    patient = shutil.copytree(policy, tmp_path / "patient")  # a reply of minutes
    config = json.loads((patient / "config.json").read_text())
    config["max_position_embeddings"] = 100_000
    (patient / "config.json").write_text(json.dumps(config))
    run = make_run(tmp_path / "run", patient)
    ours, theirs = pty.openpty()
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "100"}
    command = [sys.executable, "-m", "r1lit.cli", "chat", str(run), "--max_tokens", "90000"]
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    )
    os.close(theirs)
    seen = ""

    def wait_for(pattern: str, seconds: float = 90) -> None:
        nonlocal seen
        end = time.monotonic() + seconds
        while not re.search(pattern, seen):
            assert time.monotonic() < end, seen
            if select.select([ours], [], [], 1)[0]:
                seen += os.read(ours, 65536).decode(errors="replace")

    try:
        wait_for(r"\n.*> ")
        seen = ""
        os.write(ours, b"Which?\n")
        wait_for(r"Which\?\r\n[^\r]{3}")
        process.send_signal(signal.SIGINT)
        wait_for(r"\[interrupted; \d+ tokens in [\s\S]*> ")
        os.write(ours, b"\x04")
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_a_question_cannot_write_special_tokens(run, policy):
    from r1lit.cli.speaker import Speaker

    speaker = Speaker("run", str(policy), trained(run))
    end = speaker.tokenizer.eos_token
    assert speaker.tokenizer.eos_token_id not in speaker.ids_of(f"Which {end} numbers?")
    assert end in speaker.tokenizer.decode(list(speaker.ids_of(f"Which {end} numbers?")))
