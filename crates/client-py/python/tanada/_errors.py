"""Why something could not be done.

::

    TanadaError -> TraceError | SimulationError | PredictionError     a ValueError, too
                -> StoreError -> NotFound | Exists | Refused | Conflict | Indeterminate     an OSError, too
                -> ReservationError
"""

from __future__ import annotations

from typing import Any


class TanadaError(Exception):
    """Anything that this package cannot do; its text says what was asked and what stood in the way."""


class TraceError(TanadaError, ValueError):
    """A trace cannot be read."""


class SimulationError(TanadaError, ValueError):
    """A simulation cannot be made as asked."""


class PredictionError(TanadaError, ValueError):
    """Nothing can be predicted from the data set as asked."""


class StoreError(TanadaError, OSError):
    """A store did not do what it was asked."""


class NotFound(StoreError, FileNotFoundError):
    """There is no such object."""


class Exists(StoreError, FileExistsError):
    """There is such a file already, and a new one was wanted."""


class Refused(StoreError, PermissionError):
    """The store does not let this client do it: credentials, scope, direction, or no room."""


class Conflict(StoreError):
    """Another client changed the object meanwhile; nothing was changed by this one."""


class Indeterminate(StoreError):
    """The answer did not come: the change may have happened, or may yet happen."""


class ReservationError(TanadaError):
    """Nothing was reserved. `offer` has what would fit, as the daemon answered it; it may be empty."""

    def __init__(self, text: str, offer: dict[str, Any] | None = None) -> None:
        super().__init__(text)
        self.offer: dict[str, Any] = offer or {}
