"""Stores: plain objects of one, files over several, under a capability.

::

    capability (TANADA_CAPABILITY) -> its stores and addresses -> connect -> Stores -> objects, files
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import os
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Literal, overload

from . import _native
from ._errors import StoreError
from ._files import ReadableFile, WritableFile
from ._html import table
from ._traces import Path

SET = "tanadaset1."
STRIPE = 1 << 20
"""How long a chunk of a file is, unless another length is said."""


class Stores:
    """Connected stores, in the order of the reservation. A `with` block closes the connections.

    A connection that is lost stays so: connect again. Objects are those of the first store, unless `at` says another
    number; files lie over all of them.
    """

    def __init__(self, native: _native.Stores) -> None:
        self._native = native

    @property
    def names(self) -> list[str]:
        """What the stores are called."""
        return [name for _, name, _, _ in self._native.about]

    # --- files over all stores -----------------------------------------------------------------------

    @overload
    def open(self, name: str, mode: Literal["rb"] = "rb") -> ReadableFile: ...

    @overload
    def open(self, name: str, mode: Literal["wb", "xb"], *, stripe: int = STRIPE) -> WritableFile: ...

    def open(self, name: str, mode: str = "rb", *, stripe: int = STRIPE) -> ReadableFile | WritableFile:
        """Opens a file over the stores: `rb` reads it, `wb` replaces it, `xb` makes a new one.

        A file is written in chunks of `stripe` bytes, a power of two from 4 KiB on, in turns over all stores.

        Raises `NotFound`, `Exists`, `Refused`, `Conflict`, or another `StoreError`.

        >>> with stores.open("run7/a", "wb") as out:
        ...     out.write(b"answer")
        6
        """
        if mode == "rb":
            return ReadableFile(name, self._native.read_file(name))
        if mode in ("wb", "xb"):
            return WritableFile(name, self._native.write_file(name, stripe, mode == "xb"), mode)
        raise ValueError(f"mode is '{mode}'; say rb, wb or xb: files are bytes, and replaced as wholes")

    # --- objects of one store --------------------------------------------------------------------------

    def put(self, name: str, data: bytes | bytearray | memoryview, *, new: bool = False, at: int = 0) -> str:
        """Stores an object, whole and durable or not at all; its generation. `new` refuses to replace.

        >>> stores.put("run7/note", b"42")
        """
        return self._native.put(at, name, data if isinstance(data, bytes) else bytes(data), new)

    def get(self, name: str, *, at: int = 0) -> bytes:
        """The bytes of an object, of one version.

        >>> stores.get("run7/note")
        b'42'
        """
        return self._native.get(at, name)

    def list(self, prefix: str = "", *, at: int = 0) -> list[dict[str, Any]]:
        """The objects whose names begin so, as `tanada object list --json` prints them.

        >>> [it["name"] for it in stores.list("run7/")]
        """
        return list(json.loads(self._native.list(at, prefix)))

    def head(self, name: str, *, at: int = 0) -> dict[str, Any]:
        """What an object is like, as `tanada object show --json` prints it.

        >>> stores.head("run7/note")["size_bytes"]
        2
        """
        return dict(json.loads(self._native.head(at, name)))

    def delete(self, name: str, *, at: int = 0) -> None:
        """Deletes an object for good. Raises `NotFound` if there is none.

        >>> stores.delete("run7/note")
        """
        self._native.delete(at, name)

    def close(self) -> None:
        """Says goodbye to all stores."""
        self._native.close()

    def __enter__(self) -> Stores:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<tanada.Stores {', '.join(self.names)}>"

    def _repr_html_(self) -> str:
        yes = {True: "yes", False: "no"}
        rows = [(name, identity, yes[reads], yes[writes]) for identity, name, reads, writes in self._native.about]
        return table(("Store", "identity", "reads", "writes"), rows)


def connect(
    stores: str | Sequence[str] | None = None,
    *,
    capability: str | None = None,
    ca: Path | None = None,
    identity: tuple[Path, Path] | None = None,
    timeout: float = 120.0,
) -> Stores:
    """Connects to stores.

    `capability` is what `tanada reservation create` printed, or `@FILE` with it; left out, `TANADA_CAPABILITY`. A set of
    them names its stores itself. With one capability, or none, `stores` are their addresses: `HOST:PORT`,
    `tls:HOST:PORT` or `unix:/path`; left out, `TANADA_STORE`. `ca` (`TANADA_CA`) are the authorities by which stores at
    `tls:` addresses are checked, `identity` an own certificate and its key, all of them files of PEM. An answer is
    awaited for `timeout` seconds.

    Raises `Refused` for credentials that a store does not take, `StoreError` where none can be reached.

    >>> stores = tanada.connect("127.0.0.1:10881")
    """
    token = _token(capability)
    said = [stores] if isinstance(stores, str) else list(stores or ())
    if not said and (named := os.environ.get("TANADA_STORE")):
        said = [named]
    if token is not None and token.startswith(SET):
        entrances = [it for it in _entries(token) if not said or it["address"] in said]
        if not entrances:
            raise StoreError(f"the capability set has no store at {', '.join(said)}")
    elif said:
        direction = None if token is None else _direction(token)
        entrances = [{"address": it, "capability": token, "direction": direction} for it in said]
    else:
        raise StoreError("which stores? name their addresses, or set TANADA_CAPABILITY to a capability set")
    authorities = ca or os.environ.get("TANADA_CA")
    terms = {
        "ca": None if authorities is None else _bytes(authorities),
        "own": None if identity is None else (_bytes(identity[0]), _bytes(identity[1])),
        "timeout_seconds": float(timeout),
    }
    return Stores(_native.connect(entrances, terms))


@overload
def open(name: str, mode: Literal["rb"] = "rb", **options: Any) -> ReadableFile: ...


@overload
def open(name: str, mode: Literal["wb", "xb"], **options: Any) -> WritableFile: ...


def open(name: str, mode: Any = "rb", *, stripe: int = STRIPE, **options: Any) -> ReadableFile | WritableFile:
    """Opens a file over the stores of `TANADA_CAPABILITY`, as `Stores.open` does; `options` are those of `connect`.

    >>> tanada.open("run7/a").read()
    """
    stores = connect(**options)
    file: ReadableFile | WritableFile = stores.open(name, mode, stripe=stripe)
    # Its connections live as long as it does.
    file._stores = stores  # type: ignore[union-attr]
    return file


def _bytes(path: Path) -> bytes:
    # `open` is another one here.
    with io.open(path, "rb") as file:
        return file.read()


def _token(capability: str | None) -> str | None:
    said = capability or os.environ.get("TANADA_CAPABILITY") or None
    if said is not None and said.startswith("@"):
        said = _bytes(said[1:]).decode("ascii")
    return None if said is None else said.strip()


def _decoded(text: str) -> Any:
    return json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


def _entries(token: str) -> list[dict[str, Any]]:
    try:
        entries = _decoded(token[len(SET) :])
        return [
            {"address": it["address"], "capability": it["token"], "direction": _direction(it["token"])}
            for it in entries
        ]
    except (binascii.Error, ValueError, KeyError, TypeError):
        raise StoreError(
            "this is no capability set; pass the whole line that `tanada reservation create` printed"
        ) from None


def _direction(token: str) -> str | None:
    """What a capability says of itself, to choose among several; the store verifies it."""
    try:
        direction = _decoded(token.split(".")[1])["direction"]
    except (binascii.Error, ValueError, KeyError, TypeError, IndexError):
        return None
    return direction if direction in ("read", "write") else None
