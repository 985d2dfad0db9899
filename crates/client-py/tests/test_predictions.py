"""Predictions: the same as the command line's, on the paper's own measurements."""

from __future__ import annotations

import os
import tempfile
import unittest

import tanada
from support import answer, run

AT = {"read-16K-latency": "12us", "write-64K-latency": "50us"}


class Predictions(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.dir = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.dir.cleanup)
        cls.data = os.path.join(cls.dir.name, "scm.csv")
        run("predict", "import", "--published", "--into", cls.data)

    def estimated(self, *words: object) -> list[dict[str, object]]:
        return answer("predict", "estimate", self.data, *words)

    def test_a_device_described_by_its_figures_is_predicted_as_on_the_command_line(self) -> None:
        at = [word for name, value in AT.items() for word in ("--at", f"{name}={value}")]
        for keys, words in [
            ({}, ()),
            ({"level": 0.8, "runs": "median"}, ("--level", "0.8", "--runs", "median")),
            ({"clients": 8, "cores": 2}, ("--clients", "8", "--cores", "2")),
            ({"counts": {"read-16K-latency": 0.63}}, ("--count", "read-16K-latency=0.63")),
            ({"floor": {"read-16K-latency": "2us"}}, ("--floor", "read-16K-latency=2us")),
            ({"terms": ["read-16K-latency"]}, ("--terms", "read-16K-latency")),
        ]:
            with self.subTest(keys):
                prediction = tanada.predict(self.data, at=AT, **keys)
                self.assertEqual(prediction.rows(), self.estimated(*at, *words))

    def test_a_device_of_the_data_set_is_predicted_as_on_the_command_line(self) -> None:
        prediction = tanada.predict(self.data, "NAND Flash")
        self.assertEqual(prediction.rows(), self.estimated("--device", "NAND Flash"))
        first = prediction[0]
        self.assertLess(first.low, first.latency)
        self.assertEqual(first.latency, first["latency"])
        self.assertIn("NAND Flash", repr(prediction))
        self.assertIn("<table>", prediction._repr_html_())

    def test_a_study_is_that_of_the_command_line(self) -> None:
        study = tanada.fit(self.data)
        self.assertEqual(study.to_dict(), answer("predict", "fit", self.data))
        self.assertIn("<table>", study._repr_html_())

    def test_what_cannot_be_predicted_says_why(self) -> None:
        for keys, words in [
            ({}, "which device?"),
            ({"device": "nvme9"}, "the data set has no device 'nvme9'; it has "),
            ({"at": {"read-16K-latency": "12 parsecs"}}, "no unit known here"),
            ({"at": {"read-16K-latency": "12MB/s"}}, "read-16K-latency"),
            ({"at": {"read-16K-latency": "9s", "write-64K-latency": "9s"}}, "nothing is predicted"),
            ({"device": "NAND Flash", "level": 2}, "level is a share"),
            ({"device": "NAND Flash", "cores": 2}, "cores needs clients"),
            ({"device": "NAND Flash", "floor": "measured"}, "has no floor"),
        ]:
            with self.subTest(keys), self.assertRaises(tanada.PredictionError) as raised:
                tanada.predict(self.data, **keys)
            self.assertIn(words, str(raised.exception))
        with self.assertRaises(tanada.PredictionError):
            tanada.fit("/nope.csv")


if __name__ == "__main__":
    unittest.main()
