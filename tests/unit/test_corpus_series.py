"""Numbered series of texts: the same documents from a folder, a package's folder or an archive, compressed or not."""

import gzip
import tarfile

import pytest
import yaml

from lmu_scaling.config import validate
from lmu_scaling.corpus.filters import filter_class
from lmu_scaling.corpus.members import Member
from lmu_scaling.corpus.series import in_series
from lmu_scaling.errors import ConfigError, CorpusError
from lmu_scaling.paths import REPOSITORY
from lmu_scaling.runtime import read_json
from tests.corpus_helpers import CATALOG, corpus_settings, fetch, run_stages, token_settings, words, write_tar

PROSE = filter_class("prose")(name="prose")
NUMBERS = [1, 2, 9, 10, 11, 100, *range(200, 260)]
LAST = 259
SMALL = token_settings(vocab=300)  # quick to load


def text(number):
    return f"RFC {number}\n\n{words(number, 60)}.\n\n{words(5000 + number // 4, 50)}.\n".encode()


def catalog(tmp_path, **changes):
    series = {"pattern": r"rfc0*(\d+[a-z]?)\.txt(?:\.gz)?", "last": LAST, "absent": [3, 150], "fallback": "latin-1"}
    entry = {"kind": "local", "licence": "none", "citation": "none", "documents": len(NUMBERS), "series": series}
    path = tmp_path / "datasets.yaml"
    path.write_text(yaml.safe_dump({"mine": entry | changes}))
    return path


def folder(root):
    root.mkdir()
    for number in NUMBERS:
        (root / f"rfc{number}.txt").write_bytes(text(number))
    return root


def package(root):
    """Like a distribution's package: some compressed, in folders by status, and a folder of links to all of them."""
    for i, number in enumerate(NUMBERS):
        place = root / ("standard" if i % 3 else "other")
        place.mkdir(parents=True, exist_ok=True)
        (root / "links").mkdir(exist_ok=True)
        name = f"rfc{number}.txt" if i % 5 else f"rfc{number}.txt.gz"
        (place / name).write_bytes(text(number) if i % 5 else gzip.compress(text(number)))
        (root / "links" / name).symlink_to(place / name)
    return root


def grown(root):
    """A later mirror: more documents, an index, other formats, leading zeros."""
    folder(root)
    (root / "rfc1.txt").rename(root / "RFC0001.txt")
    (root / f"rfc{LAST + 1}.txt").write_bytes(text(LAST + 1))
    (root / "rfc150.txt").write_bytes(text(150))  # a number that was missing when the text was counted
    (root / "rfc-index.txt").write_text("not a document of the series")
    (root / "bcp9.txt").write_bytes(text(9))
    (root / "rfc9.pdf").write_bytes(b"%PDF")
    return root


def members():
    return {"x/rfc-index.txt": b"index", **{f"x/rfc{n}.txt": text(n) for n in reversed(NUMBERS)}, "x/rfc1.pdf": b"%"}


def tar(root):
    root.mkdir()
    return write_tar(root / "rfc.tar", members())


def tar_gz(root):
    path = tar(root)
    packed = root / "rfc.tar.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    return packed


def tgz_in_a_folder(root):
    tar_gz(root).rename(root / "all.tgz")
    return root


@pytest.mark.parametrize("form", [package, grown, tar, tar_gz, tgz_in_a_folder])
def test_documents_and_tokens_are_the_same_in_every_form(tmp_path, form):
    seen = []
    for name, make in (("plain", folder), ("other", form)):
        root = tmp_path / name
        root.mkdir()
        settings = corpus_settings(source="mine", path=str(make(root / "in")), filters=[PROSE], parts=3)
        shards = run_stages(root, settings, SMALL, catalog(tmp_path))
        index = read_json(shards / "index.json")
        seen.append((read_json(shards / "selection.json")["text"], index["digest"], index["warnings"]))
    assert seen[0] == seen[1]
    assert seen[0][0]["documents"] == len(NUMBERS)
    assert not any("catalogue" in warning for warning in seen[0][2])


def test_a_series_is_in_order_of_numbers_with_letters_behind_them():
    names = ["rfc10.txt", "rfc9.txt", "a/rfc17a.txt", "rfc17.txt", "b/rfc9.txt", "rfcx.txt", "rfc11.txt"]
    series = {"pattern": r"rfc(\d+[a-z]?)\.txt", "last": 17, "fallback": "latin-1"}
    found = in_series([Member(name, "txt", 1) for name in names], series)
    assert [member.name for member in found] == ["rfc9.txt", "rfc10.txt", "rfc11.txt", "rfc17.txt", "a/rfc17a.txt"]


def test_old_files_that_are_not_utf8_or_hold_nuls_are_read_not_lost(tmp_path):
    root = folder(tmp_path / "in")
    (root / "rfc1.txt").write_bytes(text(1).replace(b".", b" Z\xfcrich.", 1))
    (root / "rfc2.txt").write_bytes(b"\xef\xbb\xbf" + text(2).replace(b" ", b" \0", 3))
    settings = corpus_settings(source="mine", path=str(root), filters=[PROSE], max_bad_share=0.0)
    selection = read_json(run_stages(tmp_path, settings, SMALL, catalog(tmp_path)) / "selection.json")
    assert selection["read_documents"] == len(NUMBERS)
    assert selection["text"]["documents"] == len(NUMBERS)


def expected(tmp_path, **changes):
    """The catalogue's entry with what the filter leaves of the folder."""
    root = tmp_path / "reference"
    root.mkdir()
    settings = corpus_settings(source="mine", path=str(folder(root / "in")), filters=[PROSE])
    found = read_json(run_stages(root, settings, SMALL, catalog(tmp_path)) / "selection.json")["text"]
    return catalog(tmp_path, text_after={"filters": [{"name": "prose"}], **found, **changes})


def warnings(tmp_path, path, entry, **changes):
    settings = corpus_settings(source="mine", path=str(path), **({"filters": [PROSE]} | changes))
    return read_json(run_stages(tmp_path, settings, SMALL, entry) / "selection.json")["warnings"]


def test_the_catalogues_text_is_recognised(tmp_path):
    entry = expected(tmp_path)
    assert warnings(tmp_path, tar_gz(tmp_path / "in"), entry, parts=4) == []


def test_another_text_is_a_warning_with_both_values(tmp_path):
    entry = expected(tmp_path)
    root = folder(tmp_path / "in")
    (root / "rfc10.txt").write_bytes(text(10).replace(b"a", b"o", 1))
    (said,) = warnings(tmp_path, root, entry)
    known = yaml.safe_load(entry.read_text())["mine"]["text_after"]["digest"]
    mine = read_json(tmp_path / "tokens" / "selection.json")["text"]["digest"]
    assert known in said
    assert mine in said
    assert mine != known


def test_a_missing_document_is_said_twice_in_numbers(tmp_path):
    entry = expected(tmp_path)
    root = folder(tmp_path / "in")
    (root / "rfc250.txt").unlink()
    said = warnings(tmp_path, root, entry)
    assert said[0] == f"the source holds {len(NUMBERS) - 1} documents, the catalogue says {len(NUMBERS)}"
    assert said[1].startswith(f"after the filters the text is not the catalogue's: {len(NUMBERS) - 1} documents")


def test_other_filters_give_another_text_which_is_not_compared(tmp_path):
    entry = expected(tmp_path)
    shorter = filter_class("prose")(name="prose", min_words=50)
    assert warnings(tmp_path, folder(tmp_path / "in"), entry, filters=[shorter]) == []


# ------------------------------------------------------------------------------------------------ compressed archives
def truncated(data):
    return data[: len(data) // 2]


def without_its_end(data):
    return gzip.compress(gzip.decompress(data)[:5000])


def flipped(data):
    return data[:-6] + bytes([data[-6] ^ 1]) + data[-5:]


def not_compressed(data):
    return b"not a gzip file"


def bomb(data):
    """A member of a terabyte, as its header says."""
    info = tarfile.TarInfo("rfc1.txt")
    info.size = 1 << 40
    return gzip.compress(info.tobuf() + bytes(1 << 20))


@pytest.mark.parametrize("damage", [truncated, without_its_end, flipped, not_compressed, bomb])
def test_a_damaged_archive_is_explained_and_leaves_nothing(tmp_path, damage):
    path = tar_gz(tmp_path / "in")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CorpusError) as error:
        fetch(corpus_settings(source="mine", path=str(path)), catalog(tmp_path), tmp_path / "data", tmp_path / "s.json")
    assert len(str(error.value).splitlines()) == 3
    assert error.value.where == str(path)
    assert not [file for file in (tmp_path / "data").rglob("*") if file.is_file()]
    assert not (tmp_path / "s.json").exists()


def test_no_file_is_written_under_a_name_from_an_archive(tmp_path):
    path = tmp_path / "in.tar"
    write_tar(path, {"../rfc1.txt": text(1), "/rfc2.txt": text(2), "rfc3.txt": text(3)})
    packed = tmp_path / "in.tar.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    fetch(corpus_settings(path=str(packed)), CATALOG, tmp_path / "data", tmp_path / "source.json")
    assert [m["name"] for m in read_json(tmp_path / "source.json")["members"]] == ["rfc3.txt"]
    assert [file.name for file in (tmp_path / "data").rglob("*") if file.is_file()] == ["in.tar.gz.unpacked"]


# ---------------------------------------------------------------------------------------------------------- catalogue
def test_without_a_path_the_message_says_how_to_get_the_rfcs():
    raw = yaml.safe_load((REPOSITORY / "config.yaml").read_text())
    raw["corpus"] |= {"source": "rfc", "path": None}
    with pytest.raises(ConfigError, match=r"corpus.path: missing; .*rsync.rfc-editor.org::rfcs-text-only"):
        validate(raw)


def test_the_catalogue_says_what_the_rfcs_are_and_what_prose_leaves_of_them():
    entry = yaml.safe_load(CATALOG.read_text())["rfc"]
    series = entry["series"]
    assert series["last"] - len(series["absent"]) + 1 == entry["documents"], "one number has two documents, 17 and 17a"
    assert entry["documents"] > entry["text_after"]["documents"] > 9000
    assert entry["text_after"]["filters"] == [{"name": "prose"}]
    assert len(entry["text_after"]["digest"]) == 64
