"""Tanada in Python: traces, simulations, predictions, and stores with reserved throughput.

::

    read_trace -> Trace -> simulate | compare | curves        what `tanada sim cache` prints, bit for bit
    data set   -> fit | predict                               what `tanada predict` prints
    connect, open, reserve -> objects of stores, files over several of them, at promised rates

Nothing that takes long holds the interpreter's lock, and Ctrl-C ends it.
"""

from ._caches import SIZES, Comparison, Result, compare, curves, simulate
from ._errors import (
    Conflict,
    Exists,
    Indeterminate,
    NotFound,
    PredictionError,
    Refused,
    ReservationError,
    SimulationError,
    StoreError,
    TanadaError,
    TraceError,
)
from ._files import ReadableFile, WritableFile
from ._predictions import Estimate, Prediction, Study, fit, predict
from ._reservations import Reservation, reserve
from ._stores import STRIPE, Stores, connect, open
from ._traces import Trace, formats, read_trace

__all__ = [
    "SIZES",
    "STRIPE",
    "Comparison",
    "Conflict",
    "Estimate",
    "Exists",
    "Indeterminate",
    "NotFound",
    "Prediction",
    "PredictionError",
    "ReadableFile",
    "Refused",
    "Reservation",
    "ReservationError",
    "Result",
    "SimulationError",
    "StoreError",
    "Stores",
    "Study",
    "TanadaError",
    "Trace",
    "TraceError",
    "WritableFile",
    "compare",
    "connect",
    "curves",
    "fit",
    "formats",
    "open",
    "predict",
    "read_trace",
    "reserve",
    "simulate",
]
