"""Reservations: so many MB/s of a set of stores, for so long, as the daemon's service books them.

::

    reserve -> POST /v2/reservations -> Reservation: capability -> open, stores
    end of the `with` block ----------> DELETE
"""

from __future__ import annotations

import http.client
import json
import os
import secrets
import socket
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Literal, overload
from urllib.parse import quote

from ._errors import ReservationError
from ._files import ReadableFile, WritableFile
from ._html import table
from ._stores import STRIPE, Stores, connect

ROOT = "/v2/reservations"
SOCKETS = ("/run/tanada/admin.sock", "tanada-data/admin.sock")
"""Where a daemon of this machine is looked for."""
ADMIN = "127.0.0.1:10880"
WORK_SECONDS = 60


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=WORK_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(WORK_SECONDS)
        self.sock.connect(self._path)


class _Service:
    """The reservation service of one daemon."""

    def __init__(self, admin: str | None, token: str | None) -> None:
        named = admin or os.environ.get("TANADA_ADMIN")
        here = next((f"unix:{path}" for path in SOCKETS if os.path.exists(path)), ADMIN)
        self._admin = named or here
        self._token = token or os.environ.get("TANADA_TOKEN")

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
        """The status and what came with it."""
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        if account := os.environ.get("TANADA_ACCOUNT"):
            headers["Tanada-Account"] = account
        connection = self._connection()
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"{}")
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ReservationError(f"no answer from the daemon at {self._admin}: {error}") from error
        finally:
            connection.close()

    def done(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """What came of it; a refusal is raised."""
        status, answer = self.ask(method, path, body)
        if status >= 300:
            text = "; ".join(filter(None, (answer.get("error"), answer.get("what_to_do"))))
            raise ReservationError(text or f"the daemon answered {status}", answer.get("offer"))
        return dict(answer)

    def _connection(self) -> http.client.HTTPConnection:
        if self._admin.startswith("unix:"):
            return _UnixConnection(self._admin[len("unix:") :])
        if self._admin.startswith("tls:"):
            raise ReservationError(
                f"{self._admin} speaks TLS, which this package does not at the admin API; name the daemon's socket"
            )
        return http.client.HTTPConnection(self._admin, timeout=WORK_SECONDS)


class Reservation:
    """Throughput that is promised. The end of its `with` block gives it back."""

    def __init__(self, service: _Service, answer: dict[str, Any]) -> None:
        self._service = service
        self._answer = answer
        self._stores: Stores | None = None

    @property
    def name(self) -> str:
        """Its name in its account."""
        return str(self._answer["name"])

    @property
    def state(self) -> str:
        """`holding`, `committed`, `degraded`, `aborted` or `ended`, as it was last heard."""
        return str(self._answer["state"])

    @property
    def capability(self) -> str:
        """What is shown at its stores: the value of `TANADA_CAPABILITY` for other programs."""
        if not self._answer.get("capability"):
            self._answer = self._service.done("POST", f"{self._path}/capability", {})
        return str(self._answer["capability"])

    @property
    def stores(self) -> Stores:
        """Its stores, connected under its capability."""
        if self._stores is None:
            self._stores = connect(capability=self.capability)
        return self._stores

    @overload
    def open(self, name: str, mode: Literal["rb"] = "rb") -> ReadableFile: ...

    @overload
    def open(self, name: str, mode: Literal["wb", "xb"], *, stripe: int = STRIPE) -> WritableFile: ...

    def open(self, name: str, mode: Any = "rb", *, stripe: int = STRIPE) -> ReadableFile | WritableFile:
        """As `Stores.open`, at the promised rate."""
        return self.stores.open(name, mode, stripe=stripe)

    def extend(self, for_: str) -> None:
        """It ends so long after now, without a gap; refused, all stays as it was."""
        self._answer = self._service.done("PATCH", self._path, {"for": for_}) | {
            "capability": self._answer.get("capability")
        }

    def release(self) -> None:
        """Gives it back. That it is over already is fine."""
        if self._stores is not None:
            self._stores.close()
            self._stores = None
        status, answer = self._service.ask("DELETE", self._path)
        if status >= 300 and status != 404:
            raise ReservationError(str(answer.get("error", status)))

    def to_dict(self) -> dict[str, Any]:
        """What the daemon answered last, without the capability."""
        return {key: value for key, value in self._answer.items() if key != "capability"}

    @property
    def _path(self) -> str:
        return f"{ROOT}/{quote(str(self._answer['id']), safe='')}"

    def __enter__(self) -> Reservation:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"<tanada.Reservation {self.name}: {self.state}>"

    def _repr_html_(self) -> str:
        plain = [(key, value) for key, value in self.to_dict().items() if isinstance(value, (str, int, float))]
        return table(("Reservation", ""), plain)


def reserve(
    stores: str | Sequence[str] = (),
    *,
    scope: str,
    read: str | None = None,
    write: str | None = None,
    for_: str = "10m",
    from_: str | None = None,
    name: str | None = None,
    space: str | None = None,
    stripe: bool | None = None,
    account: str | None = None,
    admin: str | None = None,
    token: str | None = None,
) -> Reservation:
    """Books throughput of stores of a cluster, for objects and files whose names begin with `scope`.

    Rates, spans and times are texts as on the command line: `"100MB/s"`, `"2h"`, `"20:00"`. With several stores the rate
    is that of all of them together, as files ask for it, unless `stripe` is `False`: then of each. `admin` is the
    daemon's admin API, `HOST:PORT` or `unix:/path`; left out, `TANADA_ADMIN`, or the daemon of this machine. `token`
    (`TANADA_TOKEN`) says who asks.

    Raises `ReservationError` with what would fit, if it does not fit.

    >>> with tanada.reserve(stores=["s0", "s1"], read="100MB/s", for_="2h", scope="run7/") as reservation:
    ...     reservation.open("run7/a").readinto(buffer)
    """
    names = [stores] if isinstance(stores, str) else list(stores)
    target = {"stores": names, "scope": scope, "stripe": len(names) > 1 if stripe is None else stripe}
    asked = {
        "name": name or f"python-{secrets.token_hex(8)}",
        "target": target,
        "for": for_,
        "read": read,
        "write": write,
        "from": from_,
        "space": space,
        "account": account,
    }
    service = _Service(admin, token)
    body = {key: value for key, value in asked.items() if value is not None}
    return Reservation(service, service.done("POST", ROOT, body))
