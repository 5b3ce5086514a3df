"""Samples of a remote archive, against a real local server that breaks off, ignores ranges and lies."""

import hashlib
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import yaml
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from lmu_scaling.config import validate
from lmu_scaling.corpus import sample as module
from lmu_scaling.corpus.download import RetryLimits
from lmu_scaling.corpus.members import Member, read_blocks, read_members
from lmu_scaling.corpus.sample import choose, local_sample, remote_sample
from lmu_scaling.errors import ConfigError, CorpusError, DiskFull, DownloadError
from lmu_scaling.experiment import data_spec
from lmu_scaling.paths import REPOSITORY
from lmu_scaling.planning.cost_model import corpus_size
from lmu_scaling.runtime import read_json
from tests.corpus_helpers import corpus_settings, fetch, json_lines, run_stages, token_settings, write_tar

QUICK = RetryLimits(attempts=3, pause=0.01, longest_pause=0.02, stall=0.5)
SAMPLE = 300_000
SMALL = token_settings(vocab=300)  # quick to load


def noise(seed):
    """Words that do not compress well, as real text."""
    letters = np.random.default_rng(seed).integers(97, 123, 900, dtype=np.uint8)
    letters[::7] = 32
    return letters.tobytes().decode()


def zst_in_small_blocks(data):
    """A short file that can be cut like a long one: a block per kilobyte instead of 128."""
    packer = zstandard.ZstdCompressor(3).compressobj()
    pieces = [
        packer.compress(data[i : i + 1000]) + packer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        for i in range(0, len(data), 1000)
    ]
    return b"".join([*pieces, packer.flush()])


@pytest.fixture(autouse=True)
def short_pieces(monkeypatch):
    monkeypatch.setattr(module, "SHORTEST_PIECE", 1 << 12)


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """Months of different sizes, one with a name too long for a plain header, and a file that is no text."""
    months = {
        f"months/RS_{2005 + i // 12}-{i % 12 + 1:02d}.jsonl.zst": range(i * 400, i * 400 + 20 + 12 * i)
        for i in range(24)
    }
    members = {name: zst_in_small_blocks(json_lines([noise(i) for i in numbers])) for name, numbers in months.items()}
    members["long/" + "x" * 200 + ".jsonl.zst"] = zst_in_small_blocks(
        json_lines([noise(90_000 + i) for i in range(300)])
    )
    members["README.md"] = b"not text"
    return write_tar(tmp_path_factory.mktemp("their") / "file.tar", members)


class Handler(BaseHTTPRequestHandler):
    """The path's first word says how to behave."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        behaviour = self.path.split("/")[1]
        wanted = self.headers.get("Range")
        self.server.requests.append((behaviour, wanted))
        first, last = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", wanted).groups())
        getattr(self, behaviour)(first, last)

    def reply(
        self, body, first, last, status=206, total=None, length=None, content_range=None, kind="application/x-tar"
    ):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        if status == 206:
            total = len(self.server.data) if total is None else total
            self.send_header("Content-Range", content_range or f"bytes {first}-{last}/{total}")
        self.end_headers()
        self.wfile.write(body)

    def honest(self, first, last):
        self.reply(self.server.data[first : last + 1], first, last)

    def unknown_total(self, first, last):
        self.reply(self.server.data[first : last + 1], first, last, total="*")

    def breaks(self, first, last):
        """Sends at most 2,500 bytes per connection."""
        self.reply(self.server.data[first : min(last + 1, first + 2500)], first, last, length=last + 1 - first)
        self.close_connection = True

    def busy(self, first, last):
        if len(self.server.requests) % 2:
            return self.reply(b"later", first, last, status=503)
        return self.honest(first, last)

    def stops(self, first, last):
        """Delivers the headers and three pieces, then nothing more."""
        self.server.pieces += last - first > 5000
        if self.server.pieces > 3:
            return self.reply(b"gone", first, last, status=404)
        return self.honest(first, last)

    def ignores_ranges(self, first, last):
        self.reply(self.server.data, first, last, status=200)

    def another_file(self, first, last):
        self.reply(self.server.data[first : last + 1], first, last, total=len(self.server.data) + 512)

    def another_range(self, first, last):
        self.reply(self.server.data[first - 1 : last], first, last, content_range=f"bytes {first + 512}-{last}/*")

    def short(self, first, last):
        self.reply(self.server.data[first:last], first, last)

    def long(self, first, last):
        """More than was asked for, and never says how much."""
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{last}/{len(self.server.data)}")
        self.end_headers()
        self.wfile.write(self.server.data[first : last + 1] + b"and more")
        self.close_connection = True

    def zeros(self, first, last):
        self.reply(bytes(last + 1 - first), first, last)

    def noise(self, first, last):
        self.reply(np.random.default_rng(first).bytes(last + 1 - first), first, last)

    def noisy_pieces(self, first, last):
        """True headers, false content."""
        return self.noise(first, last) if last - first > 5000 else self.honest(first, last)

    def html(self, first, last):
        self.reply(b"<html>Sorry</html>", first, last, status=200, kind="text/html")

    def missing(self, first, last):
        self.reply(b"gone", first, last, status=404)

    def never(self, first, last):
        self.reply(b"", first, last, length=last + 1 - first)
        self.close_connection = True

    def log_message(self, *args):
        pass


@pytest.fixture
def server(archive):
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.requests, server.pieces, server.data = [], 0, archive.read_bytes()
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        server.url = lambda behaviour: f"http://127.0.0.1:{server.server_port}/{behaviour}/file.tar"
        yield server
        server.shutdown()
        thread.join()


def entry(server, *behaviours):
    facts = {"kind": "download", "licence": "none", "citation": "none", "file": "file.tar", "documents": 4000}
    mirrors = [server.url(behaviour) for behaviour in behaviours]
    return facts | {"size": len(server.data), "sha256": hashlib.sha256(server.data).hexdigest(), "mirrors": mirrors}


def take(server, tmp_path, *behaviours, sample=SAMPLE):
    return remote_sample(entry(server, *behaviours), tmp_path / "sample", sample, QUICK)


def texts(members):
    blocks = [block for member in members for block in read_blocks(member)]
    assert not [bad for block in blocks for bad in block.bad]
    return [text for block in blocks for text in block.texts]


@pytest.fixture(scope="module")
def whole(archive):
    return {text: member for member in module.archive_members(archive, archive.parent) for text in texts([member])}


def test_a_sample_is_whole_documents_from_all_over_the_archive(server, tmp_path, whole):
    members, facts = take(server, tmp_path, "honest")
    found = texts(members)
    assert set(found) <= set(whole)
    assert len(found) == len(set(found)) > 100
    assert 0.9 * SAMPLE <= facts["size"] == sum(member.size for member in members) <= SAMPLE
    assert len({member.name for member in members}) >= 10
    sent = sum(int(b) - int(a) + 1 for a, b in (re.findall(r"\d+", wanted) for _, wanted in server.requests))
    assert sent <= SAMPLE + 8192 * 40 < len(server.data) / 2


def test_the_same_sample_comes_from_a_copy_on_this_machine(server, tmp_path, archive):
    members, facts = take(server, tmp_path, "honest")
    local, local_facts = local_sample(archive, SAMPLE, tmp_path)
    assert texts(local) == texts(members)
    assert local_facts["sha256"] == facts["sha256"]
    assert texts(take(server, tmp_path / "more", "honest", sample=SAMPLE * 2)[0]) != texts(members)


@pytest.mark.parametrize("behaviour", ["breaks", "busy", "unknown_total"])
def test_a_poor_connection_gives_the_same_sample(server, tmp_path, behaviour):
    reference = take(server, tmp_path / "honest", "honest")
    members, facts = take(server, tmp_path / behaviour, behaviour)
    assert texts(members) == texts(reference[0])
    assert facts["sha256"] == reference[1]["sha256"]


def test_a_later_run_fetches_only_what_is_missing(server, tmp_path):
    with pytest.raises(DownloadError, match="HTTP status 404"):
        take(server, tmp_path, "stops")
    first = [wanted for _, wanted in server.requests]
    server.pieces = -1000
    members, _ = take(server, tmp_path, "stops")
    later = [wanted for _, wanted in server.requests[len(first) :]]
    assert set(later) & set(first) == {first[-1]}, "only the range that failed is asked for again"
    assert texts(members) == texts(take(server, tmp_path / "honest", "honest")[0])
    count = len(server.requests)
    take(server, tmp_path, "stops")
    assert len(server.requests) == count, "a third run asks for nothing"


def test_a_piece_that_was_interrupted_is_continued(server, tmp_path):
    members, _ = take(server, tmp_path, "honest")
    piece = max((Path(member.path) for member in members), key=lambda path: path.stat().st_size)
    data, (first, size) = piece.read_bytes(), map(int, piece.name.split("-"))
    piece.unlink()
    piece.with_name(piece.name + ".partial").write_bytes(data[:1000])
    take(server, tmp_path, "honest")
    assert server.requests[-1] == ("honest", f"bytes={first + 1000}-{first + size - 1}")
    assert piece.read_bytes() == data


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ("ignores_ranges", "ignores ranges"),
        ("another_file", "bytes instead of"),
        ("another_range", "wrong range"),
        ("short", "answer has 4095 bytes instead of 4096"),
        ("long", "more bytes than the file has"),
        ("zeros", "is more than the archive has"),
        ("noise", "not a complete tar archive"),
        ("noisy_pieces", "is damaged: not readable as zst"),
        ("html", "an HTML page came instead"),
        ("missing", "HTTP status 404"),
        ("never", "gave up after 3 attempts"),
    ],
)
def test_a_bad_mirror_is_named_with_its_fault_and_the_next_one_delivers(server, tmp_path, behaviour, reason):
    with pytest.raises(DownloadError) as error:
        take(server, tmp_path / "alone", behaviour)
    assert reason in error.value.what
    assert server.url(behaviour) in error.value.what
    assert "remove corpus.sample" in error.value.remedy
    members, _ = take(server, tmp_path / "both", behaviour, "honest")
    assert texts(members) == texts(take(server, tmp_path / "honest", "honest")[0])


def test_nothing_of_a_false_archive_is_kept(server, tmp_path):
    with pytest.raises(DownloadError):
        take(server, tmp_path, "noise")
    assert [path.name for path in (tmp_path / "sample").rglob("*") if path.is_file()] == ["sample.lock"]
    with pytest.raises(DownloadError):
        take(server, tmp_path / "more", "noisy_pieces")
    kept = [path for path in (tmp_path / "more").rglob("*-*") if path.is_file()]
    assert all(path.stat().st_size <= 4096 for path in kept), "headers only"


def test_space_is_checked_before_the_first_piece(server, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "check_space", lambda folder, name, needed: module_check(folder, name, needed + 10**18))
    with pytest.raises(DiskFull, match="the sample needs"):
        take(server, tmp_path, "honest")
    assert all(int(b) - int(a) < 5000 for a, b in (re.findall(r"\d+", wanted) for _, wanted in server.requests))


module_check = module.check_space


# ------------------------------------------------------------------------------------------------------------- choice
@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=60), st.integers(1, 10**8), st.randoms())
def test_a_choice_lies_inside_its_members_reaches_its_size_and_ignores_their_order(sizes, sample, random):
    ends = np.cumsum([0, *(size + 512 for size in sizes)])
    members = [
        Member(f"{i}", "jsonl", size, "a.tar", int(end)) for i, (size, end) in enumerate(zip(sizes, ends, strict=False))
    ]
    if sample >= sum(sizes):
        with pytest.raises(CorpusError, match="more than the archive has"):
            choose(members, sample, "a.tar")
        return
    chosen = choose(members, sample, "a.tar")
    assert sum(member.size for member in chosen) <= sample
    assert sum(member.size for member in chosen) >= 0.9 * sample - len(members)
    for piece in chosen:
        member = members[int(piece.name)]
        assert (piece.offset, piece.path) == (member.offset, member.path)
        assert 0 < piece.size <= member.size
        assert (piece.options == {"cut": True}) is (piece.size < member.size)
    random.shuffle(members)
    assert choose(members, sample, "a.tar") == chosen


def test_members_contribute_in_proportion_to_their_size():
    members = [Member(f"{i}", "jsonl", 10**6 * (i + 1), "a.tar", 10**9 * i) for i in range(30)]
    total = sum(member.size for member in members)
    sizes = {member.name: member.size for member in choose(members, total // 4, "a.tar")}
    largest = [sizes.get(str(i), 0) / (10**6 * (i + 1)) for i in range(15, 30)]
    assert 0.1 < min(largest) <= max(largest) < 0.5


# ------------------------------------------------------------------------------------------- the way to the data spec
def settings_for(server, tmp_path, behaviour="honest", **changes):
    path = tmp_path / "datasets.yaml"
    path.write_text(yaml.safe_dump({"mine": entry(server, behaviour)}))
    return corpus_settings(source="mine", **({"sample": "300 kB"} | changes)), path


def test_a_sample_becomes_shards_and_its_identity_is_that_of_its_pieces(server, tmp_path, archive):
    identities = []
    for i, changes in enumerate(
        ({}, {"path": str(archive)}, {"sample": "200 kB"}, {"path": str(archive), "sample": None})
    ):
        settings, catalog = settings_for(server, tmp_path, **changes)
        index = read_json(run_stages(tmp_path / str(i), settings, SMALL, catalog) / "index.json")
        identities.append((index["source"]["identity"], index["digest"]))
        assert any("the catalogue says" in warning for warning in index["warnings"]) is (i == 3)
    assert identities[0] == identities[1]
    assert len(set(identities)) == 3


def test_a_sample_is_refused_in_three_lines_when_nothing_delivers_it(server, tmp_path):
    settings, catalog = settings_for(server, tmp_path, "missing")
    with pytest.raises(DownloadError) as error:
        fetch(settings, catalog, tmp_path / "data", tmp_path / "source.json")
    lines = str(error.value).splitlines()
    assert lines[0] == "no mirror delivered a sample of file.tar:"
    assert lines[-2].startswith("  where: ")
    assert lines[-1].startswith("  what to do: ")
    assert not (tmp_path / "source.json").exists()


def test_pieces_are_read_as_documents_without_a_bad_one(server, tmp_path):
    settings, catalog = settings_for(server, tmp_path, max_bad_share=0.0, on_bad_document="stop")
    run_stages(tmp_path, settings, SMALL, catalog)
    members = read_members(tmp_path / "corpus" / "source.json")
    assert any(member.options.get("cut") for member in members)


def config(**corpus):
    raw = yaml.safe_load((REPOSITORY / "config.yaml").read_text())
    raw["corpus"] |= {"source": "openwebtext2"} | corpus
    return raw


def test_the_size_of_a_sample_is_part_of_the_data_spec_however_it_is_written():
    specs = [data_spec(validate(config(sample=sample))) for sample in ("500 MB", "0.5 GB", 500_000_000, "1 GB", None)]
    assert specs[0] == specs[1] == specs[2]
    assert len({spec.settings for spec in specs}) == 3


def test_the_plan_expects_the_sample_and_not_the_archive():
    whole, part = (corpus_size(validate(config(sample=sample))) for sample in (None, "500 MB"))
    assert part.raw_bytes == 500_000_000 < whole.raw_bytes
    assert part.tokens < whole.tokens / 50
    assert part.documents < whole.documents / 10


@pytest.mark.parametrize("sample", ["500", "500 MiB", "-1 GB", "much", 0, -5, "0 MB", 1.5])
def test_what_is_no_size_is_refused(sample):
    with pytest.raises(ConfigError, match=r"corpus.sample: "):
        validate(config(sample=sample))


@pytest.mark.parametrize("source", ["sotu", "openwebtext2_parquet"])
def test_only_archives_on_a_server_can_be_sampled(source):
    with pytest.raises(ConfigError, match="only openwebtext2 can be sampled"):
        validate(config(source=source, sample="500 MB"))


def test_a_sample_larger_than_the_archive_is_explained(archive, tmp_path):
    with pytest.raises(CorpusError, match="a sample of 1 GB is more than the archive has") as error:
        local_sample(archive, 10**9, tmp_path)
    assert "corpus.sample" in error.value.remedy
