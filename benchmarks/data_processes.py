"""What benchmarks.data measures, each in a process of its own, so that its CPU time and peak memory are its own.

bare      the engine alone: texts in memory (fresh strings, batches like the stages') to ids; reading is not timed
stages    filter × parts, deduplicate, tokenise × parts, tokens-manifest, as the workflow runs them, with manifests
usual     datasets.load_dataset("json") → map(tiktoken) → one uint16 memmap
pieces    the steps of stage corpus one by one, over and over, a block of documents at a time
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT

SPLIT = {"train": 0.96, "validation": 0.03, "test": 0.01}
PLAIN = [{"name": "length", "min_characters": 1, "max_characters": None}, {"name": "exact_duplicates"}]
Facts = dict[str, Any]

BARE = """
import json, sys, time
from pathlib import Path
from lmu_scaling.corpus.members import read_blocks, read_members, share
from lmu_scaling.corpus.parts import BATCH_CHARACTERS
from lmu_scaling.tokens.tokenizer import Tokenizer
engine, source, part, parts = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
tokenizer = Tokenizer(50257, engine)
texts = [t for m in share(read_members(source), part, parts) for b in read_blocks(m) for t in b.texts]
batches, held = [[]], 0
for text in texts:
    batches[-1].append(text)
    held += len(text)
    if held >= BATCH_CHARACTERS:
        batches.append([])
        held = 0
begun, cpu = time.perf_counter(), time.process_time()
tokens = sum(len(tokenizer.encode_batch(batch)[0]) for batch in batches)
cpu, wall = time.process_time() - cpu, time.perf_counter() - begun
print(json.dumps({"cpu": cpu, "wall": wall, "bytes": sum(len(t.encode()) for t in texts), "tokens": tokens}))
"""

USUAL = """
import json, os, sys, time
from pathlib import Path
import numpy as np
folder, processes = Path(sys.argv[1]), int(sys.argv[2])
os.environ["HF_DATASETS_CACHE"] = str(folder / "cache")
os.environ["HF_DATASETS_OFFLINE"] = "1"
import datasets
from lmu_scaling.tokens.tokenizer import Tokenizer
datasets.disable_progress_bars()
files = sorted(str(p) for p in (folder / "members").glob("*.jsonl.zst"))
data = datasets.load_dataset("json", data_files=files, split="train")
def encode(example):
    text = example["text"]
    ids = encode.tokenizer._reference.encode_ordinary("\\n\\n".join(text) if isinstance(text, list) else text)
    ids.append(50256)
    return {"ids": ids, "length": len(ids)}
encode.tokenizer = Tokenizer(50257)
tokens = data.map(encode, remove_columns=data.column_names, num_proc=processes if processes > 1 else None)
out = np.memmap(folder / "train.bin", np.uint16, "w+", shape=(sum(tokens["length"]),))
at = 0
for i in range(0, len(tokens), 1000):
    batch = np.concatenate(tokens[i : i + 1000]["ids"])
    out[at : at + len(batch)] = batch
    at += len(batch)
out.flush()
arrow = sum(p.stat().st_size for p in (folder / "cache").rglob("*.arrow"))
print(json.dumps({"tokens": at, "arrow": arrow}))
"""

PIECES = """
import hashlib, json, sys, time
from pathlib import Path
import xxhash
from lmu_scaling.corpus.documents import parse_lines
from lmu_scaling.corpus.members import read_members
from lmu_scaling.corpus.streams import decompressed, raw_bytes
from lmu_scaling.tokens.tokenizer import Tokenizer
spent, size = {}, 0
def timed(name, step, *arguments):
    begun = time.process_time()
    result = step(*arguments)
    spent[name] = spent.get(name, 0.0) + time.process_time() - begun
    return result
def lines(member):
    return b"".join(decompressed(raw_bytes(member.path, member.offset, member.size), member.codec)).splitlines(True)
def drain(member):
    for _ in decompressed(raw_bytes(member.path, member.offset, member.size), member.codec):
        pass
def signed(texts):
    return [xxhash.xxh3_128_digest(text.encode()) for text in texts]
tokenizer = Tokenizer(50257, sys.argv[2])
for member in read_members(Path(sys.argv[1])):
    timed("read and decompress (zstd)", drain, member)
    found = lines(member)
    for i in range(0, len(found), 256):
        block = b"".join(found[i : i + 256])
        texts = timed("parse (JSON)", parse_lines, block, "", 0)[0].texts
        ids, _ = timed("engine", tokenizer.encode_documents, texts)
        timed("UTF-8 and content hash", signed, texts)
        timed("one sha256 of the ids", lambda: hashlib.sha256(ids.data).digest())
        size += sum(len(text.encode()) for text in texts)
print(json.dumps({"bytes": size, "spent": spent}))
"""


def environment() -> dict[str, str]:
    threads = {"RAYON_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # as Snakemake does for jobs with one thread
    return os.environ | threads | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}


def run(command: list[str]) -> Facts:
    """Run a command; its output if it is JSON, CPU seconds and peak memory (of it and its children)."""
    begun = time.perf_counter()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, env=environment(), cwd=ROOT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        text = out.read()
        if process.returncode:
            raise SystemExit(f"{' '.join(command[:6])} …\n{err.read()[-2000:]}")
    facts = {"cpu": usage.ru_utime + usage.ru_stime, "wall": time.perf_counter() - begun, "rss": usage.ru_maxrss * 1024}
    try:
        return facts | json.loads(text.strip().splitlines()[-1])
    except (ValueError, IndexError, TypeError):
        return facts


def together(commands: list[list[str]], workers: int) -> Facts:
    """Run commands, `workers` at a time: CPU seconds add up, wall time is that of all, memory that of the largest."""
    begun = time.perf_counter()
    with ThreadPoolExecutor(workers) as pool:
        facts = list(pool.map(run, commands))
    total = {"cpu": sum(f["cpu"] for f in facts), "rss": max(f["rss"] for f in facts), "each": facts}
    return total | {"wall": time.perf_counter() - begun}


def verb(name: str, *flags: object) -> list[str]:
    """A verb as the workflow calls it: it has computed the code's fingerprint beforehand."""
    return [sys.executable, "-m", "lmu_scaling", name, *map(str, flags), "--code", "benchmark"]


def stages(source: Path, root: Path, engine: str, parts: int) -> Facts:
    """All verbs after fetch, as many jobs at once as there are parts; bytes and tokens come from the manifest."""
    corpus = {"parts": parts, "filters": PLAIN, "split": SPLIT, "target_tokens": None}
    corpus |= {"on_bad_document": "stop", "max_bad_share": 0.0}
    settings = ["--settings", json.dumps(corpus)]
    tokens = ["--tokens", json.dumps({"encoding": "gpt2", "vocab": 50257, "engine": engine})]
    folder, pieces, shards = root / "corpus", root / "corpus" / "parts", root / "tokens"
    made = {i: [pieces / f"{i:05d}.{kind}" for kind in ("tokens.bin", "signatures.npz", "json")] for i in range(parts)}
    kinds = ("train.bin", "validation.bin", "test.bin", "json", "counts.npy")
    kept = {i: [shards / f"{i:05d}.{kind}" for kind in kinds] for i in range(parts)}

    def filter_(i: int) -> list[str]:
        flags = [*settings, *tokens, "--source", source, "--part", i, "--out", pieces]
        return verb("filter", *flags, "--wrote", *made[i], "--manifest", pieces / f"{i:05d}.manifest.json")

    def tokenise(i: int) -> list[str]:
        flags = [*settings, *tokens, "--corpus", folder, "--parts", pieces, "--part", i, "--out", shards]
        flags += ["--read", *made[i][:2], folder / "drops.npy", folder / "manifest.json", "--wrote", *kept[i]]
        return verb("tokenise", *flags, "--manifest", shards / f"{i:05d}.manifest.json")

    inputs = [*settings, "--source", source, "--parts", pieces, "--out", folder]
    inputs += ["--read", *(path for i in range(parts) for path in made[i][1:])]
    merge = [*settings, *tokens, "--corpus", folder, "--folder", shards, "--out", shards / "manifest.json"]
    steps = {
        "filter": [filter_(i) for i in range(parts)],
        "deduplicate": [verb("deduplicate", *inputs, "--manifest", folder / "report.manifest.json")],
        "tokenise": [tokenise(i) for i in range(parts)],
        "manifest": [verb("tokens-manifest", *merge, "--manifest", shards / "tokens.manifest.json")],
    }
    facts = {name: together(commands, parts) for name, commands in steps.items()}
    manifest = json.loads((shards / "manifest.json").read_text())
    return {
        "cpu": sum(f["cpu"] for f in facts.values()),
        "wall": sum(f["wall"] for f in facts.values()),
        # What it would take if every job had a core to itself.
        "critical": sum(max(job["cpu"] for job in f["each"]) for f in facts.values()),
        "rss": max(f["rss"] for f in facts.values()),
        "bytes": manifest["filters"][0]["kept_bytes"],
        "digest": manifest["digest"],
        "temporary": sum(path.stat().st_size for paths in made.values() for path in paths[:2]),
        "kept": sum(path.stat().st_size for paths in kept.values() for path in paths),
        "steps": {name: f["cpu"] for name, f in facts.items()},
    }


def fetch(archive: Path, root: Path) -> Path:
    source = root / "source.json"
    settings = json.dumps({"source": "local", "path": str(archive)})
    run(verb("fetch", "--settings", settings, "--data", root / "data", "--out", source))
    return source


def first_members(source: Path, share: float, out: Path) -> Path:
    """A source with only the first members, about that share of the archive."""
    described = json.loads(source.read_text())
    wanted = share * sum(member["size"] for member in described["members"])
    members, held = [], 0
    for member in described["members"]:
        if held >= wanted:
            break
        members.append(member)
        held += member["size"]
    out.write_text(json.dumps(described | {"members": members}))
    return out


def bare(source: Path, engine: str, workers: int) -> Facts:
    commands = [[sys.executable, "-c", BARE, engine, str(source), str(i), str(workers)] for i in range(workers)]
    facts = together(commands, workers)["each"]
    totals = {key: sum(f[key] for f in facts) for key in ("cpu", "bytes", "tokens")}
    return totals | {"wall": max(f["wall"] for f in facts)}


def usual(source: Path, folder: Path, processes: int) -> Facts:
    """The usual recipe cannot read a tar, so its members are unpacked for it first, which is not timed."""
    (folder / "members").mkdir(parents=True)
    for member in json.loads(source.read_text())["members"]:
        with open(member["path"], "rb") as file:
            file.seek(member.get("offset", 0))
            (folder / "members" / member["name"]).write_bytes(file.read(member["size"]))
    facts = run([sys.executable, "-c", USUAL, str(folder), str(processes)])
    return facts | {"temporary": facts["arrow"], "kept": 2 * facts["tokens"]}


def pieces(source: Path, engine: str) -> Facts:
    return run([sys.executable, "-c", PIECES, str(source), engine])
