"""The display of a pipeline's run: a tree of its steps on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from experiments.pipeline import Step
from r1lit.callbacks.progress import as_clock

SHOWN = (
    "reasoning_pass_at_1", "pass_at_1", "pair_accuracy", "auroc", "loss", "format", "kept",
    "response_length_tokens",
)  # fmt: skip
MARKS = {
    "waiting": ("·", "dim"),
    "left out": ("-", "dim"),
    "running": ("▶", "bold cyan"),
    "finished": ("✓", "green"),
    "unchanged": ("✓", "dim green"),
    "failed": ("✗", "bold red"),
    "interrupted": ("!", "yellow"),
}


@dataclass
class Row:
    """What is shown of a step."""

    step: Step
    state: str = "waiting"
    seconds: float | None = None
    score: str = ""
    share: float | None = None
    status: str = ""


def as_score(scores: dict[str, float]) -> str:
    """Return the number a step is known by, first.

    >>> as_score({"pass_at_1": 0.51, "pass_at_1_stderr": 0.02, "loss": 1.0})
    'pass_at_1 0.510 ± 0.020'
    """
    names = [name for name in SHOWN if name in scores] or sorted(scores)
    if not names:
        return ""
    name = names[0]
    for error in (f"{name}_stderr", f"{name}_se"):
        if error in scores:
            return f"{name} {scores[name]:.3f} ± {scores[error]:.3f}"
    return f"{name} {scores[name]:.4g}"


class Display:
    """Keeps one row a step; a context in which the tree is alive.

    Args:
        steps: all steps of the pipeline.
        console: where; standard output if left out.
    """

    def __init__(self, steps: Sequence[Step], console: Console | None = None) -> None:
        self.rows = {step.name: Row(step) for step in steps}
        self.console = console or Console(file=sys.stdout)
        self.live = Live(
            get_renderable=self.tree, console=self.console, auto_refresh=False, transient=False
        )
        self.plain = not self.console.is_terminal

    def __enter__(self) -> Display:
        if not self.plain:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self.plain:
            self.live.stop()

    def say(self, text: str) -> None:
        """Print a line, above the tree where there is one."""
        self.console.print(Text(text), soft_wrap=True)

    def change(self, name: str, state: str, *, why: str = "") -> None:
        """Show a step in another state, with a line that says so."""
        row = self.rows[name]
        row.state = state
        index = list(self.rows).index(name) + 1
        parts = [f"[{index}/{len(self.rows)}] {row.step.stage} / {name}: {state}"]
        if row.seconds is not None and state != "running":
            parts.append(as_clock(row.seconds))
        parts += [part for part in (row.score, why) if part]
        if self.plain or why:
            self.say("  ".join(parts))
        self.refresh()

    def refresh(self) -> None:
        """Draw the tree anew."""
        if not self.plain:
            self.live.refresh()

    def tree(self) -> Tree:
        """Return stages with their steps."""
        tree = Tree("R1", guide_style="dim")
        stage, table = None, Table.grid()
        for row in self.rows.values():
            if row.step.stage != stage:
                stage = row.step.stage
                table = Table.grid(padding=(0, 2))
                tree.add(Text(stage, style="bold")).add(table)
            mark, style = MARKS[row.state]
            seconds = "" if row.seconds is None else as_clock(row.seconds)
            bar: ProgressBar | Text = Text(row.score)
            if row.state == "running" and row.share is not None:
                bar = ProgressBar(total=1.0, completed=row.share, width=24)
            status = row.status if row.state == "running" else ""
            table.add_row(
                Text(mark, style=style), row.step.name, Text(row.state, style=style),
                Text(seconds, justify="right"), bar, Text(status, style="dim"),
            )  # fmt: skip
        return tree
