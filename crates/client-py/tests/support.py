"""What the tests share: the command line beside this package, and small traces.

::

    TANADA_LAB, TANADA -> the programs whose answers are compared with; TANADA_TRACES -> the public traces
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

LAB = os.environ["TANADA_LAB"]
TRACES = os.environ.get("TANADA_TRACES")


def run(*arguments: object) -> str:
    """What the laboratory prints."""
    done = subprocess.run([LAB, *map(str, arguments)], check=True, capture_output=True, text=True)
    return done.stdout


def answer(*arguments: object) -> Any:
    """The same with `--json`, read."""
    return json.loads(run(*arguments, "--json"))


def generated(folder: str, requests: int = 5_000) -> Path:
    """A trace of drifting streams and Zipf's hot spots, the same in every run."""
    file = Path(folder) / "mixed.csv"
    run("trace", "generate", "mixed", "--requests", requests, "--size", "256MiB", "-o", file)
    return file
