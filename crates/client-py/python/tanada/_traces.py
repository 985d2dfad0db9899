"""Traces: read once, kept as columns, handed to Arrow's readers without a copy.

::

    files -> read_trace -> Trace -> pyarrow.table(trace), polars.DataFrame(trace) ...
                                \\-> simulate, compare, curves
"""

from __future__ import annotations

from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Iterable, Literal, Sequence, Union

from . import _native
from ._html import table
from ._spans import Span, span

if TYPE_CHECKING:
    import pandas
    import pyarrow

Path = Union[str, "PathLike[str]"]


class Trace:
    """The requests of a trace, in order of time.

    Any library that knows Arrow's PyCapsule interface reads it: `pyarrow.table(trace)`, `polars.DataFrame(trace)`,
    `duckdb.from_arrow(trace)`. The columns are

    =============== ========== =====================================================
    `time_ns`       uint64     when, in nanoseconds since the first request
    `op`            dictionary `read`, `write`, `discard` or `flush`
    `offset_bytes`  uint64     the first byte on its device
    `size_bytes`    uint64     how much; 0 for a flush
    `device`        uint32     on which device
    =============== ========== =====================================================

    >>> trace = tanada.read_trace("day.csv")
    >>> len(trace)
    3
    """

    def __init__(self, native: _native.Trace, files: Sequence[str]) -> None:
        self._native = native
        self.files: tuple[str, ...] = tuple(files)

    def __len__(self) -> int:
        return len(self._native)

    @property
    def format(self) -> str:
        """The format of the file, or of the first of several."""
        return self._native.format

    @property
    def remarks(self) -> list[str]:
        """What was assumed, put right and left out while reading, a line each."""
        return self._native.remarks

    @property
    def device_names(self) -> dict[int, str]:
        """The devices that have names in their format, by number."""
        return dict(self._native.device_names)

    @property
    def span_seconds(self) -> float:
        """When the last request comes, in seconds since the first."""
        return self._native.span_ns / 1e9

    @property
    def nbytes(self) -> int:
        """Memory of the columns in bytes."""
        return self._native.nbytes

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._native.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self._native.__arrow_c_schema__()

    def to_arrow(self) -> "pyarrow.Table":
        """The columns as a table of pyarrow, which share this memory."""
        import pyarrow

        return pyarrow.table(self)

    def to_pandas(self, **options: Any) -> "pandas.DataFrame":
        """The columns as a data frame; `options` are those of `pyarrow.Table.to_pandas`."""
        return self.to_arrow().to_pandas(**options)

    def to_dict(self) -> dict[str, Any]:
        """What is to be said of the trace as a whole."""
        return {
            "files": list(self.files),
            "format": self.format,
            "requests": len(self),
            "span_seconds": self.span_seconds,
            "memory_bytes": self.nbytes,
        }

    def __repr__(self) -> str:
        of = f"{self.files[0]} and {len(self.files) - 1} more" if self.files[1:] else self.files[0]
        return f"<tanada.Trace {of}: {len(self):,} requests over {self.span_seconds:.3f} s, {self.format}>"

    def _repr_html_(self) -> str:
        rows = [(name, value) for name, value in self.to_dict().items()]
        rows += [("remark", line) for line in self.remarks]
        return table(("Trace", ""), rows)


def read_trace(
    path: Path | Iterable[Path],
    format: str | None = None,
    *,
    tick: Span | None = None,
    bad: Literal["fatal", "count"] = "fatal",
    start: Span | None = None,
    end: Span | None = None,
    devices: int | Iterable[int] | None = None,
    reorder: Span | None = None,
    columns: str | None = None,
) -> Trace:
    """Reads a trace, in any format that the command line reads; several files are one trace, merged by time.

    `format`, `tick`, `bad`, `start`, `end`, `reorder` and `columns` are the options of the command line of those names,
    `devices` is its `--device`. Spans are texts such as `"10m"`, seconds, or `timedelta`.

    Raises `TraceError` if the trace cannot be read; Ctrl-C ends the reading.

    >>> tanada.read_trace("day.csv", start="1s", devices=[0])
    """
    words = {
        "format": format,
        "tick": span(tick),
        "bad": bad,
        "start": span(start),
        "end": span(end),
        "devices": [devices] if isinstance(devices, int) else None if devices is None else list(devices),
        "reorder": span(reorder),
        "columns": columns,
    }
    files = files_of(path)
    return Trace(_native.read_trace(files, words), files)


def files_of(path: Path | Iterable[Path]) -> list[str]:
    """The files of one trace."""
    return [fspath(path)] if isinstance(path, (str, PathLike)) else [fspath(it) for it in path]


def formats() -> dict[str, str]:
    """The formats of traces that can be read, with a line about each."""
    return dict(_native.formats())


def trace_of(trace: Trace | Path | Iterable[Path]) -> Trace:
    """The trace, read first if its files are named."""
    return trace if isinstance(trace, Trace) else read_trace(trace)
