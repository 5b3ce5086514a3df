"""The processes that benchmarks.data measures; each is a process of its own, with its own CPU time and peak memory.

bare      the engine alone: texts in memory (fresh strings, batches like the stages') to ids; reading is not timed
usual     datasets.load_dataset("json") → map(tiktoken) → one uint16 memmap
pieces    the steps of `encode` one by one, a block of documents at a time
stages    encode × parts, deduplicate, shard × parts, index, as the workflow runs them, with manifests
"""

from __future__ import annotations

import collections
import hashlib
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
FILTERS = [{"name": "length", "min_characters": 1, "max_characters": None}, {"name": "exact_duplicates"}]
VOCAB = 50257
Facts = dict[str, Any]


# Each in a process of its own, which pays only for the packages that it imports


def bare(source: str, engine: str) -> Facts:
    from lmu_scaling.corpus.members import read_blocks, read_members
    from lmu_scaling.tokens.encode import BATCH_CHARACTERS
    from lmu_scaling.tokens.tokenizer import Tokenizer

    tokenizer = Tokenizer(VOCAB, engine)
    texts = [text for member in read_members(Path(source)) for block in read_blocks(member) for text in block.texts]
    batches: list[list[str]] = [[]]
    held = 0
    for text in texts:
        batches[-1].append(text)
        held += len(text)
        if held >= BATCH_CHARACTERS:
            batches.append([])
            held = 0
    wall, cpu = time.perf_counter(), time.process_time()
    tokens = sum(len(tokenizer.encode_batch(batch)[0]) for batch in batches)
    facts = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
    return facts | {"bytes": sum(len(text.encode()) for text in texts), "tokens": tokens}


def usual(folder: str) -> Facts:
    """Reads the members that `usual_recipe` has unpacked."""
    os.environ |= {"HF_DATASETS_CACHE": f"{folder}/cache", "HF_DATASETS_OFFLINE": "1"}
    import datasets
    import numpy as np

    from lmu_scaling.tokens.tokenizer import Tokenizer

    datasets.disable_progress_bars()

    def encode(example: dict[str, Any]) -> dict[str, Any]:
        text = example["text"]
        ids = encode.tiktoken.encode_ordinary(  # type: ignore[attr-defined]
            "\n\n".join(text) if isinstance(text, list) else text
        )
        ids.append(VOCAB - 1)
        return {"ids": ids, "length": len(ids)}

    encode.tiktoken = Tokenizer(VOCAB)._reference  # type: ignore[attr-defined]
    files = sorted(str(path) for path in Path(folder, "members").glob("*.jsonl.zst"))
    data = datasets.load_dataset("json", data_files=files, split="train")
    tokens = data.map(encode, remove_columns=data.column_names)
    out = np.memmap(Path(folder, "train.bin"), np.uint16, "w+", shape=(sum(tokens["length"]),))
    at = 0
    for i in range(0, len(tokens), 1000):
        batch = np.concatenate(tokens[i : i + 1000]["ids"])
        out[at : at + len(batch)] = batch
        at += len(batch)
    out.flush()
    return {"kept": 2 * at, "temporary": sum(path.stat().st_size for path in Path(folder, "cache").rglob("*.arrow"))}


def pieces(source: str, engine: str) -> Facts:
    import xxhash

    from lmu_scaling.corpus.documents import parse_lines
    from lmu_scaling.corpus.members import read_members
    from lmu_scaling.corpus.streams import decompressed, raw_bytes
    from lmu_scaling.tokens.tokenizer import Tokenizer

    tokenizer, spent, size = Tokenizer(VOCAB, engine), collections.Counter(), 0

    def timed(name: str, step: Any, *arguments: Any) -> Any:
        begun = time.process_time()
        result = step(*arguments)
        spent[name] += time.process_time() - begun
        return result

    def chunks(member: Any) -> Any:
        return decompressed(raw_bytes(member.path, member.offset, member.size), member.codec)

    for member in read_members(Path(source)):
        timed("read and decompress (zstd)", collections.deque, chunks(member), 0)
        lines = b"".join(chunks(member)).splitlines(True)
        for i in range(0, len(lines), 256):
            block = b"".join(lines[i : i + 256])
            texts = timed("parse (JSON)", parse_lines, block, "", 0)[0].texts
            ids, _ = timed("engine", tokenizer.encode_documents, texts)
            timed("UTF-8 and content hash", lambda t=texts: [xxhash.xxh3_128_digest(text.encode()) for text in t])
            timed("one sha256 of the ids", lambda ids=ids: hashlib.sha256(ids.data).digest())
            size += sum(len(text.encode()) for text in texts)
    return {"bytes": size, "spent": spent}


# Linux counts the memory of the process that starts another one as the other one's peak. So a small one starts it.
MEASURED = """
import json, os, sys
child = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_, status, used = os.wait4(child, 0)
facts = {"cpu": used.ru_utime + used.ru_stime, "rss": used.ru_maxrss * 1024}
os.write(int(sys.argv[1]), json.dumps(facts).encode())
sys.exit(abs(os.waitstatus_to_exitcode(status)))
"""

# From outside --------------------------------------------------------------------------------------------------------


def alone(name: str, *arguments: object) -> Facts:
    """One of the functions above in a process of its own."""
    return run([sys.executable, "-m", "benchmarks.data_jobs", name, *map(str, arguments)])


def usual_recipe(source: Path, folder: Path) -> Facts:
    """The usual recipe cannot read a tar, so its members are unpacked for it first, which is not timed."""
    (folder / "members").mkdir(parents=True)
    for member in json.loads(source.read_text())["members"]:
        with open(member["path"], "rb") as file:
            file.seek(member.get("offset", 0))
            (folder / "members" / member["name"]).write_bytes(file.read(member["size"]))
    return alone("usual", folder)


def run(command: list[str]) -> Facts:
    """Run a command; CPU seconds and peak memory of it and its children, and its output if that is JSON."""
    threads = {"RAYON_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # as Snakemake does for jobs with one thread
    environment = os.environ | threads | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    begun = time.perf_counter()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        used, write = os.pipe()
        words = [sys.executable, "-S", "-c", MEASURED, str(write), *command]
        process = subprocess.Popen(words, stdout=out, stderr=err, env=environment, cwd=ROOT, pass_fds=[write])
        os.close(write)
        with open(used) as file:
            usage = json.loads(file.read() or "{}")
        process.wait()
        out.seek(0)
        err.seek(0)
        text = out.read()
        if process.returncode:
            raise SystemExit(f"{' '.join(command[:6])} …\n{err.read()[-2000:]}")
    facts = usage | {"wall": time.perf_counter() - begun}
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


def job(name: str, *more: object, **settings: object) -> list[str]:
    """The command of a job, as the workflow calls it, which has computed the code's fingerprint before."""
    flags: list[object] = []
    for key, value in settings.items():
        text = str(value) if isinstance(value, str | Path) else json.dumps(value)
        flags += [f"--{key.replace('_', '-')}", text]
    return [sys.executable, "-m", "lmu_scaling", name, *map(str, [*flags, *more]), "--code", "benchmark"]


def stages(source: Path, root: Path, engine: str, parts: int) -> Facts:
    """All jobs of stage tokens, as many at once as there are parts; bytes and digest come from the index."""
    commands, temporary, kept = stage_commands(source, root, engine, parts)
    facts = {name: together(jobs, parts) for name, jobs in commands.items()}
    index = json.loads((root / "index.json").read_text())
    return {
        "cpu": sum(f["cpu"] for f in facts.values()),
        "wall": sum(f["wall"] for f in facts.values()),
        # if every job had a core of its own
        "critical": sum(max(job["cpu"] for job in f["each"]) for f in facts.values()),
        "rss": max(f["rss"] for f in facts.values()),
        "bytes": index["filters"][0]["kept_bytes"],
        "digest": index["digest"],
        "temporary": sum(path.stat().st_size for path in temporary),
        "kept": sum(path.stat().st_size for path in kept),
        "steps": {name: f["cpu"] for name, f in facts.items()},
        "peaks": {name: f["rss"] for name, f in facts.items()},
    }


def stage_commands(
    source: Path, root: Path, engine: str, parts: int
) -> tuple[dict[str, list[list[str]]], list[Path], list[Path]]:
    """The commands by job, as workflow/rules/tokens.smk has them; the temporary files; the kept ones."""
    chain: dict[str, Any] = {"filters": FILTERS, "parts": parts}
    tokens = {"encoding": "gpt2", "vocab": VOCAB, "engine": engine}
    pieces, manifest, selected = (
        root / "parts",
        "{}.manifest.json".format,
        [root / "drops.npy", root / "selection.json"],
    )
    stems = [f"{i:05d}" for i in range(parts)]
    made = [[pieces / f"{stem}.{kind}" for kind in ("tokens.bin", "signatures.npz", "json")] for stem in stems]
    kinds = ("train.bin", "validation.bin", "test.bin", "json", "counts.npy")
    kept = [[root / f"{stem}.{kind}" for kind in kinds] for stem in stems]
    encode, shard = [], []
    for i, stem in enumerate(stems):
        files = ["--wrote", *made[i], "--manifest", pieces / manifest(stem)]
        common = {"tokens": tokens, "part": i}
        encode.append(job("encode", *files, **chain, **common, on_bad_document="stop", source=source, out=pieces))
        files = ["--read", *made[i][:2], *selected, "--wrote", *kept[i], "--manifest", root / manifest(stem)]
        folders = {"selection": root, "part_folder": pieces, "out": root}
        shard.append(job("shard", *files, **common, split=SPLIT, **folders))
    files = ["--read", *(path for paths in made for path in paths[1:]), "--wrote", *selected, root / "report.csv"]
    files += ["--manifest", root / manifest("selection")]
    rules = {**chain, "split": SPLIT, "target_tokens": None, "max_bad_share": 0.0}
    deduplicate = [job("deduplicate", *files, **rules, source=source, part_folder=pieces, out=root)]
    files = ["--read", *(path for paths in kept for path in paths), "--manifest", root / manifest("index")]
    index = [job("index", *files, parts=parts, tokens=tokens, folder=root, out=root / "index.json")]
    commands = {"encode": encode, "deduplicate": deduplicate, "shard": shard, "index": index}
    return commands, [path for paths in made for path in paths[:2]], [path for paths in kept for path in paths]


def fetch(archive: Path, root: Path) -> Path:
    source = root / "source.json"
    run(job("fetch", source="local", path=archive, sample=None, data=root / "data", out=source))
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


if __name__ == "__main__":
    print(json.dumps({"bare": bare, "usual": usual, "pieces": pieces}[sys.argv[1]](*sys.argv[2:])))
