"""The input of ``r1lit-score``: a line of JSON as a problem and a response."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from r1lit.problems import LETTERS, Problem, inputs_and_outputs

NEEDS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "math": (("answer",),),
    "functional_code": (("test", "tests"),),
    "stdin_code": (("tests",),),
    "choice": (("answer",), ("choices",)),
    "exact": (("answer",),),
    "countdown": (("numbers",), ("target",)),
    "game24": (("numbers",),),
    "logic": (("names",), ("statements",)),
    "ifeval_strict": (("instruction_id_list",), ("kwargs",)),
    "ifeval_loose": (("instruction_id_list",), ("kwargs",)),
    "none": (),
}
"""Keys that a line must have for each verifier; of several in one tuple, any one."""

_DEFINES_CHECK = re.compile(r"^def +check\b", re.MULTILINE)
_CALLS_CHECK = re.compile(r"^check *\(", re.MULTILINE)


def problem_of(record: Mapping[str, Any], verifier: str, uid: str, source: str) -> Problem:
    """Return the problem a line describes; ``meta`` holds all its keys but ``response``.

    ``answer`` may be a text or a number (72.0 is "72"); with ``choices`` also the index of one.

    Raises:
        ValueError: naming the key that is missing or holds what the verifier cannot use.
    """
    for keys in NEEDS.get(verifier, ()):
        if not any(record.get(key) is not None for key in keys):
            raise ValueError(
                f"key {' or '.join(map(repr, keys))} is missing, which {verifier} needs"
            )
    question = record.get("question", record.get("prompt"))
    meta = {key: value for key, value in record.items() if key != "response"}
    if verifier == "functional_code":
        meta = _functional(meta)
    if verifier == "stdin_code":
        meta["tests"] = inputs_and_outputs(meta["tests"])
    if verifier == "choice" and isinstance(record.get("answer"), int):
        meta["answer_form"] = "letter"
    return Problem(
        uid=str(record.get("uid", uid)),
        question=question if isinstance(question, str) else "",
        answer=_answer(record, verifier),
        source=source,
        verifier=verifier,
        meta=meta,
    )


def _functional(meta: dict[str, Any]) -> dict[str, Any]:
    """Return the meta of functional tests under the verifier's keys.

    A list or text of asserts becomes ``tests``, whichever of the two keys it had. Source that
    defines ``check`` without calling it becomes ``test`` and needs ``entry_point``; without
    ``prompt``, the beginning of the program, the response must hold all of it.
    """
    given = meta.get("tests") if meta.get("test") is None else meta["test"]
    source = "\n".join(map(str, given)) if isinstance(given, list) else str(given)
    if not _DEFINES_CHECK.search(source) or _CALLS_CHECK.search(source):
        tests = [given] if isinstance(given, str) else given
        return {**{key: value for key, value in meta.items() if key != "test"}, "tests": tests}
    entry_point = meta.get("entry_point")
    if not isinstance(entry_point, str):
        raise ValueError("key 'entry_point' is missing, which a test that defines check needs")
    if not isinstance(meta.get("prompt"), str):
        meta["prompt"] = f"def {entry_point}(*args, **kwargs):\n"
    return {**meta, "test": source}


def response_of(record: Mapping[str, Any]) -> str:
    """Return the response of a line.

    Raises:
        ValueError: if it is missing or no text.
    """
    if "response" not in record:
        raise ValueError("key 'response' is missing")
    response = record["response"]
    if not isinstance(response, str):
        raise ValueError(f"key 'response' holds {type(response).__name__}, where text is needed")
    return response


def _answer(record: Mapping[str, Any], verifier: str) -> str:
    answer = record.get("answer")
    needed = any("answer" in keys for keys in NEEDS.get(verifier, ()))
    if verifier == "choice" and isinstance(answer, int) and not isinstance(answer, bool):
        choices = record.get("choices")
        count = len(choices) if isinstance(choices, list) else len(LETTERS)
        if not 0 <= answer < min(count, len(LETTERS)):
            raise ValueError(f"key 'answer' is {answer}, which is no index into {count} choices")
        return LETTERS[answer]
    if isinstance(answer, str) and (answer.strip() or not needed):
        return answer
    if isinstance(answer, int) and not isinstance(answer, bool):
        return str(answer)
    if isinstance(answer, float) and math.isfinite(answer):
        return str(int(answer)) if answer == int(answer) else repr(answer)
    if needed:
        raise ValueError(f"key 'answer' holds {answer!r}, where a text or a number is needed")
    return ""
