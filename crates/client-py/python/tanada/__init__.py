"""Tanada in Python: traces, simulations, predictions, and stores with reserved throughput.

::

    read_trace -> Trace -> simulate | compare | curves        what `tanada sim cache` prints, bit for bit
    data set   -> fit | predict                               what `tanada predict` prints

Nothing that takes long holds the interpreter's lock, and Ctrl-C ends it.
"""

from ._caches import SIZES, Comparison, Result, compare, curves, simulate
from ._errors import (
    PredictionError,
    SimulationError,
    TanadaError,
    TraceError,
)
from ._predictions import Estimate, Prediction, Study, fit, predict
from ._traces import Trace, formats, read_trace

__all__ = [
    "SIZES",
    "Comparison",
    "Estimate",
    "Prediction",
    "PredictionError",
    "Result",
    "SimulationError",
    "Study",
    "TanadaError",
    "Trace",
    "TraceError",
    "compare",
    "curves",
    "fit",
    "formats",
    "predict",
    "read_trace",
    "simulate",
]
