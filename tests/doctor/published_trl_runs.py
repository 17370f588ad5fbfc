"""Published logs of TRL's GRPOTrainer, transcribed from public repositories.

``published_trl_runs.jsonl`` has a line a run: where it is from, which of its entries are kept, the
trainer's state as far as the reader looks at it, the numbers that rules may read, rounded to five
digits, and ``note``, what a person saw in them before the doctor was asked.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

LINES = Path(__file__).with_suffix(".jsonl")


def published() -> dict[str, dict[str, Any]]:
    """Return each run's line, by the name of its repository."""
    lines = [json.loads(line) for line in LINES.read_text().splitlines()]
    return {line["repo"].split("/")[1]: line for line in lines}


def written(line: dict[str, Any], folder: Path) -> Path:
    """Return a folder with the ``trainer_state.json`` of a run."""
    history = [
        line["constants"] | dict(zip(line["columns"], row, strict=True)) for row in line["rows"]
    ]
    (folder / "trainer_state.json").write_text(json.dumps(line["state"] | {"log_history": history}))
    return folder
