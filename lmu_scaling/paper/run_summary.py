"""Short summary of a finished experiment, printed at the end of `make run`."""

from __future__ import annotations

import csv
import shutil
import textwrap
from collections import Counter
from pathlib import Path
from statistics import mean
from typing import Any

from lmu_scaling.errors import ResultsError
from lmu_scaling.jobs import job
from lmu_scaling.runtime import read_json

WIDEST = 110  # columns; longer lines are hard to read


@job
def summary(results: Path = Path("results"), figures: Path = Path("paper_figures")) -> None:
    """Print losses, verdicts and the main files of the experiment that was finished last.

    Args:
        results: folder results
        figures: folder paper_figures
    """
    finished = sorted(results.glob("*/report.html"), key=lambda path: path.stat().st_mtime)
    if not finished:
        raise ResultsError("no experiment is finished", str(results), "run `snakemake --cores all` first")
    home = finished[-1].parent
    print(f"\nExperiment {home.name!r} is complete.\n")
    for line in losses(home / "analysis" / "runs.csv"):
        print(f"  {line}")
    print()
    width = min(WIDEST, shutil.get_terminal_size().columns) - 2
    for line in verdicts(read_json(home / "analysis" / "claims.json"), width):
        print(f"  {line}")
    print()
    print(f"  report    {finished[-1]}  (open it in a browser)")
    print(f"  figures   {figures}")
    print(f"  numbers   {home / 'analysis' / 'runs.csv'}  (columns: results/README.md)")
    print(f"  verdicts  {home / 'analysis' / 'claims.md'}")
    print(f"  audit     {home / 'audit' / 'audit.md'}")


def verdicts(claims: list[dict[str, Any]], width: int) -> list[str]:
    """How many verdicts there are of each kind, and what was decided; the rest is in claims.md."""
    from lmu_scaling.analysis.claims.common import Support, Verdict  # imports pandas

    undecided = (Verdict.NOT_TESTABLE, Support.NOT_MET, Support.NOT_APPLICABLE)
    lines = []
    for title, key in (("direct verdicts on the paper's claims", "verdict"), ("conceptual verdicts", "conceptual")):
        counts = Counter(claim[key] for claim in claims).most_common()
        said = f"{title}: {', '.join(f'{count} {verdict}' for verdict, count in counts)}"
        lines += textwrap.wrap(said, width, subsequent_indent="  ")
        for claim in claims:
            if claim[key] not in undecided:
                against = f" (against {claim['baseline']})" if claim["baseline"] else ""
                text = f"  {claim['id']:<4} {claim[key]}: {claim['claim']}{against}"
                lines += textwrap.wrap(text, width, subsequent_indent=" " * 7)
    return lines


def losses(table: Path) -> list[str]:
    """Test loss by variant and size at the main budget, averaged over seeds."""
    with open(table, encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if float(row["multiple"]) == 1]
    rows = [row for row in rows if row.get("setting", "main") == "main"]
    sizes = list(dict.fromkeys(row["size"] for row in sorted(rows, key=lambda row: int(row["d"]))))
    lines = [f"{'test loss [nats per token]':<28}" + "".join(f"{size:>9}" for size in sizes)]
    for variant in dict.fromkeys(row["variant"] for row in rows):
        cells = []
        for size in sizes:
            found = [
                float(r["test_loss"]) for r in rows if r["variant"] == variant and r["size"] == size and r["test_loss"]
            ]
            cells.append(f"{mean(found):9.3f}" if found else f"{'–':>9}")
        lines.append(f"{variant:<28}" + "".join(cells))
    unigram = next((row["unigram_loss"] for row in rows if row.get("unigram_loss")), None)
    if unigram:
        lines.append(f"{'(unigram model)':<28}{float(unigram):9.3f}")
    return lines
