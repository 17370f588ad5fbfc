"""Configurations as YAML, without the values that YAML has no words for."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import takewhile
from typing import Any

import yaml

from r1lit.callbacks.run_config import read_yaml
from r1lit.cli.composition import YAMLDumper

NO_YAML = "Unable to serialize instance"
"""Start of the text that jsonargparse writes in place of an object that is no plain data."""


def without_objects(dump: Callable[..., str], *args: Any, **options: Any) -> str:
    """Return the text of ``dump``, without the keys whose values are objects.

    A key of a user's class has such a value where its default is an object, a lambda for example:
    from YAML come plain data alone. Left out, it is that default again. As text it would be another
    value, and on resume another one in each process, with its address.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", rf"\s*{NO_YAML}")
        text = dump(*args, **options)
    if NO_YAML not in text:
        return text
    header = takewhile(lambda line: line.startswith("#"), text.splitlines(keepends=True))
    kept, _ = _plain(read_yaml(text))
    return "".join(header) + yaml.dump(kept, Dumper=YAMLDumper, sort_keys=False)


def _plain(value: Any) -> tuple[Any, bool]:
    """Return a value without keys of objects, and whether it is plain without them."""
    if isinstance(value, dict):
        found = {key: _plain(own) for key, own in value.items()}
        return {key: own for key, (own, is_plain) in found.items() if is_plain}, True
    if isinstance(value, list):
        items = [_plain(own) for own in value]
        return [own for own, _ in items], all(is_plain for _, is_plain in items)
    return value, not (isinstance(value, str) and value.startswith(NO_YAML))
