"""Stages corpus and tokens against the bare tokenizer and against the usual recipe, in one interleaved run.

    python -m benchmarks.make_owt2 --megabytes 420 --out data/synthetic/owt2.jsonl.zst.tar
    python -m benchmarks.data --archive data/synthetic/owt2.jsonl.zst.tar

Every measurement is a process of its own, so that its CPU time and peak memory can be told from others. Throughput is
in bytes of text. CPU seconds are what ratios are made of: on a shared machine they are steadier than wall time.

  bare      the engine alone: texts in memory (fresh strings, batches of 1 MB) to ids; reading them is not timed
  stages    fetch, filter × parts, deduplicate, tokenise × parts, tokens-manifest, as the workflow runs them
  usual     datasets.load_dataset("json") → map(tiktoken) → one uint16 memmap
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.harness import publish

ROOT = Path(__file__).resolve().parents[1]
SPLIT = {"train": 0.96, "validation": 0.03, "test": 0.01}
PLAIN = [{"name": "length", "min_characters": 1, "max_characters": None}, {"name": "exact_duplicates"}]

BARE = """
import json, sys, time, resource
from pathlib import Path
from lmu_scaling.corpus.members import read_blocks, read_members, share
from lmu_scaling.tokens.tokenizer import Tokenizer
engine, source, part, parts = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
tokenizer = Tokenizer(50257, engine)
texts = [t for m in share(read_members(source), part, parts) for b in read_blocks(m) for t in b.texts]
batches, held = [[]], 0
for text in texts:
    batches[-1].append(text)
    held += len(text)
    if held >= 1 << 20:
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


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT), "RAYON_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}


def run(command: list[str]) -> dict:
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


def together(commands: list[list[str]], workers: int) -> dict:
    """Run commands, `workers` at a time: CPU seconds add up, wall time is that of all, memory that of the largest."""
    begun = time.perf_counter()
    with ThreadPoolExecutor(workers) as pool:
        facts = list(pool.map(run, commands))
    total = {"cpu": sum(f["cpu"] for f in facts), "rss": max(f["rss"] for f in facts), "each": facts}
    return total | {"wall": time.perf_counter() - begun}


def verb(name: str, *flags: object) -> list[str]:
    return [sys.executable, "-m", "lmu_scaling", name, *map(str, flags)]


def stages(source: Path, root: Path, engine: str, parts: int, workers: int, filters: list[dict]) -> dict:
    """All verbs after fetch; bytes and tokens come from the manifest."""
    corpus = {"parts": parts, "filters": filters, "split": SPLIT, "target_tokens": None}
    corpus |= {"on_bad_document": "stop", "max_bad_share": 0.0}
    settings = ["--settings", json.dumps(corpus)]
    tokens = ["--tokens", json.dumps({"encoding": "gpt2", "vocab": 50257, "engine": engine})]
    folder, pieces, shards = root / "corpus", root / "corpus" / "parts", root / "tokens"
    numbers = range(parts)
    steps = {
        "filter": [
            verb("filter", *settings, *tokens, "--source", source, "--part", i, "--out", pieces) for i in numbers
        ],
        "deduplicate": [verb("deduplicate", *settings, "--source", source, "--parts", pieces, "--out", folder)],
        "tokenise": [
            verb("tokenise", *settings, *tokens, "--corpus", folder, "--parts", pieces, "--part", i, "--out", shards)
            for i in numbers
        ],
        "manifest": [
            verb(
                "tokens-manifest",
                *settings,
                *tokens,
                "--corpus",
                folder,
                "--folder",
                shards,
                "--out",
                shards / "manifest.json",
            )
        ],
    }
    facts = {name: together(commands, workers) for name, commands in steps.items()}
    manifest = json.loads((shards / "manifest.json").read_text())
    report = manifest["filters"]
    return {
        "cpu": sum(f["cpu"] for f in facts.values()),
        "wall": sum(f["wall"] for f in facts.values()),
        "rss": max(f["rss"] for f in facts.values()),
        "bytes": report[0]["kept_bytes"],
        "digest": manifest["digest"],
        "temporary": sum(p.stat().st_size for p in pieces.iterdir()),
        "kept": sum(p.stat().st_size for p in shards.iterdir()),
        "steps": {name: round(f["cpu"], 2) for name, f in facts.items()},
    }


def fetch(archive: Path, root: Path) -> Path:
    source = root / "source.json"
    settings = json.dumps({"source": "local", "path": str(archive)})
    catalog = ROOT / "workflow" / "catalog" / "datasets.yaml"
    run(verb("fetch", "--settings", settings, "--catalog", catalog, "--data", root / "data", "--out", source))
    return source


def first_members(source: Path, megabytes: float, out: Path) -> Path:
    """A source with only the first members, about `megabytes` of the archive."""
    described = json.loads(source.read_text())
    members, held = [], 0
    for member in described["members"]:
        if held >= megabytes * 1e6:
            break
        members.append(member)
        held += member["size"]
    out.write_text(json.dumps(described | {"members": members}))
    return out


def bare(source: Path, engine: str, workers: int) -> dict:
    commands = [[sys.executable, "-c", BARE, engine, str(source), str(i), str(workers)] for i in range(workers)]
    facts = together(commands, workers)["each"]
    totals = {key: sum(f[key] for f in facts) for key in ("cpu", "bytes", "tokens")}
    return totals | {"wall": max(f["wall"] for f in facts)}


def usual(source: Path, root: Path, processes: int) -> dict:
    """The usual recipe cannot read a tar, so its members are unpacked for it first, which is not timed."""
    folder = root / "usual"
    (folder / "members").mkdir(parents=True)
    for member in json.loads(source.read_text())["members"]:
        with open(member["path"], "rb") as file:
            file.seek(member.get("offset", 0))
            (folder / "members" / member["name"]).write_bytes(file.read(member["size"]))
    facts = run([sys.executable, "-c", USUAL, str(folder), str(processes)])
    return facts | {"temporary": facts["arrow"], "kept": 2 * facts["tokens"]}


def median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def measure(archive: Path, scratch: Path, repeats: int) -> tuple[list[dict], dict]:
    """The fast engine and memory on the whole archive; tiktoken and the usual recipe, which are slow, on a quarter."""
    whole = fetch(archive, scratch)
    size = archive.stat().st_size / 1e6
    quarter = first_members(whole, size / 4, scratch / "quarter.json")
    small = first_members(whole, size / 20, scratch / "small.json")
    seen: dict[str, list[dict]] = {}

    def note(name: str, facts: dict) -> None:
        seen.setdefault(name, []).append(facts)
        print(f"{name}: {facts['cpu']:.1f} s CPU, {facts['wall']:.1f} s wall {facts.get('steps', '')}", flush=True)

    def staged(name: str, *arguments: object) -> None:
        root = scratch / "stages"
        shutil.rmtree(root, ignore_errors=True)
        note(name, stages(arguments[0], root, *arguments[1:], PLAIN))

    for i in range(repeats):
        for engine, source in (("fastokens", whole), ("tiktoken", quarter)):
            for workers in (1, 2):
                note(f"bare {engine} {workers}", bare(source, engine, workers))
                staged(f"stages {engine} {workers}", source, engine, workers, workers)
            staged(f"small {engine} 1", small, engine, 1, 1)
        for workers in (1, 2) if i == 0 else ():
            shutil.rmtree(scratch / "usual", ignore_errors=True)
            note(f"usual tiktoken {workers}", usual(quarter, scratch, workers))
            seen[f"usual tiktoken {workers}"][0]["bytes"] = seen["bare tiktoken 1"][0]["bytes"]
    return rows_of(seen), seen


def rows_of(seen: dict[str, list[dict]]) -> list[dict]:
    for engine in ("fastokens", "tiktoken"):
        digests = {f["digest"] for workers in (1, 2) for f in seen[f"stages {engine} {workers}"]}
        assert len(digests) == 1, "the number of workers must not change the shards"
    rows = []
    for name, facts in seen.items():
        cpu, wall = median([f["cpu"] for f in facts]), median([f["wall"] for f in facts])
        size = facts[0]["bytes"]
        row = {"what": name, "text_mb": round(size / 1e6, 1), "cpu_s": round(cpu, 2), "wall_s": round(wall, 2)}
        row |= {"mb_per_cpu_s": round(size / cpu / 1e6, 1), "mb_per_wall_s": round(size / wall / 1e6, 1)}
        row["peak_mb_per_process"] = round(max(f.get("rss", 0) for f in facts) / 1e6) or None
        row["temporary_mb"] = round(facts[0].get("temporary", 0) / 1e6) or None
        row["kept_mb"] = round(facts[0].get("kept", 0) / 1e6) or None
        kind, _, rest = name.partition(" ")
        for key in ("cpu", "wall"):
            row[f"of_bare_{key}"] = ratio(seen, f"bare {rest}", name, key) if kind == "stages" else None
        rows.append(row)
    return rows


def marginal(seen: dict[str, list[dict]], engine: str) -> float:
    """Throughput per CPU second as a share of the bare one, without what every job pays once (imports, tokenizers)."""
    small, large, alone = (seen[f"{kind} {engine} 1"][0] for kind in ("small", "stages", "bare"))
    own = (large["cpu"] - small["cpu"]) / (large["bytes"] - small["bytes"])
    return alone["cpu"] / alone["bytes"] / own


def ratio(seen: dict[str, list[dict]], reference: str, name: str, key: str) -> float:
    """Median over the repeats of reference time / own time: each pair was measured back to back."""
    pairs = zip(seen[reference], seen[name], strict=True)
    return round(median([a[key] / b[key] for a, b in pairs]), 3)


def machine() -> dict[str, object]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "memory_gb": round(memory / 1e9),
        "python": platform.python_version(),
        "system": platform.system(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--archive", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.archive.parent) as scratch:
        rows, seen = measure(args.archive.resolve(), Path(scratch).resolve(), args.repeats)
    notes = [
        "text_mb is bytes of text; of_bare_* is bare time / stage time on as many cores, median of adjacent pairs",
        "stages: as many parts as workers, filters length and exact_duplicates; small: a twentieth of the archive",
        *(f"{e}: CPU seconds by step {seen[f'stages {e} 1'][0]['steps']}" for e in ("fastokens", "tiktoken")),
        *(
            f"{e}: {marginal(seen, e):.2f} of the bare tokenizer's CPU throughput without what a job pays once"
            for e in ("fastokens", "tiktoken")
        ),
        "temporary_mb: part files; Arrow files of the usual recipe. kept_mb: shards; its memmap",
        "the number of workers did not change the digest",
        "fastokens keeps a cache of words that fills up to about 230 MB and then stays (tiktoken has none)",
        "CPU seconds carry the comparison; wall times mean little where other work shares the machine",
    ]
    result = {"title": "From .jsonl.zst to verified shards", "columns": list(rows[0]), "rows": rows, "notes": notes}
    publish("data", [result | {"machine": machine()}])


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
