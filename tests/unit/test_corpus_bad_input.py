"""Every kind of bad input: a counted skip or, if so configured, a three-line error, and nothing half-written."""

import gzip
import json
import random
import tarfile
from codecs import BOM_UTF8

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from lmu_scaling.corpus import documents, members
from lmu_scaling.corpus.archives import archive_members
from lmu_scaling.errors import CorpusError, TokensError
from lmu_scaling.runtime import read_json
from lmu_scaling.tokens import tokenizer
from tests.corpus_helpers import (
    CATALOG,
    corpus_settings,
    encode_part,
    fetch,
    json_lines,
    run_stages,
    token_settings,
    words,
    write_tar,
    zst,
)

GOOD = [words(i) for i in range(40)]
ODD_LINES = {
    "json": b'{"text": "unfinished',
    "text": b'{"title": "no text here"}',
    "text: null": b'{"text": null}',
    "text: a number in a list": b'{"text": ["a", 1]}',
    "array": b"[1, 2]",
    "array: its first line": b'[{"text": "a"},',
    "array: a line with its comma": b'{"text": "a"},',
    "array: its end": b"]",
    "text: a number without end": b'{"text": ' + b"1" * 5000 + b"}",
    "utf8": b'{"text": "caf\xe9 au lait"}',
    "utf8: encoded surrogate": b'{"text": "a\xed\xa0\x80b"}',
    "surrogate": b'{"text": "half \\ud800 pair"}',
    "surrogate: the other half": b'{"text": "half \\udc00 pair"}',
    "nul": b'{"text": "a\\u0000b"}',
    "empty": b'{"text": ""}',
    "empty: blanks": b'{"text": " \\n\\t "}',
    "empty: list": b'{"text": []}',
    "json: nested too deeply": b'{"text": ' + b"[" * 100_000,
}


GOOD_LINE = json_lines(GOOD[:1])


def filtered(tmp_path, path, **changes):
    """The counts of a one-part corpus."""
    settings = corpus_settings(path=str(path), **changes)
    fetch_catalogued(settings, tmp_path)
    encode_part(settings, token_settings(), tmp_path / "source.json", 0, tmp_path / "parts")
    return read_json(tmp_path / "parts" / "00000.json")


def fetch_catalogued(settings, tmp_path):
    fetch(settings, CATALOG, tmp_path / "data", tmp_path / "source.json")


def nothing_half_written(folder):
    assert not folder.exists() or not [p for p in folder.rglob("*") if p.is_file()]


@pytest.mark.parametrize("case", ODD_LINES)
def test_an_odd_line_is_skipped_and_counted_by_reason(tmp_path, case):
    path = tmp_path / "a.jsonl"
    path.write_bytes(json_lines([*GOOD[:20], ODD_LINES[case], *GOOD[20:]]))
    counts = filtered(tmp_path, path)
    assert counts["bad"] == {case.split(":")[0]: 1}
    assert counts["kept_documents"] == len(GOOD)
    assert "record 21" in counts["bad_examples"][0]


def test_a_json_array_is_called_that(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps([{"text": text} for text in GOOD], indent=0))
    with pytest.raises(CorpusError) as caught:
        run_stages(tmp_path, corpus_settings(path=str(path)))
    assert "JSON array" in str(caught.value)


@pytest.mark.parametrize("case", ODD_LINES)
def test_an_odd_line_stops_the_run_if_so_configured(tmp_path, case):
    path = tmp_path / "a.jsonl"
    path.write_bytes(json_lines([*GOOD, ODD_LINES[case]]))
    with pytest.raises(CorpusError) as error:
        filtered(tmp_path, path, on_bad_document="stop")
    assert len(str(error.value).splitlines()) == 3
    assert "a.jsonl, record 41" in error.value.where
    nothing_half_written(tmp_path / "parts")


def test_text_as_a_list_is_joined_by_blank_lines(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(json_lines([{"text": ["first", "second"], "meta": {}}, {"text": "third", "meta": ["odd meta"]}]))
    blocks = list(members.read_blocks(members.Member("a", "jsonl", path.stat().st_size, str(path))))
    assert [text for block in blocks for text in block.texts] == ["first\n\nsecond", "third"]


@pytest.mark.parametrize(
    "make", [lambda d: zst(d), lambda d: gzip.compress(d), lambda d: d], ids=["zst", "gz", "plain"]
)
def test_blank_lines_windows_line_ends_and_a_missing_last_newline_are_harmless(tmp_path, make):
    data = b"\n" + json_lines(GOOD).replace(b"\n", b"\r\n\n")[:-3]
    suffix = {b"\x28\xb5": ".jsonl.zst", b"\x1f\x8b": ".jsonl.gz"}.get(make(data)[:2], ".jsonl")
    path = tmp_path / f"a{suffix}"
    path.write_bytes(make(data))
    counts = filtered(tmp_path, path, on_bad_document="stop")
    assert counts["kept_documents"] == len(GOOD)


@pytest.mark.parametrize("keep", [0.3, 0.9, 0.999])
@pytest.mark.parametrize("compress", [zst, gzip.compress], ids=["zst", "gz"])
def test_a_truncated_stream_gives_its_whole_documents_and_is_counted(tmp_path, compress, keep):
    # One frame per document, so that something comes out before the end; only a checksum may be missing at 0.999.
    data = b"".join(compress(json_lines([text])) for text in GOOD)
    path = tmp_path / ("a.jsonl.zst" if compress is zst else "a.jsonl.gz")
    path.write_bytes(data[: int(len(data) * keep)])
    counts = filtered(tmp_path, path)
    assert counts["bad"]["truncated"] == 1
    assert len(GOOD) * (keep - 0.1) < counts["kept_documents"] <= len(GOOD) * (keep + 0.01)


def framed(compress):
    """One frame per document, so that whole ones come out before the damage."""
    return b"".join(compress(json_lines([text])) for text in GOOD)


def damaged_parquet(path):
    """A Parquet file whose listing is sound and whose first row group is not."""
    pq.write_table(pa.table({"text": GOOD * 20}), path, row_group_size=400, compression="zstd", use_dictionary=False)
    data = bytearray(path.read_bytes())
    data[100:600] = bytes(500)
    path.write_bytes(data)


# What is wrong with a whole file → its name, and what makes it.
BAD_FILES = {
    "truncated": ("a.jsonl.zst", lambda path: path.write_bytes(framed(zst)[:-20])),
    "truncated: gz": ("a.jsonl.gz", lambda path: path.write_bytes(framed(gzip.compress)[:-20])),
    "format": ("a.jsonl.zst", lambda path: path.write_bytes(framed(zst) + b"no such thing" * 50)),
    "format: gz": ("a.jsonl.gz", lambda path: path.write_bytes(framed(gzip.compress) + b"no such thing" * 50)),
    "format: parquet": ("a.parquet", damaged_parquet),
    "bomb": ("a.jsonl.zst", lambda path: path.write_bytes(framed(zst) + zst(bytes(200 << 20)))),
    "too_long": ("a.jsonl.zst", lambda path: path.write_bytes(framed(zst) + zst(json_lines(["x" * (3 << 20)])))),
    "utf8: txt": ("a.txt", lambda path: path.write_bytes(b"caf\xe9 au lait")),
    "nul: txt": ("a.txt", lambda path: path.write_bytes(b"a\0b")),
    "too_long: txt": ("a.txt", lambda path: path.write_bytes(b"x" * (3 << 20))),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_bad_file_is_counted_once_and_what_is_sound_in_it_is_read(tmp_path, monkeypatch, case):
    monkeypatch.setattr(members, "MAX_DOCUMENT_BYTES", 2 << 20)
    name, write = BAD_FILES[case]
    write(tmp_path / name)
    counts = filtered(tmp_path, tmp_path / name)
    assert counts["bad"] == {case.split(":")[0]: 1}
    sound = {"truncated": 39, "truncated: gz": 39, "format: parquet": 400}
    assert counts["kept_documents"] == sound.get(case, 0 if name == "a.txt" else len(GOOD))


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_bad_file_stops_the_run_if_so_configured(tmp_path, monkeypatch, case):
    monkeypatch.setattr(members, "MAX_DOCUMENT_BYTES", 2 << 20)
    name, write = BAD_FILES[case]
    write(tmp_path / name)
    with pytest.raises(CorpusError) as error:
        filtered(tmp_path, tmp_path / name, on_bad_document="stop")
    assert len(str(error.value).splitlines()) == 3
    assert name in error.value.where
    nothing_half_written(tmp_path / "parts")


def test_a_member_that_is_not_zst_is_counted_and_others_are_read(tmp_path):
    path = write_tar(tmp_path / "a.tar", {"1.jsonl.zst": b"no such thing" * 50, "2.jsonl.zst": zst(json_lines(GOOD))})
    counts = filtered(tmp_path, path)
    assert counts["bad"] == {"format": 1}
    assert counts["kept_documents"] == len(GOOD)


@pytest.mark.parametrize("cut", [100, 600, 1100])
def test_a_truncated_tar_is_an_error_that_says_so(tmp_path, cut):
    path = write_tar(tmp_path / "a.tar", {f"{i}.jsonl.zst": zst(json_lines(GOOD)) for i in range(3)})
    with tarfile.open(path) as tar:
        last = tar.getmembers()[-1]
    data = path.read_bytes()[: last.offset_data + last.size + 511 - cut]
    path.write_bytes(data)
    with pytest.raises(CorpusError, match="tar archive") as error:
        filtered(tmp_path, path)
    assert "a.tar" in error.value.where
    nothing_half_written(tmp_path / "parts")


def test_a_tar_that_ends_between_two_members_is_noticed(tmp_path):
    path = write_tar(tmp_path / "a.tar", {f"{i}.jsonl.zst": zst(json_lines(GOOD)) for i in range(3)})
    with tarfile.open(path) as tar:
        end = tar.getmembers()[-1].offset
    path.write_bytes(path.read_bytes()[:end])
    with pytest.raises(CorpusError, match="end marker is missing"):
        filtered(tmp_path, path)


def test_hostile_tar_members_are_ignored_and_never_written(tmp_path):
    folder = tmp_path / "deep" / "er"
    folder.mkdir(parents=True)
    path = folder / "a.tar"
    data = zst(json_lines(GOOD))
    write_tar(path, {"../../escaped.jsonl.zst": data, "/tmp/absolute.jsonl.zst": data, "good.jsonl.zst": data})
    with tarfile.open(path, "a") as tar:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE):
            info = tarfile.TarInfo(f"odd-{kind.decode()}.jsonl.zst")
            info.type, info.linkname = kind, "/etc/passwd"
            tar.addfile(info)
    before = {p for p in tmp_path.rglob("*") if p.is_file()}
    counts = filtered(tmp_path, path)
    assert counts["members"] == ["good.jsonl.zst"]
    assert counts["kept_documents"] == len(GOOD)
    made = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()} - {
        p.relative_to(tmp_path).as_posix() for p in before
    }
    assert all(name == "source.json" or name.startswith("parts/") for name in made)


def test_a_decompression_bomb_is_stopped_within_bounded_memory(tmp_path):
    import tracemalloc

    path = tmp_path / "a.jsonl.zst"
    with open(path, "wb") as file, zstandard.ZstdCompressor(19).stream_writer(file) as writer:
        for _ in range(1000):
            writer.write(b"\0" * (1 << 20))
    assert path.stat().st_size < 200_000
    tracemalloc.start()
    blocks = list(members.read_blocks(members.Member("a", "jsonl", path.stat().st_size, str(path), codec="zst")))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [bad.reason for block in blocks for bad in block.bad] == ["bomb"]
    assert peak < 400e6


def test_an_endless_line_is_dropped_as_it_comes_and_the_next_one_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(members, "MAX_DOCUMENT_BYTES", 2 << 20)
    long = json.dumps({"text": "word " * (1 << 20)}).encode()
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(zst(json_lines([GOOD[0], long, GOOD[1], long])))
    counts = filtered(tmp_path, path)
    assert counts["bad"] == {"too_long": 2}
    assert counts["kept_documents"] == 2
    assert "record 2" in counts["bad_examples"][0]


def test_an_endless_line_takes_no_more_memory_than_a_long_one(tmp_path, monkeypatch):
    import tracemalloc

    monkeypatch.setattr(members, "MAX_DOCUMENT_BYTES", 2 << 20)
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(zst(random.Random(0).randbytes(10 << 20).hex().encode()))
    tracemalloc.start()
    member = members.Member("a", "jsonl", path.stat().st_size, str(path), codec="zst")
    bad = [item for block in members.read_blocks(member) for item in block.bad]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [item.reason for item in bad] == ["too_long"]
    assert peak < 10e6, "the line has 21 MB"


def test_a_50_mb_document_is_a_document(tmp_path):
    text = " ".join(GOOD) + "\n"
    text *= (50 << 20) // len(text)
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(zst(json_lines([GOOD[0], text])))
    settings = corpus_settings(path=str(path))
    fetch_catalogued(settings, tmp_path)
    encode_part(settings, token_settings(engine="fastokens"), tmp_path / "source.json", 0, tmp_path / "parts")
    counts = read_json(tmp_path / "parts" / "00000.json")
    assert counts["kept_documents"] == 2
    assert counts["kept_bytes"] == len(text) + len(GOOD[0])


def test_documents_beyond_the_limit_are_refused_whatever_the_format():
    block = documents.Block()
    block.add("x" * (documents.MAX_DOCUMENT_BYTES + 1), None, "here")
    assert [bad.reason for bad in block.bad] == ["too_long"]


def test_a_fast_engine_that_disagrees_on_this_corpus_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    """The engine is given another vocabulary than the reference has."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(json_lines(GOOD))
    settings = corpus_settings(path=str(path))
    fetch_catalogued(settings, tmp_path)
    real = tokenizer._FastEngine
    monkeypatch.setattr(tokenizer, "_FastEngine", lambda vocab: real(vocab // 2))
    with pytest.raises(TokensError, match="disagree on a sample of this corpus") as error:
        encode_part(settings, token_settings(engine="fastokens"), tmp_path / "source.json", 0, tmp_path / "parts")
    assert len(str(error.value).splitlines()) == 3
    nothing_half_written(tmp_path / "parts")


def test_too_many_bad_documents_stop_the_run_with_examples(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(json_lines([*GOOD, *[ODD_LINES["json"]] * 2]))
    with pytest.raises(CorpusError, match="more than the 1 % allowed") as error:
        run_stages(tmp_path, corpus_settings(path=str(path), max_bad_share=0.01))
    assert "record 41" in error.value.where
    assert [path.name for path in (tmp_path / "tokens").iterdir()] == ["parts"]
    run_stages(tmp_path, corpus_settings(path=str(path), max_bad_share=0.1))


def test_a_lost_member_counts_by_its_bytes_even_if_it_is_one_item(tmp_path):
    half = zst(json_lines(GOOD * 50))
    path = write_tar(tmp_path / "a.tar", {"1.jsonl.zst": b"x" * len(half), "2.jsonl.zst": half})
    with pytest.raises(CorpusError, match="50 % of the bytes"):
        run_stages(tmp_path, corpus_settings(path=str(path), max_bad_share=0.01))


def test_the_separator_spelled_out_in_a_text_is_not_a_separator(tmp_path):
    from lmu_scaling.tokens.split import SPLITS
    from lmu_scaling.tokens.store import TokenStore

    texts = [f"{text} <|endoftext|> {text}" for text in GOOD]
    path = tmp_path / "a.jsonl"
    path.write_bytes(json_lines(texts))
    for engine in ("tiktoken", "fastokens"):
        shards = run_stages(tmp_path, corpus_settings(path=str(path)), token_settings(engine=engine))
        stores = [TokenStore(shards, split) for split in SPLITS]
        assert sum(int((store.slice(0, len(store)) == store.eot).sum()) for store in stores) == len(texts)


@pytest.mark.parametrize("name", ["a.jsonl", "a.txt"])
def test_a_file_that_was_cut_after_it_was_listed_is_counted(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(json_lines(GOOD))
    settings = corpus_settings(path=str(path))
    fetch_catalogued(settings, tmp_path)
    path.write_bytes(path.read_bytes()[:2000])
    encode_part(settings, token_settings(), tmp_path / "source.json", 0, tmp_path / "parts")
    assert read_json(tmp_path / "parts" / "00000.json")["bad"]["truncated"] == 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["text", "meta", "lang"]), inner),
)


@settings(deadline=None)
@given(
    lines=st.lists(
        JSON.map(lambda value: json.dumps(value).encode())
        | st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"")),
        max_size=5,
    )
)
def test_every_line_that_is_not_blank_is_a_document_or_counted(lines):
    block, records = documents.parse_lines(b"\n".join([*lines, GOOD_LINE]), "a", 0)
    assert len(block.texts) + len(block.bad) == records == 1 + sum(1 for line in lines if line.strip())
    assert GOOD[0] in block.texts


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.jsonl.gz", "a.jsonl.zst"])
def test_a_byte_order_mark_is_no_part_of_the_text_and_loses_no_document(tmp_path, name):
    data = BOM_UTF8 + (GOOD[0].encode() if name == "a.txt" else json_lines(GOOD))
    compress = {"gz": gzip.compress, "zst": zst}.get(name.rpartition(".")[2], bytes)
    (tmp_path / name).write_bytes(compress(data))
    fetch_catalogued(corpus_settings(path=str(tmp_path / name)), tmp_path)
    blocks = [
        block for member in members.read_members(tmp_path / "source.json") for block in members.read_blocks(member)
    ]
    assert [text for block in blocks for text in block.texts] == (GOOD[:1] if name == "a.txt" else GOOD)


def header_with(tar: bytes, place: int, value: bytes) -> bytes:
    """An archive whose first header has `value` at `place`, and a checksum that agrees."""
    header = bytearray(tar[:512])
    header[place : place + len(value)] = value
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + tar[512:]


SIZE, TYPE = 124, 156


@pytest.mark.parametrize("kind", [b"0", b"x", b"L"])
@pytest.mark.parametrize("size", [b"\xff" * 11 + b"\x00", b"\x80" + b"\xff" * 11], ids=["negative", "enormous"])
def test_an_impossible_size_in_a_tar_is_explained_and_does_not_hang(tmp_path, size, kind):
    path = write_tar(tmp_path / "a.tar", {"1.jsonl": json_lines(GOOD), "2.jsonl": json_lines(GOOD)})
    path.write_bytes(header_with(header_with(path.read_bytes(), SIZE, size), TYPE, kind))
    with pytest.raises(CorpusError) as error:
        filtered(tmp_path, path)
    assert error.value.where == str(path)


@settings(deadline=2000)
@given(place=st.integers(0, 511), value=st.binary(min_size=1, max_size=12))
def test_whatever_stands_in_a_header_the_members_lie_inside_the_archive(tmp_path_factory, place, value):
    path = write_tar(tmp_path_factory.mktemp("tar") / "a.tar", {f"{i}.jsonl": json_lines(GOOD[:3]) for i in range(3)})
    path.write_bytes(header_with(path.read_bytes(), place, value[: 512 - place]))
    try:
        found = archive_members(path, path.parent)
    except CorpusError:
        return
    assert all(0 <= m.offset <= m.offset + m.size <= path.stat().st_size and m.name.encode() for m in found)


def test_a_name_in_a_tar_that_is_not_utf8_is_no_obstacle(tmp_path):
    path = write_tar(tmp_path / "a.tar", {"x.jsonl": json_lines(GOOD)})
    path.write_bytes(header_with(path.read_bytes(), 0, b"caf\xe9.jsonl"))
    counts = filtered(tmp_path, path)
    assert counts["kept_documents"] == len(GOOD)
    assert counts["members"] == ["caf\\xe9.jsonl"]


def test_a_member_stored_with_holes_is_refused_and_not_read_past_its_end(tmp_path):
    path = write_tar(tmp_path / "a.tar", {"1.jsonl": json_lines(GOOD), "2.jsonl": json_lines(GOOD)})
    path.write_bytes(header_with(header_with(path.read_bytes(), TYPE, b"S"), 386, bytes(97) + b"00000100000\0"))
    with pytest.raises(CorpusError, match="stored with holes"):
        filtered(tmp_path, path)
