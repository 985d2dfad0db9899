"""Spans of time and numbers, as the command line writes them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Union

Span = Union[str, float, int, timedelta]
"""A span of time: `"10m"`, seconds as a number, or a `timedelta`."""


def span(value: Span | None) -> str | None:
    """The span as a text such as `600000000000ns`; a text stays as it is."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, timedelta):
        # A timedelta counts whole microseconds.
        return f"{(value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds}us"
    return f"{round(value * 1e9)}ns"


def listed(value: str | Sequence[str]) -> list[str]:
    """One text, several separated by commas, or a list of them, as a list."""
    texts = [value] if isinstance(value, str) else list(value)
    return [part.strip() for text in texts for part in str(text).split(",")]
