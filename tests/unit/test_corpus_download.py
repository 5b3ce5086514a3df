"""Downloads against a real local HTTP server that breaks off, ignores ranges, lies, stalls and sends error pages."""

import hashlib
import shutil
import threading
import time
from collections import namedtuple
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import yaml

from lmu_scaling.corpus import download as module
from lmu_scaling.corpus.download import RetryLimits, download
from lmu_scaling.errors import DiskFull, DownloadError, ResultsError
from lmu_scaling.runtime import read_json
from tests.corpus_helpers import corpus_settings, json_lines, run_stages, words, write_tar, zst

DATA = np.random.default_rng(0).bytes(3_000_000)
SHA256 = hashlib.sha256(DATA).hexdigest()
QUICK = RetryLimits(attempts=3, pause=0.01, longest_pause=0.02, stall=0.5)


class Handler(BaseHTTPRequestHandler):
    """The path's first word says how to behave; every request is noted."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        server = self.server
        behaviour = self.path.split("/")[1]
        wanted = self.headers.get("Range")
        server.requests.append((behaviour, wanted))
        start = int(wanted.split("=")[1].rstrip("-")) if wanted else 0
        getattr(self, behaviour)(start, sum(b == behaviour for b, _ in server.requests))

    def reply(self, body, status=200, start=0, length=None, kind="application/x-tar", content_range=None):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        if status == 206:
            self.send_header(
                "Content-Range", content_range or f"bytes {start}-{len(self.server.data) - 1}/{len(self.server.data)}"
            )
        self.end_headers()
        self.wfile.write(body)

    def honest(self, start, count):
        self.reply(self.server.data[start:], 206 if start else 200, start)

    def squared(self, start, count):
        """A length in digits that are not decimal."""
        self.reply(b"", length="²")

    def endless(self, start, count):
        self.reply(b"", length="9" * 5000)

    def redirect(self, target):
        self.send_response(302)
        self.send_header("Location", target)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def astray(self, start, count):
        self.redirect("http://[nowhere/")

    def nameless(self, start, count):
        self.redirect("https://a..b/")

    def latin(self, start, count):
        self.redirect("https://caf\xe9/")

    def breaks(self, start, count):
        """Sends a quarter of the file per request."""
        self.reply(
            self.server.data[start : start + 800_000],
            206 if start else 200,
            start,
            length=len(self.server.data) - start,
        )
        self.close_connection = True

    def half(self, start, count):
        """Sends half of the file, whatever is asked, and calls it the whole."""
        self.reply(self.server.data[: len(self.server.data) // 2])

    def no_ranges(self, start, count):
        """Breaks off at first, then sends everything from the start although a range was asked for."""
        self.reply(self.server.data[:1_000_000] if count == 1 else self.server.data, length=len(self.server.data))
        self.close_connection = True

    def never_whole(self, start, count):
        self.reply(self.server.data[:1_000_000], length=len(self.server.data))
        self.close_connection = True

    def silently_short(self, start, count):
        """Never says how long the file is, and ends too early; a client that asks without end is turned away."""
        if count > 20:
            return self.missing(start, count)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.server.data[:1_000_000])
        self.close_connection = True

    def wrong_range(self, start, count):
        if not start:
            return self.breaks(start, count)
        self.reply(
            self.server.data[start - 7 :],
            206,
            length=len(self.server.data) - start + 7,
            content_range=f"bytes {start - 7}-/*",
        )

    def html(self, start, count):
        self.reply(b"<html>Sorry, we have moved</html>", kind="text/html; charset=utf-8")

    def html_called_tar(self, start, count):
        self.reply(b"<html>Sorry, we have moved</html>")

    def lies(self, start, count):
        self.reply(bytes(len(self.server.data) - start), 206 if start else 200, start)

    def nonsense(self, start, count):
        self.reply(self.server.data, length="many")
        self.close_connection = True

    def chatty(self, start, count):
        """Sends more than there is, and never says how much; turns away as above."""
        if count > 20:
            return self.missing(start, count)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.server.data + b"and more")
        self.close_connection = True

    def busy(self, start, count):
        if count < 3:
            self.reply(b"later", 503)
        else:
            self.honest(start, count)

    def missing(self, start, count):
        self.reply(b"gone", 404)

    def stalls(self, start, count):
        self.reply(self.server.data[:500_000], length=len(self.server.data))
        self.server.release.wait(5)
        self.close_connection = True

    def trickles(self, start, count):
        """A byte now and then; a client that puts up with it is turned away in the end."""
        if count > 2:
            return self.missing(start, count)
        self.reply(b"", length=len(self.server.data))
        for byte in self.server.data[:100]:
            self.wfile.write(bytes([byte]))
            if self.server.release.wait(0.05):
                break
        self.close_connection = True

    def poisons(self, start, count):
        """Sends something else, and never all of it."""
        self.reply(bytes(800_000) if not start else b"", 206 if start else 200, start, len(self.server.data) - start)
        self.close_connection = True

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.requests, server.release, server.data = [], threading.Event(), DATA
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        server.url = lambda behaviour: f"http://127.0.0.1:{server.server_port}/{behaviour}/file.tar"
        yield server
        server.release.set()
        server.shutdown()
        thread.join()


def get(server, tmp_path, *behaviours, limits=QUICK):
    target = tmp_path / "data" / "file.tar"
    return download([server.url(b) for b in behaviours], target, len(DATA), SHA256, limits)


def test_a_file_arrives_whole_and_is_not_fetched_twice(server, tmp_path):
    assert get(server, tmp_path, "honest").read_bytes() == DATA
    get(server, tmp_path, "honest")
    assert len(server.requests) == 1
    assert sorted(p.name for p in (tmp_path / "data").iterdir()) == ["file.tar", "file.tar.partial.lock"]


def test_a_broken_transfer_is_resumed_where_it_stopped(server, tmp_path):
    assert get(server, tmp_path, "breaks").read_bytes() == DATA
    assert [r for _, r in server.requests] == [None, *(f"bytes={800_000 * i}-" for i in (1, 2, 3))]


def test_a_later_run_resumes_what_an_earlier_one_left(server, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file.tar.partial").write_bytes(DATA[:1_234_567])
    assert get(server, tmp_path, "honest").read_bytes() == DATA
    assert server.requests == [("honest", "bytes=1234567-")]


def test_a_server_that_ignores_ranges_is_read_from_the_start(server, tmp_path):
    assert get(server, tmp_path, "no_ranges").read_bytes() == DATA
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ("half", "has 1500000 bytes instead of 3000000"),
        ("never_whole", "gave up after 3 attempts"),
        ("silently_short", "gave up after 3 attempts"),
        ("wrong_range", "wrong range"),
        ("html", "an HTML page came instead"),
        ("html_called_tar", "has 33 bytes instead of 3000000"),
        ("lies", f"instead of {SHA256}"),
        ("chatty", "more bytes than the file has"),
        ("missing", "HTTP status 404"),
        ("stalls", "Read timed out"),
        ("trickles", "too slow"),
        ("poisons", "gave up after 3 attempts"),
        ("nonsense", "has 'many' bytes instead of 3000000"),
        ("squared", "invalid literal"),
        ("endless", "Exceeds the limit"),
        ("astray", "Invalid IPv6 URL"),
        ("nameless", "label empty or too long"),
        ("latin", "invalid continuation byte"),
    ],
)
def test_a_bad_mirror_is_named_with_its_fault_and_the_next_one_delivers(server, tmp_path, behaviour, reason):
    with pytest.raises(DownloadError) as error:
        get(server, tmp_path / "alone", behaviour)
    assert reason in error.value.what
    assert server.url(behaviour) in error.value.what
    assert not (tmp_path / "alone" / "data" / "file.tar").exists(), "only a verified file gets its final name"
    assert get(server, tmp_path / "both", behaviour, "honest").read_bytes() == DATA


def test_wrong_content_is_reported_with_both_checksums_and_not_kept(server, tmp_path):
    with pytest.raises(DownloadError) as error:
        get(server, tmp_path, "lies")
    assert SHA256 in error.value.what
    assert hashlib.sha256(bytes(len(DATA))).hexdigest() in error.value.what
    assert not list((tmp_path / "data").glob("*.partial"))


def test_a_busy_server_is_asked_again(server, tmp_path):
    assert get(server, tmp_path, "busy").read_bytes() == DATA


def test_pauses_grow_and_stay_bounded(server, tmp_path, monkeypatch):
    pauses = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    with pytest.raises(DownloadError):
        get(server, tmp_path, "never_whole", limits=RetryLimits(attempts=6, pause=1, longest_pause=5, stall=5))
    assert pauses == [1, 2, 4, 5, 5]


def test_no_connection_is_said_at_once_explained_and_soon_given_up(tmp_path, capsys):
    limits = RetryLimits(attempts=6, unreached=2, pause=0.01)
    with pytest.raises(DownloadError) as error:
        download(["http://127.0.0.1:9/file.tar"], tmp_path / "file.tar", len(DATA), SHA256, limits)
    assert "9/file.tar: gave up after 2 attempts: Failed to establish a new connection: [Errno 111]" in error.value.what
    assert "127.0.0.1: Failed to establish a new connection" in capsys.readouterr().out


def test_a_server_that_was_reached_gets_all_attempts_though_it_refuses_later(server, tmp_path, monkeypatch):
    def close_at_the_first_pause(seconds):
        server.shutdown()
        server.server_close()

    monkeypatch.setattr(time, "sleep", close_at_the_first_pause)
    with pytest.raises(DownloadError, match=r"gave up after 4 attempts: .*Connection refused"):
        get(server, tmp_path, "breaks", limits=RetryLimits(attempts=4, unreached=1, pause=0.01, stall=5))


def test_free_space_is_checked_before_the_first_byte(server, tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")(10, 10, 1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(DiskFull, match=r"needs 3MB more, 1kB are free"):
        get(server, tmp_path, "honest")
    assert server.requests == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_disk_that_fills_up_during_the_transfer_is_explained(server, tmp_path):
    """The partial file is a device that is full."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file.tar.partial").symlink_to("/dev/full")
    with pytest.raises(DiskFull, match="no space left") as error:
        get(server, tmp_path, "honest")
    assert "file.tar.partial" in error.value.where
    assert not (tmp_path / "data" / "file.tar").exists()


@pytest.mark.parametrize("behaviour", ["honest", "breaks", "html", "lies"])
def test_a_catalogued_source_is_fetched_past_a_bad_mirror_and_becomes_shards(server, tmp_path, behaviour):
    """The whole way, from the catalogue's mirrors to tokens."""
    texts = [words(i) for i in range(60)]
    server.data = write_tar(tmp_path / "their.tar", {"1.jsonl.zst": zst(json_lines(texts))}).read_bytes()
    entry = {"kind": "download", "licence": "none", "citation": "none", "file": "file.tar", "size": len(server.data)}
    entry |= {"sha256": hashlib.sha256(server.data).hexdigest()}
    entry |= {"mirrors": [server.url(behaviour), server.url("honest")]}
    catalog = tmp_path / "datasets.yaml"
    catalog.write_text(yaml.safe_dump({"mine": entry}))
    shards = run_stages(tmp_path, corpus_settings(source="mine"), catalog=catalog)
    splits = read_json(shards / "index.json")["splits"].values()
    assert sum(split["documents"] for split in splits) == len(texts)
    assert (tmp_path / "data" / "mine" / "file.tar").read_bytes() == server.data


def test_two_processes_do_not_write_the_same_file(server, tmp_path):
    results = []
    threads = [threading.Thread(target=lambda: results.append(get(server, tmp_path, "breaks"))) for _ in range(3)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(results) == 3
    assert (tmp_path / "data" / "file.tar").read_bytes() == DATA
    assert len(server.requests) == 4, "one of them downloads, the others wait and find the file"


def test_a_damaged_file_under_the_final_name_is_replaced(server, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file.tar").write_bytes(bytes(len(DATA)))
    assert get(server, tmp_path, "honest").read_bytes() == DATA
    assert module.CHUNK >= 1 << 16


def test_a_file_in_place_of_the_folder_for_downloads_is_explained(server, tmp_path):
    (tmp_path / "data").write_text("not a folder")
    with pytest.raises(ResultsError, match="cannot write: "):
        get(server, tmp_path, "honest")
    assert not server.requests
