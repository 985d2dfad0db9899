"""Files over several stores, as raw streams: `io.BufferedReader` and `io.BufferedWriter` take them.

::

    rb     -> ReadableFile: any bytes, of one version, from all stores at once
    wb, xb -> WritableFile: seen by no reader until it is closed well, then whole
"""

from __future__ import annotations

import io
import json
import os
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import _native

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer


class _File(io.RawIOBase):
    """A place in a file over several stores."""

    def __init__(self, name: str, mode: str) -> None:
        super().__init__()
        self.name = name
        self.mode = mode
        self._at = 0

    @property
    def size(self) -> int:
        """How long it is by now."""
        raise NotImplementedError

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        self._check()
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Goes on elsewhere; what is never written reads as zeroes."""
        self._check()
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}.get(whence)
        if base is None:
            raise ValueError(f"whence is {whence}; say os.SEEK_SET, SEEK_CUR or SEEK_END")
        if base + offset < 0:
            raise ValueError(f"byte {base + offset} is before the beginning of the file")
        self._at = base + offset
        return self._at

    def _check(self) -> None:
        if self.closed:
            raise ValueError(f"{self.name} is closed")


class ReadableFile(_File):
    """A file being read, as it was when it was opened.

    Raises `Conflict` once another writer has replaced it: no answer mixes two versions.
    """

    def __init__(self, name: str, native: _native.Reader) -> None:
        super().__init__(name, "rb")
        self._native = native

    @property
    def size(self) -> int:
        """How long it is."""
        return self._native.size

    @property
    def head(self) -> dict[str, Any]:
        """What its head says: `blob`, `stripe`, `width`, `copies`, `size`, `stores`."""
        return dict(json.loads(self._native.head))

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        """Fills `buffer` from all stores at once; how many bytes that were: fewer where the file ends."""
        self._check()
        with memoryview(buffer).cast("B") as view:
            data = self._native.read(self._at, len(view))
            view[: len(data)] = data
        self._at += len(data)
        return len(data)

    def read(self, size: int | None = -1, /) -> bytes:
        """The next `size` bytes, or all that follow."""
        self._check()
        rest = max(self.size - self._at, 0)
        data = self._native.read(self._at, rest if size is None or size < 0 else size)
        self._at += len(data)
        return data

    def readall(self) -> bytes:
        return self.read()

    def __repr__(self) -> str:
        return f"<tanada.ReadableFile {self.name}: {self.size:,} bytes, at {self._at:,}>"


class WritableFile(_File):
    """A file being written. No reader sees it until `close`, which makes it durable first.

    An exception inside of its `with` block gives it up, as `abandon` does, and so does forgetting it unclosed. `close`
    raises `Conflict` if another writer was first.
    """

    def __init__(self, name: str, native: _native.Writer, mode: str) -> None:
        super().__init__(name, mode)
        self.generation: str | None = None
        """The head's generation, once it is closed."""
        self._native = native
        self._size = 0

    @property
    def size(self) -> int:
        """How long it is by now."""
        return self._size

    def writable(self) -> bool:
        return True

    def write(self, data: "ReadableBuffer", /) -> int:
        """Writes all of `data`. That it is under way is no promise yet: `close` answers for all of it."""
        self._check()
        whole = data if isinstance(data, bytes) else bytes(memoryview(data))
        self._native.write(self._at, whole)
        self._at += len(whole)
        self._size = max(self._size, self._at)
        return len(whole)

    def close(self) -> None:
        """Makes it durable, then visible, and clears away what it replaced."""
        if not self.closed:
            super().close()
            self.generation = self._native.finish()

    def abandon(self) -> None:
        """Gives it up: nothing of it was ever there."""
        if not self.closed:
            super().close()
            self._native.abandon()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    def __del__(self) -> None:
        # The base's would close it, and show what may be half of it.
        if hasattr(self, "_native"):
            self.abandon()

    def __repr__(self) -> str:
        return f"<tanada.WritableFile {self.name}: {self._size:,} bytes by now>"
