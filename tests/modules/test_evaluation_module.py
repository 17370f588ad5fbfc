"""``r1lit test``: what is drawn, what is kept, what is said."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
from filelock import FileLock
from tiny import ROOT, data, save_policy
from tiny_evaluation import evaluation_config, lines, report, texts, write_problems

import r1lit.device.cpu.machine
from r1lit.cli import main


def change(**init_args: Any) -> dict[str, Any]:
    return {"model": {"init_args": init_args}}


def evaluate(folder: Path, policy: Path, *changes: dict[str, Any], num_problems: int = 4) -> Path:
    """Run an evaluation in ``folder``; return its run folder."""
    folder.mkdir(exist_ok=True)
    merged: dict[str, Any] = {}
    for part in changes:
        for name, value in part.items():
            init_args = merged.setdefault(name, {"init_args": {}})["init_args"]
            init_args.update(value["init_args"])
    main(["test", "-c", str(evaluation_config(folder, policy, merged, num_problems))])
    return folder / "run"


@pytest.fixture(scope="module")
def whole(tmp_path_factory, policy) -> Path:
    """An evaluation from beginning to end."""
    return evaluate(tmp_path_factory.mktemp("whole"), policy)


@pytest.mark.long
def test_chat_responses_without_tags_have_no_format_to_report(tmp_path, policy):
    chat = evaluate(tmp_path / "chat", policy, data(prompts={"template": "chat"}))
    assert report(chat)["eval_metrics"] == {}
    format_alone = change(eval_metrics=[{"class_path": "r1lit.rewards.Format"}])
    chat = evaluate(tmp_path / "asked", policy, data(prompts={"template": "chat"}),
                    format_alone)  # fmt: skip
    assert report(chat)["eval_metrics"] == {"format": 0.0}


@pytest.mark.long
def test_the_report_is_what_the_responses_add_up_to(whole):
    found, numbers = lines(whole), report(whole)
    by_uid: dict[str, list[bool]] = {}
    for line in found:
        by_uid.setdefault(line["uid"], []).append(line["value"] == 1.0)
    shares = [fmean(right) for right in by_uid.values()]
    assert [len(right) for right in by_uid.values()] == [4] * 4
    assert 0 < fmean(shares) < 1, "the test needs right and wrong responses"
    assert numbers["pass_at_1"]["value"] == pytest.approx(fmean(shares))
    assert numbers["pass_at_1"]["stderr"] == pytest.approx(stdev(shares) / 2)
    assert numbers["pass_at_k"]["1"]["value"] == pytest.approx(fmean(shares))
    assert numbers["pass_at_k"]["4"]["value"] == fmean(any(r) for r in by_uid.values())
    assert set(numbers["cons_at_k"]) == {"1", "2", "3", "4"}
    low, high = numbers["pass_at_1"]["low"], numbers["pass_at_1"]["high"]
    assert 0 <= low <= fmean(shares) <= high <= 1
    lengths = [line["num_tokens"] for line in found]
    assert numbers["response_length"]["mean"] == pytest.approx(fmean(lengths))
    assert numbers["response_length"]["max"] == max(lengths) == 8
    assert numbers["truncated"] == fmean(not line["finished"] for line in found)
    assert numbers["eval_metrics"]["format"] == 0
    assert numbers["verdicts"]["right"] == sum(map(sum, by_uid.values()))
    assert sum(numbers["verdicts"].values()) == 16
    settings = numbers["settings"]
    assert settings["seed"] == 0 and settings["k"] == 4 and settings["sampling"]["max_tokens"] == 8
    assert settings["commit"] and "torch" in settings["versions"]


@pytest.mark.long
def test_verdicts_that_are_none_are_counted(policy, tmp_path):
    tired = change(grader={"class_path": "tiny.TiredJudge"})
    cli = main(["test", "-c", str(evaluation_config(tmp_path, policy, tired))])
    statuses = [line["status"] for line in lines(tmp_path / "run")]
    for status in ("timeout", "error"):
        count = statuses.count(status)
        assert 0 < count < 16
        assert report(tmp_path / "run")["verdicts"][status] == count
        assert f"| verdict: {status} | {count} |" in (tmp_path / "run" / "report.md").read_text()
        logged = cli.trainer.callback_metrics[f"test/verifier/{status}"]
        assert float(logged) == pytest.approx(count / 16)


@pytest.mark.long
def test_a_response_depends_on_seed_problem_and_sample_alone(whole, policy, tmp_path):
    """Not on how many are drawn together, nor on k, nor on the other problems."""
    alone = {"class_path": "r1lit.rollout.InProcessEngine", "init_args": {"max_rows": 1}}
    small = evaluate(
        tmp_path / "a", policy, change(engine=alone), data(evaluation={"num_samples": 2})
    )
    expected = texts(whole)
    assert texts(small) == {name: text for name, text in expected.items() if name[1] < 2}
    two = evaluate(tmp_path / "b", policy, num_problems=2)
    assert texts(two).items() <= expected.items() and len(texts(two)) == 8
    assert len(set(expected.values())) > 8, "different samples differ"
    other = evaluate(tmp_path / "c", policy, {"model": {"init_args": {}}}, change(suite="other"))
    assert texts(other) == expected


@pytest.mark.long
def test_raising_k_draws_only_what_is_missing(whole, policy, tmp_path):
    run = evaluate(tmp_path, policy, data(evaluation={"num_samples": 2}))
    before = (run / "responses.jsonl").read_bytes()
    evaluate(tmp_path, policy)
    assert (run / "responses.jsonl").read_bytes().startswith(before)
    assert texts(run) == texts(whole)
    assert report(run)["pass_at_k"] == report(whole)["pass_at_k"]
    evaluate(tmp_path, policy, data(evaluation={"num_samples": 3}))  # nothing to draw
    assert report(run)["num_samples"] == 3 and len(lines(run)) == 16


def test_a_finished_evaluation_draws_nothing_again(whole, policy, tmp_path, monkeypatch):
    shutil.copytree(whole.parent, tmp_path, dirs_exist_ok=True)
    before = (tmp_path / "run" / "responses.jsonl").read_bytes()
    (tmp_path / "run" / "report.json").unlink()

    def refuse(engine: Any, requests: Any, on_finished: Any) -> None:
        assert not requests, "something is generated"

    monkeypatch.setattr("r1lit.rollout.in_process.InProcessEngine.stream", refuse)
    evaluate(tmp_path, policy)
    assert (tmp_path / "run" / "responses.jsonl").read_bytes() == before
    assert report(tmp_path / "run") == report(whole)


def test_responses_lost_in_a_kill_are_drawn_and_no_other(whole, policy, tmp_path):
    """Any prefix of the file, a torn last line too, is continued to the same responses."""
    shutil.copytree(whole.parent, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "run" / "responses.jsonl"
    content = path.read_bytes()
    cut = content.find(b"\n", len(content) // 2) + 20
    path.write_bytes(content[:cut])
    evaluate(tmp_path, policy)
    kept = content[: content.rfind(b"\n", 0, cut) + 1]
    assert path.read_bytes().startswith(kept)
    assert texts(tmp_path / "run") == texts(whole)
    assert report(tmp_path / "run")["pass_at_1"] == report(whole)["pass_at_1"]


@pytest.mark.slow
def test_a_killed_process_left_its_responses_and_is_continued(whole, policy, tmp_path):
    slow = change(grader={"class_path": "stand_ins.DigitJudge"}, engine="stand_ins.SlowEngine")
    config = evaluation_config(tmp_path, policy, slow)
    path = tmp_path / "run" / "responses.jsonl"
    code = "from r1lit.cli import main; import sys; main(sys.argv[1:])"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    with subprocess.Popen(
        [sys.executable, "-c", code, "test", "-c", str(config)],
        env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        started = time.monotonic()
        while not (path.is_file() and path.read_bytes().count(b"\n") >= 2):
            assert process.poll() is None and time.monotonic() - started < 120
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    left = path.read_bytes()
    assert 2 <= left.count(b"\n") < 16
    evaluate(tmp_path, policy, slow)
    assert path.read_bytes().startswith(left[: left.rfind(b"\n") + 1])
    assert texts(tmp_path / "run") == texts(whole)


@pytest.mark.long
def test_what_was_judged_before_a_failure_is_kept(whole, policy, tmp_path):
    failing = {"class_path": "stand_ins.DigitJudge", "init_args": {"limit": 9, "pause_s": 0.2}}
    few = {"class_path": "r1lit.rollout.InProcessEngine", "init_args": {"max_rows": 1}}
    with pytest.raises(ValueError, match="the grader has had enough"):
        evaluate(tmp_path, policy, change(grader=failing, engine=few))
    kept = texts(tmp_path / "run")
    assert 0 < len(kept) <= 9
    assert not (tmp_path / "run" / "report.json").exists()
    evaluate(tmp_path, policy)
    assert texts(tmp_path / "run") == texts(whole) and kept.items() <= texts(whole).items()


@pytest.mark.long
def test_a_full_disk_is_said_and_what_was_written_is_kept(whole, policy, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "responses.jsonl").symlink_to("/dev/full")
    with pytest.raises(ValueError, match=r"responses\.jsonl cannot be written \(No space left"):
        evaluate(tmp_path, policy)
    (run / "responses.jsonl").unlink()
    evaluate(tmp_path, policy)
    assert texts(run) == texts(whole)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (change(sampling={"temperature": 0.5, "max_tokens": 8}), "sampling was"),
        (change(suite="other"), "suite was sums and is other"),
        (data(prompts={"template": "question_answer"}), "another prompt of problem 'sums-0-"),
    ],
)
def test_another_evaluation_does_not_mix(whole, policy, tmp_path, changed, message):
    shutil.copytree(whole.parent, tmp_path, dirs_exist_ok=True)
    before = (tmp_path / "run" / "responses.jsonl").read_bytes()
    with pytest.raises(ValueError, match=message):
        evaluate(tmp_path, policy, changed)
    assert (tmp_path / "run" / "responses.jsonl").read_bytes() == before


@pytest.mark.long
@pytest.mark.parametrize(("fast", "dtype"), [(True, "bfloat16"), (False, "float32")])
def test_weights_are_of_the_dtype_that_the_machine_is_fast_in(
    policy, tmp_path, monkeypatch, fast, dtype
):
    monkeypatch.setattr(r1lit.device.cpu.machine, "has_fast_bfloat16", lambda: fast)
    evaluate(tmp_path, policy, change(policy={"dtype": None}), num_problems=1)
    assert report(tmp_path / "run")["settings"]["dtype"] == dtype


@pytest.mark.long
def test_a_retrained_policy_at_the_same_place_is_noticed(tmp_path):
    directory = save_policy(tmp_path / "policy", seed=1)
    evaluate(tmp_path, directory, data(evaluation={"num_samples": 1}))
    save_policy(directory, seed=2)
    with pytest.raises(ValueError, match="fingerprint was"):
        evaluate(tmp_path, directory, data(evaluation={"num_samples": 1}))


@pytest.mark.long
def test_two_processes_do_not_write_to_one_folder(policy, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    hold = "import sys, filelock; lock = filelock.FileLock(sys.argv[1]); lock.acquire()"
    command = [sys.executable, "-uc", f"{hold}; print('held'); input()", str(folder / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(ValueError, match="dirpath: another evaluation is writing to"):
            evaluate(tmp_path, policy, data(evaluation={"num_samples": 1}))
        assert not (folder / "responses.jsonl").exists()
        other.kill()
    evaluate(tmp_path, policy, data(evaluation={"num_samples": 1}))  # a killed process lets go
    assert (folder / "report.json").exists()
    with FileLock(folder / ".lock", timeout=0):  # and an evaluation that ended
        pass


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (change(by=["subject"]), "by: no problem of data.test has 'subject'"),
        (change(sampling={"max_tokens": 4096}), "max_tokens: 4096 after a prompt of"),
        (change(policy="./absent"), "the directory './absent' does not exist"),
        (change(eval_metrics=[{"class_path": "r1lit.rewards.Format"}] * 2), "two reward functions"),
    ],
)
def test_bad_input_is_named_before_anything_is_drawn(policy, tmp_path, changed, message):
    with pytest.raises(ValueError, match=message):
        evaluate(tmp_path, policy, changed)
    assert not (tmp_path / "run").exists()


@pytest.mark.long
def test_an_absent_suite_file_and_a_bad_line_in_it(policy, tmp_path):
    with pytest.raises(ValueError, match=r"absent\.yaml"):
        main(["test", "-c", str(tmp_path / "absent.yaml")])
    config = evaluation_config(tmp_path, policy)
    with pytest.raises(ValueError, match=r"there is no file '.*absent\.jsonl'"):
        main(["test", "-c", str(config), f"--data.test.path={tmp_path / 'absent.jsonl'}"])
    bad = write_problems(tmp_path / "bad.jsonl")
    good = bad.read_text()
    bad.write_text(good + "{\n")
    with pytest.raises(ValueError, match=r"line 5 of .* is not JSON"):
        main(["test", "-c", str(config), f"--data.test.path={bad}"])
    bad.write_text(good + '{"question": "x", "level": 1}\n')
    with pytest.raises(ValueError, match=r"answer: 1 of 5 rows of .* the first is row 5"):
        main(["test", "-c", str(config), f"--data.test.path={bad}"])
    assert not (tmp_path / "run").exists()


def test_a_corrupt_line_in_the_run_is_named(whole, policy, tmp_path):
    shutil.copytree(whole.parent, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "run" / "responses.jsonl"
    rows = path.read_text().splitlines()
    rows[2] = rows[2][:30]
    path.write_text("\n".join(rows) + "\n")
    with pytest.raises(ValueError, match=r"responses\.jsonl, line 3: not JSON"):
        evaluate(tmp_path, policy)


@pytest.mark.long
def test_predict_draws_for_rejection_sampling(whole, policy, tmp_path):
    config = evaluation_config(tmp_path, policy)
    text = config.read_text().replace("    test:\n", "    predict:\n")
    config.write_text(text)
    main(["predict", "-c", str(config)])
    assert texts(tmp_path / "run") == texts(whole)
    assert json.loads((tmp_path / "run" / "settings.json").read_text())["suite"] == "sums"


@pytest.mark.slow
def test_two_ranks_draw_what_one_draws(whole, policy, tmp_path):
    config = evaluation_config(tmp_path, policy)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    ddp = ["--trainer.devices=2", "--trainer.strategy=ddp"]
    command = [sys.executable, "-m", "r1lit.cli", "test", "-c", str(config), *ddp]
    subprocess.run(command, env=environment, check=True, timeout=300)
    assert texts(tmp_path / "run") == texts(whole)
    assert report(tmp_path / "run")["pass_at_k"] == report(whole)["pass_at_k"]


@pytest.mark.long
def test_it_says_where_the_results_lie(policy: Path, tmp_path: Path, capsys):
    run = evaluate(tmp_path, policy, num_problems=1)
    assert f"{run}: report.json, report.md, responses.jsonl" in capsys.readouterr().out


@pytest.mark.long
def test_a_report_is_titled_by_the_data_that_was_read(policy, tmp_path):
    table = {"path": str(write_problems(tmp_path / "own.jsonl", 1))}
    own = [{"class_path": "r1lit.data.TableProblems", "init_args": table}]
    run = evaluate(tmp_path, policy, change(suite=None), data(test=own))
    assert (run / "report.md").read_text().startswith("# own: ")
    assert report(run)["settings"]["suite"] == "own"
