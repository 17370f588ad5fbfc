"""Keys of earlier versions: each is refused by a line that names what stands in its place."""

from __future__ import annotations

MOVED_KEYS = {
    "model.dynamic_sampling": "a collector: model.collector: r1lit.collect.DynamicSampling",
    "model.max_staleness": "a collector: model.collector: {class_path: r1lit.collect.Ahead,"
    " init_args: {max_staleness: 1}}",
}
"""The key as an error names it -> what it is now, with the YAML of it."""


def moved(path: str) -> str | None:
    """Return what stands in the place of a key, or of a key below it; None if it never was one.

    >>> moved("model.dynamic_sampling")
    'a collector: model.collector: r1lit.collect.DynamicSampling'
    """
    parts = path.split(".")
    heads = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((MOVED_KEYS[head] for head in heads if head in MOVED_KEYS), None)
