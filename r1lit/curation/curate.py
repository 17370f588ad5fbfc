"""Curation: from ``responses.jsonl`` to ``sft.jsonl``, ``dropped.jsonl`` and the card, streamed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TextIO

from tqdm.auto import tqdm

from r1lit.batches import Problem
from r1lit.curation.candidate import Candidate, Context, Filter
from r1lit.curation.card import CurationStats
from r1lit.curation.curation import Curation
from r1lit.files import Record, absent, parse_line
from r1lit.verifiers import Grader


class ResponseFile:
    """The responses of an evaluation's ``responses.jsonl``, problem by problem.

    Lines stand in the order in which responses finished, which differs from run to run. One pass
    notes where each line begins (a few numbers a response); a problem's lines are read from there.

    Args:
        path: the file.
        problems: whose responses to read.
        num_samples: how many of each, from sample 0.
        show_progress: whether a bar is shown on stderr.

    Raises:
        ValueError: if a line is no record, or a response is missing.
    """

    def __init__(
        self,
        path: Path,
        problems: Sequence[Problem],
        num_samples: int,
        show_progress: bool = False,
    ) -> None:
        self.path = path
        if not path.is_file():
            raise ValueError(f"dirpath: {absent(path)}; generate responses first")
        self._starts: dict[str, dict[int, int]] = {problem.uid: {} for problem in problems}
        start = 0
        with path.open("rb") as file:
            bar = tqdm(file, desc="reading", unit="response", disable=not show_progress)
            for number, line in enumerate(bar, start=1):
                if not line.endswith(b"\n"):
                    break
                record = parse_line(line, number, f"dirpath: {path}")
                samples = self._starts.get(record["uid"])
                if samples is not None and record["sample"] < num_samples:
                    samples.setdefault(record["sample"], start)
                start += len(line)
        missing = sum(num_samples - len(found) for found in self._starts.values())
        if missing:
            raise ValueError(f"dirpath: {path} lacks {missing} responses; run again")
        self._file = path.open("rb")

    def __len__(self) -> int:
        return sum(map(len, self._starts.values()))

    def __enter__(self) -> ResponseFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def of(self, problem: Problem) -> Iterator[Record]:
        """Yield the responses to one problem by sample."""
        for _, start in sorted(self._starts[problem.uid].items()):
            self._file.seek(start)
            yield parse_line(self._file.readline(), 0, f"dirpath: {self.path}")


CHUNK = 1024  # responses in memory at a time, or those of one problem
SHORT = 400  # characters of a dropped response that are kept to be read


def curate(
    curation: Curation,
    responses: Path,
    problems: Sequence[Problem],
    num_samples: int,
    grader: Grader,
    context: Context,
    show_progress: bool = False,
) -> CurationStats:
    """Write ``sft.jsonl`` and ``dropped.jsonl`` into ``context.folder``; return statistics.

    Every response is in one of the two files, in the order of problems and samples: the same
    responses give the same bytes, in whatever order they finished. A kill leaves the files of an
    earlier run as they were. Memory grows by a few numbers a response.

    Raises:
        ValueError: if a response is missing or a file cannot be written.
    """
    stats = CurationStats(curation)
    run = _Run(curation, grader, context, stats)
    curation.begin(context)
    with ResponseFile(responses, problems, num_samples, show_progress) as file:
        bar = tqdm(total=len(file), desc="curating", unit="response", disable=not show_progress)
        with bar, _Output(context.folder, "sft.jsonl", "dropped.jsonl") as (kept, dropped):
            for candidates in _chunks(file, problems):
                run.chunk(candidates, kept, dropped)
                bar.update(len(candidates))
    assert stats.num_kept + stats.num_dropped == stats.num_generated
    return stats


def _chunks(file: ResponseFile, problems: Sequence[Problem]) -> Iterator[list[Candidate]]:
    chunk: list[Candidate] = []
    for problem in problems:
        chunk += [
            Candidate(
                problem=problem,
                sample=record["sample"],
                text=record["response"],
                status=record["status"],
                reason=record["reason"],
                num_tokens=record["num_tokens"],
                finished=record["finished"],
                turns=tuple(record.get("turns") or ()),
                num_invalid=record.get("num_invalid", 0),
            )
            for record in file.of(problem)
        ]
        if len(chunk) >= CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


class _Output:
    """Writes files atomically: they get their names when all of them are complete."""

    def __init__(self, folder: Path, *names: str) -> None:
        self._folder = folder
        self._names = names
        self._files: list[TextIO] = []

    def __enter__(self) -> list[TextIO]:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            for name in self._names:
                path = self._folder / f".{name}.tmp"
                self._files.append(path.open("w", encoding="utf-8", errors="backslashreplace"))
        except OSError as error:
            raise ValueError(
                f"dirpath: {self._folder} cannot be written ({error.strerror})"
            ) from error
        return self._files

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        for file in self._files:
            file.close()
        for name in self._names if kind is None else ():
            os.replace(self._folder / f".{name}.tmp", self._folder / name)


class _Run:
    """Curates one chunk: cut, filter, refine, grade and filter again, write."""

    def __init__(
        self, curation: Curation, grader: Grader, context: Context, stats: CurationStats
    ) -> None:
        self.curation = curation
        self.grader = grader
        self.tokenizer = context.model.tokenizer
        self.opening = context.opening
        self.stats = stats
        self.again = [filter_ for filter_ in curation.filters if filter_.again]
        self.dropped: dict[tuple[str, int], tuple[str, str, str, str]] = {}

    def chunk(self, candidates: list[Candidate], kept: TextIO, dropped: TextIO) -> None:
        self.dropped = {}
        for candidate in candidates:
            self.stats.count_generated(candidate)
        left = self._regrade(candidates, [self._cut(c.text) for c in candidates])
        left = self._filtered(left, self.curation.filters, "generated")
        if self.curation.refiners:
            before = {candidate_id(c): c.text for c in left}
            refined = self._refined(left)
            changed = [c for c in refined if c.text != before[candidate_id(c)]]
            self._filtered(changed, self.again, "refined")
            left = [c for c in refined if candidate_id(c) not in self.dropped]
        left = [self._written(c) for c in left if self._has_summary(c)]
        left = self._filtered(left, self.curation.final_filters, "final")
        for candidate in left:
            self.stats.count_kept(candidate)
            _write(kept, self._kept_line(candidate))
        for candidate in candidates:
            if candidate_id(candidate) in self.dropped:
                _write(dropped, self._dropped_line(candidate))

    def _cut(self, text: str) -> str:
        ends = [at for at in map(text.find, self.curation.cut) if at >= 0]
        return text[: min(ends)].rstrip() if ends else text

    def _regrade(self, candidates: Sequence[Candidate], texts: Sequence[str]) -> list[Candidate]:
        """Return the candidates with new texts, graded again where the text changed."""
        result = list(candidates)
        rows = [row for row, text in enumerate(texts) if text != candidates[row].text]
        verdicts = self.grader.verdicts(
            [texts[row] for row in rows], [candidates[row].problem for row in rows]
        )
        for row, verdict in zip(rows, verdicts, strict=True):
            result[row] = replace(
                candidates[row], text=texts[row], status=verdict.status, reason=verdict.reason
            )
        return result

    def _filtered(
        self, candidates: list[Candidate], filters: Sequence[Filter], stage: str
    ) -> list[Candidate]:
        for filter_ in filters:
            whys = filter_.drop(candidates)
            self.stats.count_input(
                stage, filter_.name, [c for c in candidates if filter_.applies(c)]
            )
            for candidate, why in zip(candidates, whys, strict=True):
                if why is not None:
                    self._drop(candidate, stage, filter_.name, why)
            candidates = [c for c, why in zip(candidates, whys, strict=True) if why is None]
        return candidates

    def _refined(self, candidates: list[Candidate]) -> list[Candidate]:
        texts = {candidate_id(c): c.text for c in candidates}
        for refiner in self.curation.refiners:
            mine = [c for c in candidates if refiner.applies(c)]
            names = [candidate_id(c) for c in mine]
            refined = refiner.refine([c.problem for c in mine], [texts[name] for name in names])
            self.stats.count_input("refined", type(refiner).__name__, mine)
            for candidate, name, made in zip(mine, names, refined, strict=True):
                if made.text:
                    texts[name] = made.text
                else:
                    self._drop(candidate, "refined", type(refiner).__name__, made.why)
            candidates = [c for c in candidates if candidate_id(c) not in self.dropped]
        return self._regrade(candidates, [texts[candidate_id(c)] for c in candidates])

    def _has_summary(self, candidate: Candidate) -> bool:
        self.stats.count_input("final", "no_summary", [candidate])
        if not candidate.summary:
            self._drop(candidate, "final", "no_summary", "nothing follows the thinking")
        return bool(candidate.summary)

    def _written(self, candidate: Candidate) -> Candidate:
        """Return the candidate with the length of the text to train on; an episode's stays."""
        if candidate.turns:
            return candidate
        written = self.curation.response_template.write(candidate.thinking, candidate.summary)
        ids = self.tokenizer(written, add_special_tokens=False, verbose=False)["input_ids"]
        return replace(candidate, num_tokens=len(ids) + 1)

    def _drop(self, candidate: Candidate, stage: str, name: str, why: str) -> None:
        text = candidate.text
        self.dropped[candidate_id(candidate)] = (stage, name, why, text)
        self.stats.count_dropped(stage, name, candidate)

    def _kept_line(self, candidate: Candidate) -> dict[str, object]:
        thinking, summary = candidate.parts
        if candidate.turns:
            return {**_names(candidate), **self._episode(candidate)}
        return {
            **_names(candidate),
            "prompt": candidate.problem.question,
            "thinking": thinking,
            "summary": summary,
            "response": self.curation.response_template.write(thinking, summary),
            "num_tokens": candidate.num_tokens,
        }

    def _episode(self, candidate: Candidate) -> dict[str, object]:
        """Return the messages of an episode, turns as the model wrote them, and its tools."""
        assert self.opening is not None, "what made episodes knows how they begin"
        before = self.opening(candidate.problem)
        turns = [
            {key: m[key] for key in ("role", "name", "content") if key in m}
            for m in candidate.turns
        ]
        return {
            "messages": [*before.messages, *turns],
            "tools": json.loads(before.tools_text),
            "answer": candidate.text,
            "num_tokens": candidate.num_tokens,
        }

    def _dropped_line(self, candidate: Candidate) -> dict[str, object]:
        stage, name, why, text = self.dropped[candidate_id(candidate)]
        return {
            **_names(candidate),
            "stage": stage,
            "filter": name,
            "why": why,
            "num_tokens": candidate.num_tokens,
            "text": shortened(text),
        }


def candidate_id(candidate: Candidate) -> tuple[str, int]:
    """Return the key of a candidate: problem and sample."""
    return candidate.problem.uid, candidate.sample


def _names(candidate: Candidate) -> dict[str, object]:
    return {
        "uid": candidate.problem.uid,
        "sample": candidate.sample,
        "source": candidate.problem.source,
        "kind": candidate.kind,
        "language": candidate.language,
    }


def shortened(text: str, length: int = SHORT) -> str:
    """Return the beginning and the end of a long text."""
    if len(text) <= length:
        return text
    half = length // 2
    return f"{text[:half]} […] {text[-half:]}"


def _write(file: TextIO, line: dict[str, object]) -> None:
    file.write(json.dumps(line, ensure_ascii=False) + "\n")
