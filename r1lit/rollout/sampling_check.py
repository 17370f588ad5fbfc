"""Warns of a server that ignores the temperature: its k responses are one."""

from __future__ import annotations

import warnings

PROMPTS, REPEATS = 4, 8  # from so many on it is no accident


class SamplingCheck:
    """Compares the responses to each prompt, and warns once if none differs from another.

    It warns as soon as ``PROMPTS`` prompts have been repeated, ``REPEATS`` times together, so that
    a long evaluation need not end first; ``end`` must be called after a shorter one.
    """

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
        self._first: dict[tuple[int, ...], int] = {}
        self._repeated: set[tuple[int, ...]] = set()
        self._num_repeats = 0
        self._settled = False

    def add(self, prompt: tuple[int, ...], text: str) -> None:
        """Add a response that was generated at a temperature above 0."""
        if self._settled:
            return
        if prompt not in self._first:
            self._first[prompt] = hash(text)
            return
        self._settled = self._first[prompt] != hash(text)
        self._repeated.add(prompt)
        self._num_repeats += 1
        if len(self._repeated) >= PROMPTS and self._num_repeats >= REPEATS:
            self.end()

    def end(self) -> None:
        """Warn once, if all repeats were the same."""
        if self._settled or not self._repeated:
            return
        self._settled = True
        warnings.warn(
            f"base_url: the responses of {self.base_url} to each prompt are all the same"
            f" ({self._num_repeats} repeats of {len(self._repeated)} prompts) although the"
            " temperature is above 0: it seems to decode greedily, and then k responses say no more"
            ' than one. For `transformers serve` put "do_sample": true into the policy\'s'
            " generation_config.json; for others see their sampling settings",
            stacklevel=2,
        )
