"""Shards: decoded they are the kept text, damage is noticed, and no interruption leaves anything half-written."""

import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lmu_scaling.cli import main
from lmu_scaling.errors import CorpusError, DiskFull, ResultsError, TokensError, UserError
from lmu_scaling.runtime import read_json, sha256_file
from lmu_scaling.tokens.inspect import tokens_inspect
from lmu_scaling.tokens.split import SPLITS
from lmu_scaling.tokens.store import TokenStore
from lmu_scaling.tokens.tokenizer import Tokenizer
from tests.corpus_helpers import (
    CATALOG,
    corpus_settings,
    deduplicate,
    encode_part,
    fetch,
    json_lines,
    run_stages,
    token_settings,
    words,
    write_index,
    write_shards,
    write_tar,
    zst,
)
from tests.needs import can_mount, on_small_disk

ROOT = Path(__file__).resolve().parents[2]
TOKENIZERS = {vocab: Tokenizer(vocab) for vocab in (300, 50257)}
documents = st.text(
    alphabet=st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), min_size=1, max_size=60
)


def decoded(shards, vocab):
    out = []
    for split in SPLITS:
        store = TokenStore(shards, split, verify=True)
        bounds = store.document_bounds()
        for start, end in pairwise(bounds):
            out.append(TOKENIZERS[vocab].decode_bytes(store.slice(start, end - 1)).decode())
    return out


@given(st.lists(documents.filter(lambda text: not text.isspace()), max_size=10), st.sampled_from([300, 50257]))
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_decoding_the_shards_gives_the_kept_text(tmp_path_factory, texts, vocab):
    root = tmp_path_factory.mktemp("round")
    texts = [*texts, *(words(i, 8) for i in range(40))]
    (root / "a.jsonl").write_bytes(json_lines(texts))
    shards = run_stages(root, corpus_settings(path=str(root / "a.jsonl"), parts=2), token_settings(vocab=vocab))
    assert sorted(decoded(shards, vocab)) == sorted(texts)


@pytest.fixture
def shards(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(json_lines([words(i) for i in range(80)]))
    return run_stages(tmp_path, corpus_settings(path=str(path)))


def test_a_flipped_bit_a_missing_and_a_short_shard_are_noticed(shards):
    path = shards / "00000.train.bin"
    data = path.read_bytes()
    path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    TokenStore(shards, "train")
    with pytest.raises(TokensError, match="damaged: sha256"):
        TokenStore(shards, "train", verify=True)
    with pytest.raises(TokensError, match="damaged: sha256"):
        tokens_inspect(shards)
    path.write_bytes(data[:-2])
    with pytest.raises(TokensError, match=f"has {len(data) - 2} bytes instead of {len(data)}"):
        TokenStore(shards, "train")
    path.unlink()
    with pytest.raises(TokensError, match="is missing"):
        TokenStore(shards, "train")


@pytest.mark.parametrize("key", ["digest", "dtype", "vocab", "eot", "splits", "shards"])
def test_an_index_that_lacks_what_training_needs_is_explained(shards, key):
    path = shards / "index.json"
    described = read_json(path)
    path.write_text(json.dumps({name: value for name, value in described.items() if name != key}))
    with pytest.raises(ResultsError, match=f"damaged: it has no {key}"):
        TokenStore(shards, "train")


def test_the_index_accounts_for_every_shard(shards):
    index = read_json(shards / "index.json")
    for split in SPLITS:
        mine = [shard for shard in index["shards"] if shard["split"] == split]
        for key in ("tokens", "documents", "bytes"):
            assert index["splits"][split][key] == sum(shard[key] for shard in mine)
    assert index["dtype"] == "<u2"
    assert index["eot"] == 50256
    assert index["source"]["source"] == "local"
    assert len(index["source"]["identity"]) == len(index["tokenizer_sha256"]) == len(index["digest"]) == 64


def test_another_tokenizer_changes_the_digest(shards, tmp_path):
    other = run_stages(tmp_path / "x", corpus_settings(path=str(tmp_path / "a.jsonl")), token_settings(vocab=50256))
    assert read_json(other / "index.json")["digest"] != read_json(shards / "index.json")["digest"]


def test_inspecting_a_window_that_is_not_there_is_explained(shards):
    with pytest.raises(TokensError, match="no window 99999"):
        tokens_inspect(shards, "test", 99999)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("job", ["encode", "shard"])
def test_a_full_disk_while_writing_leaves_nothing_and_says_so(tmp_path, monkeypatch, job):
    """Every file that is written is a device that is full."""
    from lmu_scaling import runtime

    path = tmp_path / "a.jsonl"
    path.write_bytes(json_lines([words(i) for i in range(80)]))
    chosen, tokens = corpus_settings(path=str(path)), token_settings()
    shards, parts = tmp_path / "tokens", tmp_path / "tokens" / "parts"
    run_stages(tmp_path, chosen, tokens)
    folder, name = (parts, "00000.tokens.bin") if job == "encode" else (shards, "00000.train.bin")
    before = {p: p.read_bytes() for p in folder.iterdir() if p.is_file()}
    real = open

    def full(file, mode="r", **options):
        return real("/dev/full" if "w" in mode else file, mode, **options)

    monkeypatch.setattr(runtime, "open", full, raising=False)
    again = {
        "encode": lambda: encode_part(chosen, tokens, tmp_path / "corpus" / "source.json", 0, parts),
        "shard": lambda: write_shards(chosen, tokens, shards, parts, 0, shards),
    }
    with pytest.raises(DiskFull, match="no space left") as error:
        again[job]()
    assert name in error.value.where
    assert {p: p.read_bytes() for p in folder.iterdir() if p.is_file()} == before, (
        "the old files stay, nothing is half-written"
    )


def test_the_jobs_manifest_has_the_shards_checksums(shards, tmp_path):
    """The job hashes shards while it writes them; its manifest must say what is on the disk."""
    made = [shards / f"00000.{split}.bin" for split in SPLITS]
    split = {"train": 0.8, "validation": 0.1, "test": 0.1}
    flags = ["--split", json.dumps(split), "--tokens", token_settings().model_dump_json(), "--part", "0"]
    flags += ["--selection", shards, "--part-folder", shards / "parts", "--out", shards, "--wrote", *made]
    manifest = shards / "00000.manifest.json"
    assert main(["shard", *map(str, flags), "--code", "c0de", "--manifest", str(manifest)]) == 0
    outputs = {entry["path"]: entry["sha256"] for entry in read_json(manifest)["outputs"]["wrote"]}
    assert outputs == {path.name: sha256_file(path) for path in made}
    assert "sha256_of" not in read_json(manifest)


def test_a_part_that_was_cut_after_the_selection_is_refused(shards, tmp_path):
    part = shards / "parts" / "00000.tokens.bin"
    part.write_bytes(part.read_bytes()[:-2])
    before = everything(tmp_path)
    with pytest.raises(CorpusError, match="does not match the selection"):
        write_shards(corpus_settings(), token_settings(), shards, part.parent, 0, shards)
    assert everything(tmp_path) == before


def test_a_disk_that_changes_what_is_written_is_noticed(shards, tmp_path, monkeypatch):
    """Every file that is written loses a bit on its way."""
    from lmu_scaling import runtime

    real = open

    class Lossy(io.FileIO):
        def write(self, data):
            return super().write(bytes([data[0] ^ 1]) + bytes(data[1:]))

    monkeypatch.setattr(
        runtime,
        "open",
        lambda file, mode, **rest: Lossy(file, "w") if mode == "wb" else real(file, mode, **rest),
        raising=False,
    )
    with pytest.raises(TokensError, match="what was read back is not what was written"):
        write_shards(corpus_settings(), token_settings(), shards, shards / "parts", 0, tmp_path / "new")


FILL = """
from pathlib import Path
from lmu_scaling.errors import DiskFull
from tests.corpus_helpers import write_shards
from tests.corpus_helpers import corpus_settings, token_settings
shards, out = Path({shards!r}), Path({out!r})
try:
    write_shards(corpus_settings(), token_settings(), shards, shards / "parts", 0, out)
except DiskFull as error:
    print(len(str(error).splitlines()), sorted(p.name for p in out.iterdir()))
"""


@pytest.mark.skipif(not can_mount(), reason="needs a name space in which a small disk can be mounted")
def test_a_disk_that_is_full_while_a_shard_is_written_leaves_nothing_of_it(tmp_path):
    """A real file system of 64 KiB, and a shard of 200 KiB."""
    path, out = tmp_path / "a.jsonl", tmp_path / "disk"
    path.write_bytes(json_lines([words(i, 600) for i in range(80)]))
    run_stages(tmp_path, corpus_settings(path=str(path)))
    assert (tmp_path / "tokens" / "00000.train.bin").stat().st_size > 100_000
    done = on_small_disk(out, 64, [sys.executable, "-c", FILL.format(shards=str(tmp_path / "tokens"), out=str(out))])
    assert done.stdout == "3 []\n", done.stderr


@given(st.permutations(range(4)), st.integers(1, 4))
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_shards_are_byte_identical_whatever_the_order_and_number_of_workers(tmp_path_factory, order, workers):
    base = tmp_path_factory.getbasetemp() / "workers"
    if not base.exists():
        base.mkdir()
        write_tar(
            base / "a.tar", {f"{i}.jsonl.zst": zst(json_lines(words(j) for j in range(i, 90, 9))) for i in range(9)}
        )
        run_stages(base / "calm", corpus_settings(path=str(base / "a.tar"), parts=4), token_settings(vocab=300))
    root = tmp_path_factory.mktemp("run")
    chosen, tokens = corpus_settings(path=str(base / "a.tar"), parts=4), token_settings(vocab=300)
    source, shards, parts = root / "corpus" / "source.json", root / "tokens", root / "tokens" / "parts"
    fetch(chosen, CATALOG, root / "data", source)
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(lambda part: encode_part(chosen, tokens, source, part, parts), order))
        deduplicate(chosen, source, parts, shards)
        list(pool.map(lambda part: write_shards(chosen, tokens, shards, parts, part, shards), reversed(order)))
    write_index(chosen, tokens, shards, shards / "index.json")
    assert everything(root) == everything(base / "calm")


SCRIPT = """
from pathlib import Path
from tests.corpus_helpers import corpus_settings, run_stages, token_settings
run_stages(Path({root!r}), corpus_settings(path={path!r}, parts=3, filters=[{{"name": "exact_duplicates"}}]),
           token_settings(vocab=300))
"""


def everything(root):
    return {
        p.relative_to(root).as_posix(): p.read_bytes()
        for p in (root / "tokens").rglob("*")
        if p.is_file() and not p.name.startswith(".")
    }


@pytest.mark.slow
def test_killed_at_random_moments_and_run_again_the_shards_are_byte_identical(tmp_path):
    texts = [words(i, 300) for i in range(600)]
    files = {f"{i}.jsonl.zst": zst(json_lines(texts[i::6])) for i in range(6)}
    path = write_tar(tmp_path / "a.tar", files)

    def start(root):
        code = SCRIPT.format(root=str(root), path=str(path))
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        return subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=subprocess.DEVNULL)

    begun = time.monotonic()
    assert start(tmp_path / "calm").wait() == 0
    whole = time.monotonic() - begun
    generator = random.Random(0)
    killed = 0
    for _ in range(4):
        process = start(tmp_path / "killed")
        time.sleep(generator.uniform(0.2, 0.9) * whole)
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
        finished = [p for p in (tmp_path / "killed").rglob("*.bin") if not p.name.startswith(".")]
        calm = tmp_path / "calm"
        assert all(p.read_bytes() == (calm / p.relative_to(tmp_path / "killed")).read_bytes() for p in finished)
    assert killed
    assert start(tmp_path / "killed").wait() == 0
    assert not list((tmp_path / "killed").rglob("*.partial"))
    assert everything(tmp_path / "killed") == everything(tmp_path / "calm")


# What a job of these two stages reads of what the jobs before it wrote.
READS = {
    "encode": ["corpus/source.json"],
    "deduplicate": ["corpus/source.json", "tokens/parts/00000.json", "tokens/parts/00000.signatures.npz"],
    "shard": ["tokens/selection.json", "tokens/drops.npy", "tokens/parts/00000.signatures.npz"],
    "index": [
        "tokens/00000.json",
        "tokens/00000.counts.npy",
        "tokens/00000.train.bin",
        "tokens/selection.json",
    ],
    "tokens-inspect": ["tokens/index.json", "tokens/00000.train.bin"],
}
DAMAGES = {
    "missing": None,
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "zeros": lambda data: bytes(len(data)),
    "one bit": lambda data: data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :],
    "another object": lambda data: b"{}",
    "a list": lambda data: b"[]",
    "nested too deeply": lambda data: b"[" * 100_000,
}


def cases():
    for job, names in READS.items():
        for name in names:
            for damage in DAMAGES:
                if not (name.endswith("json") and damage == "one bit"):  # the audit's business: it may stay valid JSON
                    yield job, name, damage


@pytest.fixture(scope="module")
def stages(tmp_path_factory):
    root = tmp_path_factory.mktemp("stages")
    (root / "a.jsonl").write_bytes(json_lines([words(i) for i in range(60)]))
    run_stages(root, corpus_settings(path=str(root / "a.jsonl")), token_settings(vocab=300))
    return root


@pytest.mark.parametrize(("job", "name", "damage"), list(cases()))
def test_a_damaged_file_between_two_jobs_is_named_and_nothing_is_made_of_it(stages, tmp_path, job, name, damage):
    shutil.copytree(stages, tmp_path, dirs_exist_ok=True)
    chosen, tokens = corpus_settings(path=str(stages / "a.jsonl")), token_settings(vocab=300)
    source, shards, parts = tmp_path / "corpus" / "source.json", tmp_path / "tokens", tmp_path / "tokens" / "parts"
    jobs = {
        "encode": lambda: encode_part(chosen, tokens, source, 0, parts),
        "deduplicate": lambda: deduplicate(chosen, source, parts, shards),
        "shard": lambda: write_shards(chosen, tokens, shards, parts, 0, shards),
        "index": lambda: write_index(chosen, tokens, shards, tmp_path / "made.json"),
        "tokens-inspect": lambda: tokens_inspect(shards),
    }
    path, change = tmp_path / name, DAMAGES[damage]
    path.write_bytes(change(path.read_bytes())) if change else path.unlink()
    with pytest.raises(UserError) as error:
        jobs[job]()
    assert error.value.where == str(path)
    assert not (tmp_path / "made.json").exists()
