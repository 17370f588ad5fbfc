"""``r1lit doctor``: faults of a training run, each with the evidence and the key to change.

    r1lit doctor runs/mine
    r1lit doctor runs/mine --rule clip      # one rule: what it looks at, and responses that show it
    r1lit doctor runs/mine --watch          # go on looking, and say each finding once
    r1lit doctor trl_output                 # trainer_state.json and completions of TRL's trainers

It reads ``config.yaml``, ``metrics.jsonl`` and, where they are, ``summary.json``,
``responses.jsonl`` and ``doctor.jsonl`` of a run folder. docs/TROUBLESHOOTING.md has the rules by
symptom. A rule whose numbers a run does not have stays silent, and is named as such. It exits with
1 if a rule applies, else with 0.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from r1lit.console import as_help
from r1lit.doctor.rule import Rule
from r1lit.doctor.rules import RULES, Finding, examined, unjudged
from r1lit.doctor.run import Run
from r1lit.doctor.trl import TRLRun, is_trl

NUM_EXAMPLES = 3
UNKNOWN_OF_TRL = """\
  TRL's logs: settings are not known (training_args.bin can run code and is not opened), nor
  verdicts, unless a reward function is named after accuracy or correctness"""


def read(folder: Path) -> Run:
    """Return the run of a folder, of r1lit or of TRL.

    Raises:
        ValueError: if the folder has neither's files.
    """
    return TRLRun(folder) if is_trl(folder) else Run(folder)


def main(args: Sequence[str] | None = None) -> int:
    """Print the findings of a run; return 1 if there are any."""
    parser = argparse.ArgumentParser(prog="r1lit doctor", description=as_help(__doc__))
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("run", type=Path, help="a run folder of r1lit fit, or TRL's output folder")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rule", metavar="NAME", help="look at one rule closely")
    parser.add_argument("--watch", action="store_true", help="look again until Ctrl-C")
    parser.add_argument("--every", type=float, default=30.0, help="seconds between two looks")
    options = parser.parse_args(args)
    if options.watch:
        return watch(options.run, options.every)
    run = read(options.run)
    if options.rule is not None:
        return look_closely(run, options.rule)
    found = examined(run)
    if options.json:
        print(json.dumps(as_record(run, found), indent=1))
        return int(bool(found))
    print(summary(run))
    if run.kind == "TRL":
        print(UNKNOWN_OF_TRL)
    for finding in found:
        print(f"\n{run.translated(as_text(finding))}")
    if not found:
        print(f"no rule of {len(RULES)} applies")
    say_what_is_unknown(run)
    return int(bool(found))


def summary(run: Run) -> str:
    """Return how much of a run there is to look at."""
    of = Counter("training" if x.get("split") == "train" else "evaluations" for x in run.lines)
    recorded = ", ".join(f"{num:,} of {name}" for name, num in sorted(of.items(), reverse=True))
    iterations = f"{run.folder}: {len(run.metrics)} iterations"
    return f"{iterations}; recorded responses: {recorded or 'none'}"


def as_text(finding: Finding) -> str:
    """Return a finding in five lines."""
    rule = finding.rule
    return (
        f"{rule.name}: {rule.meaning}\n  seen    {finding.evidence}\n  since   {finding.since}\n"
        f"  change  {rule.change}\n  see     {rule.link}"
    )


def as_record(run: Run, found: list[Finding]) -> dict[str, object]:
    """Return the findings for other programs."""
    rows = [
        {
            "rule": finding.rule.name,
            "evidence": run.translated(finding.evidence),
            "meaning": finding.rule.meaning,
            "change": run.translated(finding.rule.change),
            "began": finding.began,
            "see": finding.rule.link,
        }
        for finding in found
    ]
    return {"run": str(run.folder), "findings": rows, "not_judged": unjudged(run)}


def say_what_is_unknown(run: Run) -> None:
    """Print which rules had nothing to look at, and what they would need."""
    lacking = unjudged(run)
    if not lacking:
        return
    needed = sorted({key for keys in lacking.values() for key in keys})
    print(f"\nnot judged, for want of what they look at: {', '.join(lacking)}")
    print(f"  missing: {', '.join(needed)}")


def look_closely(run: Run, name: str) -> int:
    """Print a rule's observations, whether it applies, and responses that show it.

    Raises:
        ValueError: if there is no such rule.
    """
    rule = next((rule for rule in RULES if rule.name == name), None)
    if rule is None:
        raise ValueError(f"--rule: {name!r} is none; there are {', '.join(r.name for r in RULES)}")
    alone = run.until(len(run.metrics))
    evidence = rule.see(alone)
    seen = f"seen    {evidence}" if evidence else "does not apply"
    lines = [f"{rule.name}: {rule.meaning}", f"  {seen}", f"  change  {rule.change}"]
    lines.append(f"  see     {rule.link}")
    for key, there in sorted(alone.asked.items()):
        if "/" in key:
            lines.append(f"  {key}: {series(run, key) if there else 'not logged'}")
        elif not there:
            lines.append(f"  {key}: missing")
    print("\n".join(map(run.translated, lines)))
    for line in showing(run, rule):
        print(f"\niteration {line.get('iteration')}, {line.get('uid')}, {line.get('status')}:")
        print(line["response"])
    return int(evidence is not None)


def showing(run: Run, rule: Rule) -> list[dict[str, object]]:
    """Return the first responses that show what a rule is about."""
    shows = rule.shows
    return [] if shows is None else [x for x in run.responses if shows(x)][:NUM_EXAMPLES]


def series(run: Run, key: str, most: int = 10) -> str:
    """Return a metric's numbers, some of them where there are many."""
    values = run.values(key)
    step = max(1, -(-len(values) // most))
    return " ".join(f"{value:.3g}" for value in values[::step])


def watch(folder: Path, every_s: float) -> int:
    """Look at a run again and again, and print each finding once, until Ctrl-C or its last line."""
    said: set[str] = set()
    print(f"{folder}: a look every {every_s:g} s; Ctrl-C ends", flush=True)
    try:
        while True:
            done = look_once(folder, said)
            if done:
                break
            time.sleep(every_s)
    except KeyboardInterrupt:
        pass
    return int(bool(said))


def look_once(folder: Path, said: set[str]) -> bool:
    """Print the findings that are not in ``said``, and put them there; return whether it ended."""
    try:
        run = read(folder)
    except ValueError:  # no iteration is finished yet
        return False
    for finding in examined(run):
        if finding.rule.name not in said:
            said.add(finding.rule.name)
            print(
                f"\n{len(run.metrics)} iterations: {run.translated(as_text(finding))}", flush=True
            )
    planned = run.setting("data.num_iterations")
    return planned is not None and len(run.metrics) >= planned
