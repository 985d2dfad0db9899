"""Caches: what each policy would have missed, at each size.

::

    trace, policies, sizes -> the simulator of `tanada sim cache`, on all processors -> rows -> Comparison
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Iterable, Literal, overload

from . import _native
from ._html import table
from ._spans import listed
from ._traces import Path, Trace, files_of, trace_of

if TYPE_CHECKING:
    import pandas

Ops = Literal["all", "reads", "writes"]
Write = Literal["back", "through", "around", "only-writes"]
Admission = Literal["always", "second-access"]

SIZES = ("0.1%", "1%", "5%", "10%", "25%")
"""The sizes that are looked at where none are said."""


class Result(Mapping[str, Any]):
    """One policy at one size: an entry of what `tanada sim cache --json` prints, with the same keys and numbers.

    The keys are attributes as well: `result.miss_ratio`, `result["miss_ratio"]`.
    """

    policy: str
    size: str
    unit: str
    requests: int
    misses: int
    miss_ratio: float
    byte_miss_ratio: float
    objects: int
    bytes: int
    missed_bytes: int
    trace_requests: int
    trace_request_misses: int | None
    trace_request_miss_ratio: float | None
    promotions: int | None
    flash_bytes_written: int | None
    slow_bytes_read: int | None
    slow_bytes_written: int | None
    write: str
    admission: str
    figures: str

    def __init__(self, row: dict[str, Any]) -> None:
        self._row = row
        self.__dict__.update(row)

    def __getitem__(self, key: str) -> Any:
        return self._row[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._row)

    def __len__(self) -> int:
        return len(self._row)

    def to_dict(self) -> dict[str, Any]:
        """The entry as a dictionary of its own."""
        return dict(self._row)

    def __repr__(self) -> str:
        return f"<tanada.Result {self.policy} at {self.size}: misses {self.miss_ratio:.4f} of {self.requests:,} accesses>"

    def _repr_html_(self) -> str:
        return table(("Simulated", ""), self._row.items())


class Comparison(Sequence[Result]):
    """Results in the order of the command line: policies first, each with its sizes.

    `pandas.DataFrame(comparison.rows())` has a line for each.
    """

    def __init__(self, results: Iterable[Result]) -> None:
        self._results = tuple(results)

    @overload
    def __getitem__(self, at: int) -> Result: ...

    @overload
    def __getitem__(self, at: slice) -> Comparison: ...

    def __getitem__(self, at: int | slice) -> Result | Comparison:
        if isinstance(at, slice):
            return Comparison(self._results[at])
        return self._results[at]

    def __len__(self) -> int:
        return len(self._results)

    def rows(self) -> list[dict[str, Any]]:
        """An entry for each, as `tanada sim cache --json` prints them."""
        return [result.to_dict() for result in self._results]

    def to_dict(self) -> dict[str, list[Any]]:
        """The same by column."""
        keys = self._results[0] if self._results else ()
        return {key: [result[key] for result in self._results] for key in keys}

    def to_pandas(self) -> "pandas.DataFrame":
        """The same as a data frame."""
        import pandas

        return pandas.DataFrame(self.rows())

    def best(self, size: str | None = None) -> Result:
        """The result that misses least, of one size if that is said; `belady`, the bound, does not count.

        Raises `ValueError` if there is none.
        """
        wanted = [it for it in self._results if it.policy != "belady" and size in (None, it.size)]
        return min(wanted, key=lambda it: it.miss_ratio)

    def __repr__(self) -> str:
        policies = len({result.policy for result in self._results})
        return f"<tanada.Comparison of {policies} policies: {len(self)} results>"

    def _repr_html_(self) -> str:
        sizes = list(dict.fromkeys(result.size for result in self._results))
        by_policy: dict[str, dict[str, float]] = {}
        for result in self._results:
            by_policy.setdefault(result.policy, {})[result.size] = result.miss_ratio
        rows = [
            [policy] + [f"{ratios[size]:.4f}" if size in ratios else "" for size in sizes]
            for policy, ratios in by_policy.items()
        ]
        return table(["Miss ratio", *sizes], rows)


def _words(policies: list[str], sizes: list[str], **others: Any) -> dict[str, Any]:
    usual = {"unit": None, "ops": "all", "write": "back", "admission": "always", "sample": None, "seed": 1, "jobs": 0}
    return {"policies": policies, "sizes": sizes, **usual, **others}


def _read(text: str) -> Comparison:
    return Comparison(Result(row) for row in json.loads(text))


READING = {
    "format": None, "tick": None, "bad": "fatal", "start": None, "end": None,
    "devices": None, "reorder": None, "columns": None,
}
"""Files that are named are read as they are."""


def _compared(trace: Trace | Path | Iterable[Path], words: dict[str, Any]) -> Comparison:
    if isinstance(trace, Trace):
        return _read(_native.compare(trace._native, words))
    return _read(_native.compare_files(files_of(trace), READING, words))


def simulate(
    trace: Trace | Path | Iterable[Path],
    policy: str = "lru",
    size: str = "1%",
    *,
    unit: str | None = None,
    ops: Ops = "all",
    write: Write = "back",
    admission: Admission = "always",
) -> Result:
    """Runs one policy at one size over a trace.

    `trace` is a `Trace`, or the file or files of one. `policy` is one of `lru`, `fifo`, `clock`, `sieve`, `s3-fifo`,
    `arc`, `w-tinylfu`, or `belady`, the bound. `size` is percent of the different objects (`"1%"`), bytes (`"24GiB"`) or
    objects (`"4897obj"`). `unit` is one object: `"request"` or the size of a block; left out, 4 KiB, or a request where
    the trace names objects.

    Raises `SimulationError` for what cannot be simulated, `TraceError` for what cannot be read.

    >>> tanada.simulate(trace, "s3-fifo", "5%").miss_ratio
    """
    words = _words([policy], [size], unit=unit, ops=ops, write=write, admission=admission, jobs=1)
    return _compared(trace, words)[0]


def compare(
    trace: Trace | Path | Iterable[Path],
    policies: str | Sequence[str] = "all",
    sizes: str | Sequence[str] = SIZES,
    *,
    unit: str | None = None,
    ops: Ops = "all",
    write: Write = "back",
    admission: Admission = "always",
    jobs: int = 0,
) -> Comparison:
    """Runs every policy at every size over a trace, on `jobs` processors (0: on all).

    The options are those of `simulate`; `policies` and `sizes` are lists, or texts with commas. Ctrl-C ends it once the
    simulations that run at that moment are done.

    >>> tanada.compare(trace, ["lru", "s3-fifo"], ["1%", "5%"]).best("1%").policy
    """
    words = _words(
        listed(policies), listed(sizes), unit=unit, ops=ops, write=write, admission=admission, jobs=jobs
    )
    return _compared(trace, words)


def curves(
    trace: Trace | Path | Iterable[Path],
    policies: str | Sequence[str] = "all",
    *,
    unit: str | None = None,
    ops: Ops = "all",
    write: Write = "back",
    admission: Admission = "always",
    sample: float | None = None,
    seed: int = 1,
    jobs: int = 0,
) -> Comparison:
    """The miss-ratio curves of policies, point by point: what `tanada sim cache --curve` prints.

    `sample` makes them from this share of the objects (0.01: 1 %); left out, from all of a short trace. Which objects are
    in the sample follows from `seed`. `figures` of each result says how exact it is.

    >>> [(point.objects, point.miss_ratio) for point in tanada.curves(trace, "lru")]
    """
    words = _words(listed(policies), [], unit=unit, ops=ops, write=write, admission=admission, sample=sample, seed=seed, jobs=jobs)
    return _read(_native.curves(trace_of(trace)._native, words))
