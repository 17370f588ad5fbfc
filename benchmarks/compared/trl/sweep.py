"""Two objectives under two seeds, and their mean reward at the end with its standard error."""

import json
import statistics
import subprocess
import sys
from pathlib import Path

for objective in ("dr_grpo", "dapo"):
    rewards = []
    for seed in (0, 1):
        run = f"runs/sweep/{objective}/{seed}"
        command = [sys.executable, "own_problems.py", "--config", "grpo.yaml", *sys.argv[1:]]
        command += ["--loss_type", objective, "--seed", str(seed), "--output_dir", run]
        subprocess.run(command, check=True)
        [state] = sorted(Path(run).glob("checkpoint-*/trainer_state.json"))[-1:]
        history = json.loads(state.read_text())["log_history"]
        rewards.append([line["reward"] for line in history if "reward" in line][-1])
    error = statistics.stdev(rewards) / len(rewards) ** 0.5
    print(f"{objective}: reward {statistics.mean(rewards):.3f} ± {error:.3f}")
