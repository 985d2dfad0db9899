"""Stores: objects as the command line has them, files over several stores, reservations of a real daemon."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tempfile
import threading
import time
import unittest

import tanada

TANADA = os.environ["TANADA"]

NODE = """
data_dir = "data"

[[device]]
name = "d0"
path = "d0.img"
size = "1GiB"
[[device]]
name = "d1"
path = "d1.img"
size = "1GiB"
[[store]]
name = "s0"
device = "d0"
listen = "unix:DIR/s0.sock"
create = true
read_speed = "200MB/s"
write_speed = "200MB/s"
[[store]]
name = "s1"
device = "d1"
listen = "unix:DIR/s1.sock"
create = true
read_speed = "200MB/s"
write_speed = "200MB/s"
[cluster]
node = "n1"
nbd = "unix:disks.sock"
[admin]
listen = ["unix:DIR/admin.sock"]
"""


class Node(unittest.TestCase):
    """One daemon with two stores of a cluster, for all tests."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.dir = tempfile.TemporaryDirectory(dir="/tmp")
        cls.addClassCleanup(cls.dir.cleanup)
        cls.path = cls.dir.name
        with open(os.path.join(cls.path, "node.toml"), "w", encoding="utf-8") as file:
            file.write(NODE.replace("DIR", cls.path))
        cls.log = open(os.path.join(cls.path, "log"), "w+b")
        cls.addClassCleanup(cls.log.close)
        cls.daemon = subprocess.Popen([TANADA, "serve", "node.toml"], cwd=cls.path, stdout=cls.log, stderr=cls.log)
        cls.addClassCleanup(cls.end)
        cls.admin = f"unix:{cls.path}/admin.sock"
        until = time.monotonic() + 60
        while cls.command("node", "list", check=False).returncode:
            if cls.daemon.poll() is not None or time.monotonic() > until:
                cls.log.seek(0)
                raise AssertionError(cls.log.read().decode())
            time.sleep(0.2)

    @classmethod
    def end(cls) -> None:
        cls.daemon.terminate()
        cls.daemon.wait(60)

    @classmethod
    def command(cls, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "TANADA_ADMIN": cls.admin}
        done = subprocess.run([TANADA, *words], cwd=cls.path, env=environment, capture_output=True, text=True)
        if check and done.returncode:
            raise AssertionError(f"{words}: {done.stderr}")
        return done

    def reserved(self, **terms: str) -> tanada.Reservation:
        terms = {"scope": f"{self.id().rsplit('.', 1)[-1]}/", "for_": "5m", **terms}
        reservation = tanada.reserve(["s0", "s1"], admin=self.admin, **terms)
        self.addCleanup(reservation.release)
        return reservation

    def both(self) -> tanada.Reservation:
        return self.reserved(read="20MB/s", write="20MB/s")

    @property
    def scope(self) -> str:
        return f"{self.id().rsplit('.', 1)[-1]}/"

    def test_a_file_over_two_stores_is_written_and_read(self) -> None:
        name = self.scope + "a"
        data = os.urandom(3_000_001)
        with self.both() as reservation:
            with reservation.open(name, "xb", stripe=64 << 10) as out:
                for at in range(0, len(data), 700_000):
                    out.write(data[at : at + 700_000])
                with self.assertRaises(tanada.NotFound):
                    reservation.open(name)
            with reservation.open(name) as file:
                self.assertEqual((file.size, file.head["width"], file.head["stripe"]), (len(data), 2, 64 << 10))
                buffer = bytearray(1_000_000)
                self.assertEqual(file.readinto(buffer), 1_000_000)
                self.assertEqual(buffer, data[:1_000_000])
                self.assertEqual(file.seek(-5, os.SEEK_END), len(data) - 5)
                self.assertEqual(file.read(), data[-5:])
                self.assertEqual(file.read(10), b"")
            buffered = io.BufferedReader(reservation.open(name), 100_000)
            self.assertEqual(buffered.read(), data)
            with self.assertRaises(tanada.Exists):
                reservation.open(name, "xb")
            names = {at: [it["name"] for it in reservation.stores.list(name, at=at)] for at in (0, 1)}
            self.assertEqual((len(names[0]), len(names[1])), (2, 1))

    def test_readers_see_the_old_file_or_the_new_one(self) -> None:
        name = self.scope + "a"
        with self.both() as reservation:
            with reservation.open(name, "wb", stripe=4096) as out:
                out.write(b"old" * 10_000)
            old = reservation.open(name)
            with self.assertRaises(ZeroDivisionError), reservation.open(name, "wb") as out:
                out.write(b"half")
                raise ZeroDivisionError
            self.assertEqual(old.read(6), b"oldold")
            first, second = (reservation.open(name, "wb", stripe=4096) for _ in range(2))
            first.write(b"first" * 10_000)
            second.write(b"second" * 10_000)
            second.close()
            with self.assertRaises(tanada.StoreError):
                first.close()
            with self.assertRaises(tanada.Conflict):
                old.read(1)
            self.assertEqual(reservation.open(name).read(), b"second" * 10_000)

    def test_small_writes_go_through_a_buffer(self) -> None:
        name = self.scope + "a"
        with self.both() as reservation:
            with io.BufferedWriter(reservation.open(name, "wb"), 1 << 20) as out:
                for n in range(50_000):
                    out.write(b"%d\n" % n)
            lines = io.BufferedReader(reservation.open(name)).readlines()
            self.assertEqual((len(lines), lines[-1]), (50_000, b"49999\n"))

    def test_objects_are_those_of_the_command_line(self) -> None:
        name = self.scope + "note"
        with self.both() as reservation, tanada.connect(
            f"unix:{self.path}/s0.sock", capability=reservation.capability
        ) as stores:
            self.assertEqual(stores.names, ["s0"])
            data = os.urandom(2_500_000)
            stores.put(name, data)
            self.assertEqual(stores.get(name), data)
            at = ("--store", f"unix:{self.path}/s0.sock", "--capability", reservation.capability, "--json")
            shown = json.loads(self.command("object", "show", name, *at).stdout)
            self.assertEqual(stores.head(name), shown)
            listed = json.loads(self.command("object", "list", self.scope, *at).stdout)
            self.assertEqual(stores.list(self.scope), listed)
            with self.assertRaises(tanada.Refused):
                stores.put(name, b"", new=True)
            stores.put(name, bytearray(b"short"))
            self.assertEqual(stores.get(name), b"short")
            with self.assertRaises(tanada.StoreError):
                stores.open(name)
            stores.delete(name)
            with self.assertRaises(tanada.NotFound) as raised:
                stores.get(name)
            self.assertIsInstance(raised.exception, FileNotFoundError)

    def test_a_capability_allows_its_scope_and_its_direction(self) -> None:
        with self.reserved(read="10MB/s") as reservation:
            with self.assertRaises(tanada.Refused):
                reservation.open(self.scope + "a", "wb")
            with self.assertRaises(tanada.Refused):
                reservation.open("elsewhere/a")
        with self.reserved(write="10MB/s") as reservation:
            for _ in range(2):
                with reservation.open(self.scope + "b", "wb") as out:
                    out.write(b"by a writer that may not read")
            with self.assertRaises(tanada.StoreError):
                reservation.open(self.scope + "b")

    def test_a_capability_of_the_environment_opens_files(self) -> None:
        with self.both() as reservation:
            os.environ["TANADA_CAPABILITY"] = reservation.capability
            self.addCleanup(os.environ.pop, "TANADA_CAPABILITY")
            with tanada.open(self.scope + "a", "wb") as out:
                out.write(b"answer")
            self.assertEqual(tanada.open(self.scope + "a").read(), b"answer")

    def test_what_does_not_fit_says_what_would(self) -> None:
        with self.assertRaises(tanada.ReservationError) as raised:
            self.reserved(read="900MB/s")
        self.assertIn("900 MB/s", str(raised.exception))
        self.assertIn("largest", json.dumps(raised.exception.offer))
        with self.assertRaises(tanada.ReservationError):
            tanada.reserve("s0", scope="a/", read="1MB/s", admin=f"unix:{self.path}/no.sock")

    def test_a_reservation_is_extended_and_released(self) -> None:
        reservation = self.reserved(read="10MB/s", name="extended")
        until = reservation.to_dict()["until_unix_seconds"]
        reservation.extend("1h")
        self.assertGreater(reservation.to_dict()["until_unix_seconds"], until + 1000)
        self.assertNotIn("capability", reservation.to_dict())
        self.assertIn("extended", reservation._repr_html_())
        reservation.release()
        listed = json.loads(self.command("reservation", "list", "--json").stdout)
        states = [it["state"] for it in listed if it["name"] == "extended"]
        self.assertIn(states, ([], ["ended"]))

    def test_other_threads_run_while_a_store_is_awaited(self) -> None:
        with self.both() as reservation:
            with reservation.open(self.scope + "a", "wb") as out:
                out.write(bytes(8 << 20))
            done = threading.Event()
            read = threading.Thread(target=lambda: (reservation.open(self.scope + "a").read(), done.set()))
            read.start()
            turns = 0
            while not done.is_set():
                turns += 1
                time.sleep(0.001)
            read.join()
            self.assertGreater(turns, 3)

    def test_an_address_where_no_store_is_says_so(self) -> None:
        with self.assertRaises(tanada.StoreError) as raised:
            tanada.connect(f"unix:{self.path}/nothing.sock")
        self.assertIn("cannot reach the store", str(raised.exception))
        with self.assertRaises(tanada.StoreError):
            tanada.connect(capability="tanadaset1.!")
        with self.assertRaises(tanada.StoreError):
            tanada.connect()


if __name__ == "__main__":
    unittest.main()
