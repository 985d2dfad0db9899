"""The lens: the same numbers as the command line's, as Arrow's columns, in notebooks."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
import unittest
from datetime import timedelta
from html.parser import HTMLParser

import tanada
from support import TRACES, answer, generated

SMALL = "t_us,op,offset,size,dev\n5,R,4096,512,0\n9,W,0,4096,0\n2000005,F,0,0,1\n"


class Tags(HTMLParser):
    """Which tags stand in a page; unclosed ones stay in `open`."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        self.found.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self.open.remove(tag)


class Lens(unittest.TestCase):
    def setUp(self) -> None:
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)
        self.small = os.path.join(self.dir.name, "small.csv")
        with open(self.small, "w", encoding="ascii") as file:
            file.write(SMALL)

    def test_a_trace_is_read_as_columns_with_units(self) -> None:
        import pyarrow

        trace = tanada.read_trace(self.small)
        table = pyarrow.table(trace)
        self.assertEqual(
            table.to_pydict(),
            {
                "time_ns": [0, 4_000, 2_000_000_000],
                "op": ["read", "write", "flush"],
                "offset_bytes": [4096, 0, 0],
                "size_bytes": [512, 4096, 0],
                "device": [0, 0, 1],
            },
        )
        self.assertEqual(pyarrow.schema(trace), table.schema)
        self.assertEqual((len(trace), trace.format, trace.span_seconds), (3, "csv", 2.0))
        table.validate(full=True)

    def test_columns_outlive_the_trace_and_can_be_taken_again(self) -> None:
        import pyarrow

        trace = tanada.read_trace(generated(self.dir.name))
        first, again = pyarrow.table(trace), pyarrow.table(trace)
        del trace
        self.assertEqual(first, again)
        self.assertEqual(first.num_rows, 5_000)
        self.assertEqual(first.column("time_ns").to_pylist(), sorted(first.column("time_ns").to_pylist()))

    def test_a_stream_that_is_not_taken_is_freed(self) -> None:
        trace = tanada.read_trace(self.small)
        for _ in range(1000):
            trace.__arrow_c_stream__()
            trace.__arrow_c_schema__()

    def test_spans_are_texts_seconds_or_timedeltas(self) -> None:
        for start in ("1s", 1, 1.0, timedelta(seconds=1)):
            self.assertEqual(len(tanada.read_trace(self.small, start=start)), 1)
        self.assertEqual(len(tanada.read_trace(self.small, end="1s", devices=0)), 2)
        self.assertEqual(len(tanada.read_trace([self.small, self.small])), 6)

    def test_comparisons_are_those_of_the_command_line(self) -> None:
        file = generated(self.dir.name)
        for keys, words in [
            ({}, ()),
            ({"unit": "request"}, ("--unit", "request")),
            ({"ops": "reads", "unit": "64KiB"}, ("--ops", "reads", "--unit", "64KiB")),
            (
                {"write": "around", "admission": "second-access"},
                ("--write", "around", "--admission", "second-access"),
            ),
        ]:
            with self.subTest(keys):
                trace = tanada.read_trace(file)
                self.assertEqual(tanada.compare(trace, **keys).rows(), answer("sim", "cache", file, *words))
        one = tanada.simulate(trace, "s3-fifo", "5%", write="around", admission="second-access")
        self.assertEqual(one, tanada.compare(trace, "s3-fifo", "5%", **keys)[0])

    def test_curves_are_those_of_the_command_line(self) -> None:
        file = generated(self.dir.name)
        expected = answer("sim", "cache", file, "--policy", "lru,arc", "--curve", "--sample", "20%")
        self.assertEqual(tanada.curves(file, "lru,arc", sample=0.2).rows(), expected)

    def test_a_trace_that_names_objects_counts_requests(self) -> None:
        file = os.path.join(self.dir.name, "objects.csv")
        with open(file, "w", encoding="ascii") as out:
            out.write("time,obj,size\n1,7,100\n2,8,100\n3,7,100\n")
        rows = tanada.compare(file, "lru", "2obj", jobs=1).rows()
        self.assertEqual(rows, answer("sim", "cache", file, "--policy", "lru", "--size", "2obj"))
        self.assertEqual((rows[0]["unit"], rows[0]["misses"]), ("request", 2))

    def test_a_real_trace_gives_the_command_line_s_numbers(self) -> None:
        if TRACES is None:
            self.skipTest("there are no public traces")
        file = os.path.join(TRACES, "cloudphysics", "cloudPhysicsIO.vscsi.zst")
        words = ("--policy", "lru,s3-fifo", "--size", "1%,10%")
        rows = tanada.compare(file, "lru,s3-fifo", "1%,10%").rows()
        self.assertEqual(rows, answer("sim", "cache", file, *words))

    def test_results_say_what_they_are(self) -> None:
        comparison = tanada.compare(self.small, "lru,belady", ["1obj", "2obj"])
        self.assertEqual(len(comparison), 4)
        self.assertEqual(comparison.best("2obj").policy, "lru")
        self.assertEqual(comparison.to_dict()["size"], ["1obj", "2obj"] * 2)
        self.assertEqual(comparison[0].misses, comparison[0]["misses"])
        self.assertIn("lru at 1obj", repr(comparison[0]))
        for it in (comparison, comparison[0], tanada.read_trace(self.small)):
            tags = Tags(it._repr_html_())
            self.assertEqual((tags.open, tags.found[0]), ([], "table"))

    def test_names_of_files_are_escaped_in_notebooks(self) -> None:
        odd = os.path.join(self.dir.name, "<b>.csv")
        os.rename(self.small, odd)
        self.assertNotIn("b", Tags(tanada.read_trace(odd)._repr_html_()).found)

    def test_an_error_is_an_exception_with_the_library_s_sentence(self) -> None:
        for wrong, error, words in [
            (lambda: tanada.read_trace("/nope"), tanada.TraceError, "cannot read the trace /nope"),
            (lambda: tanada.read_trace(self.small, "tar"), tanada.TraceError, "there is no trace format 'tar'"),
            (lambda: tanada.read_trace(self.small, start=5), tanada.TraceError, "no request in what was asked for"),
            (lambda: tanada.read_trace([]), tanada.TraceError, "no trace file was named"),
            (lambda: tanada.simulate(self.small, "mru"), tanada.SimulationError, "'mru' is no replacement policy"),
            (lambda: tanada.simulate(self.small, "lru", "3"), tanada.SimulationError, "'3' is no cache size"),
            (lambda: tanada.simulate(self.small, unit="3B"), tanada.SimulationError, "'3B' is no unit"),
            (lambda: tanada.simulate(self.small, write="pass"), tanada.SimulationError, "caches nothing"),
        ]:
            with self.subTest(words), self.assertRaises(error) as raised:
                wrong()
            self.assertIn(words, str(raised.exception))
            self.assertIsInstance(raised.exception, (tanada.TanadaError, ValueError))

    def test_other_threads_run_while_a_simulation_does(self) -> None:
        trace = tanada.read_trace(generated(self.dir.name, 300_000))
        done = threading.Event()
        work = threading.Thread(target=lambda: (tanada.compare(trace, jobs=1), done.set()))
        work.start()
        turns = 0
        while not done.is_set():
            turns += 1
            time.sleep(0.001)
        work.join()
        self.assertGreater(turns, 20)

    def test_ctrl_c_ends_a_comparison(self) -> None:
        trace = tanada.read_trace(generated(self.dir.name, 300_000))
        begun = time.monotonic()
        tanada.simulate(trace, "w-tinylfu", "1%")
        one = time.monotonic() - begun
        threading.Timer(0.3, lambda: signal.raise_signal(signal.SIGINT)).start()
        begun = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            tanada.compare(trace, "w-tinylfu", [f"{n}obj" for n in range(1000, 2000)], jobs=1)
        self.assertLess(time.monotonic() - begun, 30 * one + 10)
        self.assertEqual(len(tanada.compare(trace, "lru", "1%")), 1)


if __name__ == "__main__":
    unittest.main()
