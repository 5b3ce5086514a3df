"""Stages corpus and tokens against the bare tokenizer and against the usual recipe, in one interleaved run.

    python -m benchmarks.make_owt2 --megabytes 420 --out benchmarks/.cache/owt2.jsonl.zst.tar
    python -m benchmarks.data --archive benchmarks/.cache/owt2.jsonl.zst.tar

Every measurement is a process of its own, so that its CPU time and peak memory can be told from others. Throughput is
in bytes of text. CPU seconds are what ratios are made of: on a shared machine they are steadier than wall time.

  bare      the engine alone: texts in memory (fresh strings, batches like the stages') to ids; reading is not timed
  stages    filter × parts, deduplicate, tokenise × parts, tokens-manifest, as the workflow runs them, with manifests
  usual     datasets.load_dataset("json") → map(tiktoken) → one uint16 memmap
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, publish, table

SPLIT = {"train": 0.96, "validation": 0.03, "test": 0.01}
PLAIN = [{"name": "length", "min_characters": 1, "max_characters": None}, {"name": "exact_duplicates"}]
ENGINES = ("tiktoken", "fastokens")
# Wall times are worth showing only if nobody else computes; the load counts this benchmark's own last minute too.
CALM = 1.0

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

# What a megabyte of text costs before and after the engine: each step alone, over and over, a megabyte at a time.
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


def run(command: list[str]) -> dict[str, Any]:
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


def together(commands: list[list[str]], workers: int) -> dict[str, Any]:
    """Run commands, `workers` at a time: CPU seconds add up, wall time is that of all, memory that of the largest."""
    begun = time.perf_counter()
    with ThreadPoolExecutor(workers) as pool:
        facts = list(pool.map(run, commands))
    total = {"cpu": sum(f["cpu"] for f in facts), "rss": max(f["rss"] for f in facts), "each": facts}
    return total | {"wall": time.perf_counter() - begun}


def verb(name: str, *flags: object) -> list[str]:
    """A verb as the workflow calls it: it has computed the code's fingerprint beforehand."""
    return [sys.executable, "-m", "lmu_scaling", name, *map(str, flags), "--code", "benchmark"]


def stages(source: Path, root: Path, engine: str, parts: int) -> dict[str, Any]:
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


def bare(source: Path, engine: str, workers: int) -> dict[str, Any]:
    commands = [[sys.executable, "-c", BARE, engine, str(source), str(i), str(workers)] for i in range(workers)]
    facts = together(commands, workers)["each"]
    totals = {key: sum(f[key] for f in facts) for key in ("cpu", "bytes", "tokens")}
    return totals | {"wall": max(f["wall"] for f in facts)}


def usual(source: Path, folder: Path, processes: int) -> dict[str, Any]:
    """The usual recipe cannot read a tar, so its members are unpacked for it first, which is not timed."""
    (folder / "members").mkdir(parents=True)
    for member in json.loads(source.read_text())["members"]:
        with open(member["path"], "rb") as file:
            file.seek(member.get("offset", 0))
            (folder / "members" / member["name"]).write_bytes(file.read(member["size"]))
    facts = run([sys.executable, "-c", USUAL, str(folder), str(processes)])
    return facts | {"temporary": facts["arrow"], "kept": 2 * facts["tokens"]}


def measure(archive: Path, scratch: Path, repeats: int) -> dict[str, list[dict[str, Any]]]:
    """Everything in turns. `small` is a twentieth of the archive; the usual recipe, which is slow, gets a quarter."""
    whole = fetch(archive, scratch)
    quarter, small = (first_members(whole, share, scratch / f"{share}.json") for share in (0.24, 0.04))
    seen: dict[str, list[dict[str, Any]]] = {}

    def note(name: str, facts: dict[str, Any]) -> None:
        seen.setdefault(name, []).append(facts | {"load": os.getloadavg()[0]})
        print(f"{name}: {facts['cpu']:.1f} s CPU, {facts['wall']:.1f} s wall", flush=True)

    def staged(name: str, source: Path, engine: str, parts: int) -> None:
        shutil.rmtree(scratch / "stages", ignore_errors=True)
        note(name, stages(source, scratch / "stages", engine, parts))

    text_bytes = bare(quarter, "fastokens", 1)["bytes"]
    for _ in range(repeats):
        for engine in ENGINES:
            note(f"bare {engine} 1", bare(whole, engine, 1))
            staged(f"stages {engine} 1", whole, engine, 1)
            staged(f"small {engine} 1", small, engine, 1)
            staged(f"stages {engine} 2", whole, engine, 2)
            staged(f"small {engine} 2", small, engine, 2)
        shutil.rmtree(scratch / "usual", ignore_errors=True)
        note("usual tiktoken 1", usual(quarter, scratch / "usual", 1) | {"bytes": text_bytes})
        note("pieces fastokens 1", run([sys.executable, "-c", PIECES, str(quarter), "fastokens"]))
    digests = {f["digest"] for engine in ENGINES for parts in (1, 2) for f in seen[f"stages {engine} {parts}"]}
    assert len(digests) == 1, "neither the number of workers nor the engine may change the shards"
    return seen


def median_of(facts: list[dict[str, Any]], key: str) -> float:
    return statistics.median(f[key] for f in facts)


def overview(seen: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Each measurement by itself: medians over the repeats."""
    rows: list[list[Any]] = []
    for name, facts in seen.items():
        if "bytes" not in facts[0] or "spent" in facts[0]:
            continue
        size, cpu = facts[0]["bytes"] / 1e6, median_of(facts, "cpu")
        peak = max(f["rss"] for f in facts) / 1e6 if "rss" in facts[0] else None
        disk = [facts[0][key] / 1e6 if key in facts[0] else None for key in ("temporary", "kept")]
        kind, engine, processes = name.split()
        alone = kind == "stages" and processes == "1"
        rows.append([name, size, cpu, size / cpu, peak, *disk, share_of_bare(seen, engine) if alone else None])
    columns = ["what", "text_mb", "cpu_s", "mb_per_cpu_s", "peak_mb_per_process", "temporary_mb", "kept_mb"]
    notes = [
        "`python -m benchmarks.data`: what, engine, processes. bare: the engine on texts in memory; stages: all jobs"
        " from .jsonl.zst to verified shards with their manifests, filters length and exact_duplicates; small: the same"
        ' on a twentieth; usual: `datasets.load_dataset("json")`, `map`, one memmap',
        "of_bare_cpu: share of the bare engine's throughput, what every job pays once apart",
        "temporary: part files; Arrow files of the usual recipe. kept: shards; its memmap",
        "neither the number of processes nor the engine changed the digest",
    ]
    return table("From .jsonl.zst to verified shards", [*columns, "of_bare_cpu"], rows, notes, "cpu")


def per_byte(large: dict[str, Any], small: dict[str, Any], key: str = "cpu") -> float:
    """CPU seconds per byte without what every job pays once (imports, tokenizers)."""
    return (large[key] - small[key]) / (large["bytes"] - small["bytes"])


def speed_ratio(slow: list[dict[str, Any]], fast: list[dict[str, Any]], key: str) -> float:
    """How many times as many bytes per second `fast` gets through, median over the repeats."""
    return statistics.median((a[key] / a["bytes"]) / (b[key] / b["bytes"]) for a, b in zip(slow, fast, strict=True))


def share_of_bare(seen: dict[str, list[dict[str, Any]]], engine: str) -> float:
    """The stages' throughput as a share of the bare engine's, start-up apart, median over the repeats."""
    alone, one, small = (seen[f"{kind} {engine} 1"] for kind in ("bare", "stages", "small"))
    return statistics.median(a["cpu"] / a["bytes"] / per_byte(b, c) for a, b, c in zip(alone, one, small, strict=True))


def bars(seen: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """What is promised, per engine, each ratio from measurements taken one after the other."""
    values: dict[str, list[Any]] = {}
    calm = True
    for engine in ENGINES:
        one, two, small, halves, alone = (seen[f"{kind} {engine} {n}"] for kind, n in KINDS)
        calm = calm and all(f["load"] < CALM + n for group, n in ((one, 1), (two, 2)) for f in group)
        values[engine] = [
            share_of_bare(seen, engine),
            speed_ratio(alone, one, "cpu"),
            statistics.median(c["cpu"] - per_byte(b, c) * c["bytes"] for b, c in zip(one, small, strict=True)),
            max(f["rss"] for f in one) / max(f["rss"] for f in small),
            max(f["rss"] for f in one + two) / 1e6,
            speed_ratio(seen["usual tiktoken 1"], alone, "cpu"),
            speed_ratio(seen["usual tiktoken 1"], one, "cpu"),
            statistics.median(
                per_byte(a, c, "critical") / per_byte(b, d, "critical")
                for a, b, c, d in zip(one, two, small, halves, strict=True)
            ),
            speed_ratio(one, two, "critical"),
            speed_ratio(one, two, "wall"),
        ]
    rows = [[*bar, *(values[engine][i] for engine in ENGINES)] for i, bar in enumerate(BARS)]
    notes = ["ratios of CPU seconds, medians of adjacent measurements"]
    if not calm:
        rows = rows[:-1]
        notes.append("wall time on two cores is left out: other work shared the machine")
    return table("Corpus and tokens against what is promised", ["bar", "wanted", *ENGINES], rows, notes, "cpu")


KINDS = (("stages", 1), ("stages", 2), ("small", 1), ("small", 2), ("bare", 1))
BARS = (
    ("share of the bare engine's throughput, start-up apart", "≥ 0.85"),
    ("the same, start-up of all jobs included", "–"),
    ("start-up of the four jobs of one part, CPU s", "–"),
    ("peak memory on the whole / on a twentieth", "0.9–1.1"),
    ("peak memory of a job, MB", "< 1,000"),
    ("bare engine's throughput / that of the usual recipe", "–"),
    ("stages' throughput / that of the usual recipe", "≥ 3"),
    ("two parts on two cores: longest chain of jobs in CPU s, start-up apart, one part / two parts", "≈ 2"),
    ("the same, start-up included", "–"),
    ("two parts on two cores: time on the wall, one part / two parts", "≈ 2"),
)


def costs(seen: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Where a megabyte's time goes with the fast engine: the steps one by one, then the jobs as a whole."""
    alone = seen["pieces fastokens 1"]
    rows = [
        [name, median_of([f["spent"] for f in alone], name) / alone[0]["bytes"] * 1e9] for name in alone[0]["spent"]
    ]
    for step in ("filter", "tokenise", "manifest"):
        whole, small = ([f["steps"][step] for f in seen[f"{kind} fastokens 1"]] for kind in ("stages", "small"))
        sizes = [seen[f"{kind} fastokens 1"][0]["bytes"] for kind in ("stages", "small")]
        spent = statistics.median(a - b for a, b in zip(whole, small, strict=True)) / (sizes[0] - sizes[1])
        rows.append([f"job {step}, start-up apart", spent * 1e9])
    notes = [
        "the first five rows are single steps, each by itself, on a quarter of the archive",
        "sha256 runs four times over the ids: shard, stream, and the manifests of the jobs that write and read a part",
    ]
    return table("fastokens: CPU milliseconds per megabyte of text", ["step", "ms per MB"], rows, notes, "cpu")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--archive", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.archive.parent) as scratch:
        seen = measure(args.archive.resolve(), Path(scratch).resolve(), args.repeats)
    publish("data", [overview(seen), bars(seen), costs(seen)])


if __name__ == "__main__":
    main()
