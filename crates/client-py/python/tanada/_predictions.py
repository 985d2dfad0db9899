"""Predictions: what an application would do on a device that is not there.

::

    data set (CSV, Parquet) -> fit: the model, judged by leaving each device out
                            -> predict: estimates for a device, with intervals
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from os import fspath
from typing import TYPE_CHECKING, Any, Literal, overload

from . import _native
from ._html import table
from ._traces import Path

if TYPE_CHECKING:
    import pandas

Runs = Literal["trimmed", "median"]
Floor = Mapping[str, str] | Literal["measured"]


class Estimate(Mapping[str, Any]):
    """One group of results predicted: an entry of what `tanada predict estimate --json` prints.

    `latency` is in microseconds, as are `low` and `high`; `high` may be open.
    """

    group: str
    latency: float

    def __init__(self, entry: dict[str, Any]) -> None:
        self._entry = entry
        self.group = entry["group"]
        self.latency = entry["latency"]

    def __getitem__(self, key: str) -> Any:
        return self._entry[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entry)

    def __len__(self) -> int:
        return len(self._entry)

    @property
    def low(self) -> float | None:
        """Where the interval begins; `None` where no device could be left out."""
        interval: dict[str, float | None] | None = self._entry["interval"]
        return None if interval is None else interval["low"]

    @property
    def high(self) -> float | None:
        """Where it ends; `None` where it is open or there is none."""
        interval: dict[str, float | None] | None = self._entry["interval"]
        return None if interval is None else interval["high"]

    @property
    def nearest(self) -> tuple[str, float] | None:
        """The nearest device that was measured, and the mean of its results in this group."""
        near: list[Any] | None = self._entry["nearest"]
        return None if near is None else (near[0], near[1])

    @property
    def is_extrapolated(self) -> bool:
        """Do figures of the device lie outside those that were measured?"""
        return bool(self._entry["outside"])

    def to_dict(self) -> dict[str, Any]:
        """The entry as a dictionary of its own."""
        return dict(self._entry)

    def __repr__(self) -> str:
        low, high = (_us(it) for it in (self.low, self.high))
        return f"<tanada.Estimate {self.group}: {self.latency:.1f} us, between {low} and {high}>"


def _us(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


class Prediction(Sequence[Estimate]):
    """What is predicted of one device: an estimate for each group of results."""

    def __init__(self, form: str, device: str, estimates: list[dict[str, Any]]) -> None:
        self.form: str = form
        """The formula that was fitted, as a sentence."""
        self.device: str = device
        """The device's name."""
        self._estimates = tuple(Estimate(entry) for entry in estimates)

    @overload
    def __getitem__(self, at: int) -> Estimate: ...

    @overload
    def __getitem__(self, at: slice) -> tuple[Estimate, ...]: ...

    def __getitem__(self, at: int | slice) -> Estimate | tuple[Estimate, ...]:
        return self._estimates[at]

    def __len__(self) -> int:
        return len(self._estimates)

    def rows(self) -> list[dict[str, Any]]:
        """The entries, as `tanada predict estimate --json` prints them."""
        return [estimate.to_dict() for estimate in self._estimates]

    def to_dict(self) -> dict[str, Any]:
        """All of it."""
        return {"form": self.form, "device": self.device, "estimates": self.rows()}

    def to_pandas(self) -> "pandas.DataFrame":
        """A line for each group: prediction, interval, nearest device, in microseconds."""
        import pandas

        heads = ("group", "latency_us", "low_us", "high_us", "nearest", "nearest_us")
        return pandas.DataFrame([dict(zip(heads, _line(it))) for it in self._estimates])

    def __repr__(self) -> str:
        return f"<tanada.Prediction for {self.device}: {len(self)} groups>"

    def _repr_html_(self) -> str:
        heads = ("Group", "us", "from", "to", "nearest", "its us")
        rows = [
            [cell if isinstance(cell, str) else _us(cell) for cell in _line(it)] for it in self._estimates
        ]
        return table(heads, rows, f"{self.form} on {self.device}")


def _line(it: Estimate) -> tuple[Any, ...]:
    name, value = it.nearest or (None, None)
    return (it.group, it.latency, it.low, it.high, name, value)


class Study(Mapping[str, Any]):
    """A data set studied: what `tanada predict fit --json` prints, with the same keys and numbers."""

    def __init__(self, study: dict[str, Any]) -> None:
        self._study = study

    def __getitem__(self, key: str) -> Any:
        return self._study[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._study)

    def __len__(self) -> int:
        return len(self._study)

    def to_dict(self) -> dict[str, Any]:
        """All of it."""
        return dict(self._study)

    def __repr__(self) -> str:
        return f"<tanada.Study of {len(self._study['groups'])} groups>"

    def _repr_html_(self) -> str:
        heads = ("Method", "mean error", "worst error", "predictions")
        rows = [
            (it["method"], f"{it['mean']:.1%}", f"{it['worst']:.1%}", it["predictions"])
            for it in self._study["scores"]
        ]
        return table(heads, rows, "Each device left out in turn")


def _words(
    data: Path,
    runs: Runs,
    terms: Sequence[str] | None,
    counts: Mapping[str, float] | None,
    floor: Floor | None,
    pool: str | None,
) -> dict[str, Any]:
    given = {} if floor is None or isinstance(floor, str) else floor
    if isinstance(floor, str) and floor != "measured":
        raise ValueError(f"floor is '{floor}'; say 'measured', or give a time for each figure")
    return {
        "data": fspath(data),
        "runs": runs,
        "terms": None if terms is None else list(terms),
        "counts": list((counts or {}).items()),
        "floors": list(given.items()),
        "measured_floors": floor == "measured",
        "pool": pool,
    }


def fit(
    data: Path,
    *,
    runs: Runs = "trimmed",
    terms: Sequence[str] | None = None,
    counts: Mapping[str, float] | None = None,
    floor: Floor | None = None,
    pool: str | None = None,
) -> Study:
    """Fits every workload of a data set, and judges the fits by leaving each device out.

    The options are those of `predict`. Raises `PredictionError` if the form cannot be fitted.

    >>> tanada.fit("scm.csv")["verdict"]
    """
    return Study(json.loads(_native.study(_words(data, runs, terms, counts, floor, pool))))


def predict(
    data: Path,
    device: str | None = None,
    *,
    at: Mapping[str, str] | None = None,
    runs: Runs = "trimmed",
    terms: Sequence[str] | None = None,
    counts: Mapping[str, float] | None = None,
    floor: Floor | None = None,
    pool: str | None = None,
    level: float = 0.95,
    extrapolate: bool = False,
    clients: float | None = None,
    cores: float | None = None,
) -> Prediction:
    """Predicts the results of a device from its own figures, by the default model.

    `data` is a data set as `tanada predict import` makes one. `device` is one of it; `at` gives figures, such as
    `{"read-16K-latency": "12us"}`, which come before those of the data set. `terms` are the latencies an operation waits
    for, `counts` how often it does where that was counted, `floor` what the path takes (`"measured"`, or a time for each
    figure), `pool` the parameter over whose values results are fitted together. `level` is the share of results an
    interval is to hold. `clients` and `cores` ask who the bottleneck is.

    Raises `PredictionError` if nothing can be predicted, or only by going farther than twice outside of what was
    measured and `extrapolate` is not set.

    >>> tanada.predict("scm.csv", at={"read-16K-latency": "12us", "write-64K-latency": "50us"})
    """
    asked = {
        "device": device,
        "at": list((at or {}).items()),
        "level": level,
        "extrapolate": extrapolate,
        "clients": clients,
        "cores": cores,
    }
    form, name, text = _native.estimate(_words(data, runs, terms, counts, floor, pool), asked)
    return Prediction(form, name, json.loads(text))
