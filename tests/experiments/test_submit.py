"""A sweep on a cluster: its points are the tasks of an array, in processes of their own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tiny_sweep import variant

from experiments import submit
from experiments.__main__ import main
from r1lit.files import read_records


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--cluster", "local"], "--cluster and --job are for --launcher submitit"),
        (["--launcher", "submitit", "--cluster", "moon"], "--cluster: moon: "),
        (["--launcher", "submitit", "--cluster", "slurm"], "--cluster: slurm: "),
        (["--launcher", "submitit", "--job", "600"], "--job: '600' is not KEY=VALUE"),
        (["--launcher", "submitit", "--cluster", "local", "--job", "color=red"], "--job: "),
        (["--launcher", "submitit", "--cluster", "local", "--job", "timeout_min=ten"], "--job: "),
    ],
)
def test_bad_input_is_one_line_before_anything_is_submitted(
    sweep_file, tmp_path, capsys, options, says
):
    assert main([str(sweep_file()), *options]) == 2
    [line] = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("experiments: error: ") and says in line
    assert not list((tmp_path / "out").glob("[!.]*"))


@pytest.mark.long
def test_without_submitit_the_extra_is_named(sweep_file, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "submitit", None)
    assert main([str(sweep_file()), "--launcher", "submitit"]) == 2
    assert "submitit is not installed; pip install 'r1lit[sweep]'" in capsys.readouterr().err


@pytest.mark.slow
def test_points_are_tasks_and_only_what_is_unfinished_is_submitted_again(
    sweep_file, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("SLURM_NTASKS", "2")  # of a job; Lightning would wait for the other rank
    monkeypatch.setenv("SLURM_PROCID", "1")
    options = ["--launcher", "submitit", "--cluster", "local"]
    bad = {"model": {"init_args": {"policy": {"path": "no/such/policy"}}}}
    grid = {"objective": {"grpo": variant("GRPO"), "bad": bad}}
    assert main([str(sweep_file(seeds=[0], grid=grid)), *options]) == 1
    out = capsys.readouterr().out
    assert "2 points: 0 finished, 0 running, 2 to submit" in out
    assert "bad seed 0  FAILED: " in out and "no/such/policy" in out
    [result] = read_records(tmp_path / "out" / "results.jsonl")
    assert result["variant"] == "grpo"
    assert [e["iteration"] for e in result["evaluations"]] == [0, 1, 2]
    readme = (tmp_path / "out" / "README.md").read_text()
    assert "1 of 2 runs finished" in readme and "no/such/policy" in readme

    mended = {"objective": {**grid["objective"], "bad": variant("DrGRPO", max_tokens=8)}}
    assert main([str(sweep_file(seeds=[0], grid=mended)), *options]) == 0
    assert "2 points: 1 finished, 0 running, 1 to submit" in capsys.readouterr().out
    results = read_records(tmp_path / "out" / "results.jsonl")
    assert [r["variant"] for r in results] == ["grpo", "bad"] and results[0] == result


SLURM = {
    # starts the tasks of the array that the script asks for, each as SLURM would
    "sbatch": """
        array=$(sed -n 's/^#SBATCH --array=0-\\([0-9]*\\)%.*/\\1/p' "$1")
        for task in $(seq 0 "$array"); do
            SLURM_JOB_ID=$((77 + task)) SLURM_ARRAY_JOB_ID=77 SLURM_ARRAY_TASK_ID=$task \\
            SLURM_JOB_NAME=sweep SLURM_JOB_NUM_NODES=1 SLURM_NTASKS=2 SLURM_PROCID=0 \\
            SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_JOB_NODELIST=here \\
                setsid bash "$1" > /dev/null 2>&1 < /dev/null &
        done
        echo Submitted batch job 77
    """,
    "srun": """
        while [ "${1#--}" != "$1" ]; do
            case $1 in --output) out=$2; shift;; --error) err=$2; shift;; esac
            shift
        done
        name=77_$SLURM_ARRAY_TASK_ID
        name() { echo "$1" | sed "s/%A/77/g; s/%a/$SLURM_ARRAY_TASK_ID/g; s/%t/0/g"; }
        exec "$@" > "$(name "$out")" 2> "$(name "$err")"
    """,
    "sacct": """
        echo 'JobID|State'
        echo '77_0|RUNNING'
        echo '77_1|RUNNING'
    """,
}
"""Stand-ins for SLURM's commands, which no machine of the tests has."""


@pytest.mark.slow
def test_tasks_of_an_earlier_start_are_waited_for(sweep_file, tmp_path, capsys, monkeypatch):
    for name, script in SLURM.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/bash\n{script}")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path / "bin"), os.environ["PATH"]]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    arguments = [str(sweep_file(seeds=[0])), "--launcher", "submitit"]

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(submit.time, "sleep", stop)  # Ctrl-C, once all is submitted
        assert main(arguments) == 130
    assert "0 finished, 0 running, 2 to submit" in capsys.readouterr().out

    sweep_file(seeds=[0], grid={"objective": {"grpo": variant("DAPO")}})
    assert main(arguments) == 2
    assert "job 77_0 still makes it as the sweep file was before" in capsys.readouterr().err

    sweep_file(seeds=[0])
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "0 finished, 2 running, 0 to submit" in out
    assert "job 77_0  grpo seed 0  pass@1" in out and "job 77_1  dr seed 0  pass@1" in out
    assert len(read_records(tmp_path / "out" / "results.jsonl")) == 2
    markers = sorted(Path(tmp_path, "out").glob("*/.seed-0.job"))
    assert [path.read_text() for path in markers] == ["77_1", "77_0"]
