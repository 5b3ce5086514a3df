"""HTML parts of the report, called by the notebook: findings, abstract, verdicts, figures, tables, provenance.

All text that comes from data is escaped here; the notebook contains only our own text.
"""

from __future__ import annotations

import base64
import io
import os
import re
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from lmu_scaling.analysis.claims.common import MEANING, SUPPORT_MEANING, Support, Verdict
from lmu_scaling.analysis.reference import load_paper
from lmu_scaling.errors import ResultsError
from lmu_scaling.paper import load, render, style, tabulate
from lmu_scaling.paper.badges import BADGES, SUPPORT_BADGES, badge, tally
from lmu_scaling.paper.charts import embed
from lmu_scaling.paper.findings import findings
from lmu_scaling.paper.inputs import inputs_of, modules
from lmu_scaling.paths import REPOSITORY
from lmu_scaling.runtime import duration, read_json, si

MAX_SVG_BYTES = 400_000  # above, the bitmap is smaller and as sharp on a screen
RUN_COLUMNS = "run variant size multiple seed n_exact tokens context vocab epochs seconds"


class Html(str):
    """Text that Jupyter and the report render as HTML."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return str(self)


class Page:
    """The results of one experiment as HTML parts."""

    def __init__(self, results: Path, figures: Path) -> None:
        self.results, self.figures = Path(results), Path(figures)
        self.config: dict[str, Any] = read_json(self.results / "config.json")
        self.look = _look(self.config)
        self.shown: list[str] = []

    @classmethod
    def open(cls) -> Page:
        """The experiment in `LMU_RESULTS` and `LMU_FIGURES`; without them, the one that was analysed last.

        It is looked for in the current folder and those above it, since the package may be installed elsewhere.
        """
        if results := os.environ.get("LMU_RESULTS"):
            return cls(Path(results), Path(os.environ.get("LMU_FIGURES", REPOSITORY / "paper_figures")))
        here = Path.cwd()
        for home in (here, *here.parents, REPOSITORY):
            found = sorted((home / "results").glob("*/analysis/claims.json"), key=lambda path: path.stat().st_mtime)
            if found:
                return cls(found[-1].parents[1], home / "paper_figures")
        raise ResultsError("there are no results yet", "results/", "run `snakemake` first")

    # --------------------------------------------------------------------------------------- what was found, and run
    def findings(self) -> Html:
        return Html(findings(self.results, self.look))

    def abstract(self) -> Html:
        """What was run, as a sentence and a list, compared with what the paper ran."""
        runs = load.main_setting(load.table(self.results / "analysis/runs.csv", RUN_COLUMNS))
        names = [self.look.label(variant) for variant in self.look.order(runs["variant"])]
        main = runs[runs["multiple"] == 1] if runs["multiple"].eq(1).any() else runs
        corpus = str(self.look.corpus).replace("_", " ")
        tokens, others, printed = main["tokens"].iloc[0], len(runs) - len(main), load_paper()["experiment"]
        more = f", and {others} more on other token budgets" if others else ""
        sentence = (
            f"{len(main)} runs were trained: {', '.join(names)}, at {main['size'].nunique()} size"
            f"{'s' * (main['size'].nunique() > 1)} from N = {main['n_exact'].min():,} to {main['n_exact'].max():,} "
            f"non-embedding parameters, each on {si(tokens)} tokens ({main['epochs'].max():.2g} epochs) of the corpus "
            f"{corpus}{more}. The paper has {len(printed['sizes'])} sizes from N = {printed['n_min']:,} to "
            f"{printed['n_max']:,}, each trained once on {si(printed['tokens'])} tokens of OpenWebText2: "
            f"{_times(printed['tokens'] / tokens)} as many."
        )
        return Html(f"<p>{escape(sentence)}</p>{_definitions(self._facts(runs, names, corpus))}")

    def _facts(self, runs: pd.DataFrame, names: list[str], corpus: str) -> dict[str, str]:
        seeds, seconds = runs["seed"].nunique(), runs["seconds"].sum()
        swept = self.config.get("training", {}).get("recipe") == "tuned"
        return {
            "Experiment": self.look.experiment,
            "Corpus": corpus,
            "Models": ", ".join(names),
            "Sizes": ", ".join(load.size_names(runs)),
            "Tokens per run": ", ".join(si(tokens) for tokens in sorted(set(runs["tokens"]))),
            "Context and vocabulary": f"{runs['context'].iloc[0]:,} and {runs['vocab'].iloc[0]:,} tokens",
            "Runs": f"{len(runs)} with {seeds} seed{'s' * (seeds > 1)}",
            "Training time": f"{duration(seconds)}{', the sweep apart' * swept}" if seconds > 0 else "–",
        }

    # ------------------------------------------------------------------------------------------------------ verdicts
    def verdicts(self) -> Html:
        """Number and meaning of each verdict, then every claim with its verdicts, numbers, and links to figures."""
        claims = read_json(self.results / "analysis/claims.json")
        direct = tally("Direct replication, at the paper's scale", claims, "verdict", BADGES, MEANING)
        conceptual = tally(
            "Conceptual replication, under the conditions of this experiment",
            claims,
            "conceptual",
            SUPPORT_BADGES,
            SUPPORT_MEANING,
        )
        cards = "".join(map(self._claim, claims))
        return Html(f'{direct}{conceptual}<div class="claims">{cards}</div>')

    def _claim(self, claim: dict[str, Any]) -> str:
        claim = claim | {key: _minus(claim[key]) for key in ("paper", "ours", "reason", "conceptual_reason")}
        direct = badge(BADGES.get(claim["verdict"], ("", "mute")), claim["verdict"])
        judged = claim["conceptual"] != Support.NOT_APPLICABLE
        conceptual = badge(SUPPORT_BADGES.get(claim["conceptual"], ("", "mute")), claim["conceptual"])
        why = f"<p>{escape(str(claim['reason']))}</p>"
        if judged:
            why = (
                f"<p><strong>Direct:</strong> {escape(str(claim['reason']))}</p>"
                f"<p><strong>Conceptual:</strong> {escape(str(claim['conceptual_reason']))}</p>"
            )
        if claim["verdict"] == Verdict.NOT_TESTABLE and claim["conceptual"] in (
            Support.NOT_MET,
            Support.NOT_APPLICABLE,
        ):
            why = f'<details class="why"><summary>Why there is no verdict</summary>{why}</details>'
        against = f" <small>Against {escape(str(claim['baseline']))}.</small>" if claim["baseline"] else ""
        bounds = [claim.get(key) if isinstance(claim.get(key), int | float) else None for key in ("low", "high")]
        interval = "" if None in bounds else f" {escape(tabulate.interval(bounds[0], bounds[1]))}"
        evidence = claim.get("evidence", [])
        links = ", ".join(
            f'<a href="#fig-{escape(name)}">{escape(name)}</a>'
            for name in self._figures()
            if set(inputs_of("figure", name)) & set(evidence)
        )
        files = escape(", ".join(evidence)) + (f"; drawn in {links}" if links else "")
        return (
            f'<article class="claim" id="{escape(claim["id"])}"><header><span class="id">{escape(claim["id"])}</span>'
            f'<span class="badges">{direct}{conceptual if judged else ""}</span></header>'
            f"<p>{escape(claim['claim'])} <small>({escape(str(claim['place']))})</small>{against}</p>"
            f"<dl><div><dt>The paper</dt><dd>{_value(claim['paper'])}</dd></div>"
            f"<div><dt>Here</dt><dd>{_value(claim['ours'])}{interval}</dd></div></dl>"
            f"{why}<details><summary>Rule and evidence</summary>"
            f"<p>{escape(str(claim['rule']))}</p><p>{files}</p></details></article>"
        )

    def _figures(self) -> list[str]:
        return self.config.get("paper", {}).get("figures", modules("figure"))

    # ------------------------------------------------------------------------------------------- figures and tables
    def figure(self, name: str, title: str, paper: str = "") -> Html:
        """A figure with its caption, beside the paper's statement."""
        self.shown.append(name)
        statement = f"<aside><h4>The paper</h4><p>{escape(paper)}</p></aside>" if paper else ""
        heading = f'<h3 id="fig-{escape(name)}">{escape(title)}</h3>'
        files = {kind: self.figures / f"{name}.{kind}" for kind in ("svg", "png", "caption.rst")}
        if not all(path.is_file() for path in files.values()):
            return Html(f'{heading}<p class="absent">This figure is not part of the experiment.</p>')
        caption = render.from_rst(" ".join(files["caption.rst"].read_text("utf-8").split()))
        words = caption.split(". ")[0].rstrip(".")
        chart = embed.chart(name, self.results, self.look, words)
        return Html(
            f'<section class="pair">{heading}{statement}<figure>{self._picture(name, files, words)}{chart}'
            f"<figcaption>{escape(caption)}</figcaption></figure></section>"
        )

    def interactive(self) -> Html:
        """The scripts that make charts of the main figures; without them, the figures stay as they are."""
        return Html(embed.scripts())

    def _picture(self, name: str, files: dict[str, Path], words: str) -> str:
        """The figure as it was written; narrow screens get the same figure drawn one column wide."""
        best = files["svg"] if files["svg"].stat().st_size <= MAX_SVG_BYTES else files["png"]
        kind = "svg+xml" if best.suffix == ".svg" else "png"
        wide = f"data:image/{kind};base64,{base64.b64encode(best.read_bytes()).decode()}"
        return (
            f'<picture><source media="(max-width: 600px)" srcset="{self._narrow(name)}">'
            f'<img src="{wide}" alt="{escape(words)}" loading="eager"></picture>'
        )

    def _narrow(self, name: str) -> str:
        with style.context():
            drawing, _ = render.draw(name, self.results, _look(self.config, columns=1))
            style.fix_layout(drawing)
            data = io.BytesIO()
            drawing.savefig(data, format="png", dpi=style.PNG_DPI, metadata={"Software": None})
        return f"data:image/png;base64,{base64.b64encode(data.getvalue()).decode()}"

    def other_figures(self) -> Html:
        """Configured figures that no cell has shown, so that a new figure needs no change of the notebook."""
        names = [name for name in self._figures() if name not in self.shown]
        return Html("".join(self.figure(name, name.replace("_", " ")) for name in names))

    def table(self, name: str, title: str) -> Html:
        if name not in self.config.get("paper", {}).get("tables", modules("table")):
            return Html(f'<h3 id="table-{escape(name)}">{escape(title)}</h3><p class="absent">Not configured.</p>')
        content = render.rows(name, self.results, self.look)
        return Html(f'<h3 id="table-{escape(name)}">{escape(title)}</h3>{tabulate.html(content)}')

    # ---------------------------------------------------------------------------------------------------- provenance
    def provenance(self) -> Html:
        """Code, packages and machine of the analysis jobs, and the whole configuration."""
        import yaml

        manifests = [read_json(path) for path in sorted(self.results.glob("analysis/*.manifest.json"))]
        rows = tuple(_facts(manifests).items())
        table = tabulate.html(tabulate.Table("Software and hardware of these results", ("", ""), rows)) if rows else ""
        config = escape(yaml.safe_dump(self.config, sort_keys=False, allow_unicode=True))
        return Html(f"{table}<details><summary>The whole configuration</summary><pre>{config}</pre></details>")


def _look(config: dict[str, Any], columns: int | None = None) -> style.Look:
    training, models = config.get("training", {}), config.get("models", {})
    tokens = training.get("steps", 0) * training.get("batch", 0) * models.get("context", 0)
    looks = config.get("paper", {}).get("looks", {})
    return style.Look(
        experiment=config.get("experiment", ""),
        corpus=config.get("corpus", {}).get("source", ""),
        tokens=tokens or None,
        marks={name: style.Mark(**look) for name, look in looks.items()},
        columns=columns,
    )


def _definitions(facts: dict[str, str]) -> str:
    items = "".join(f"<div><dt>{escape(key)}</dt><dd>{escape(value)}</dd></div>" for key, value in facts.items())
    return f'<dl class="facts">{items}</dl>'


def _times(factor: float) -> str:
    return f"{factor:,.0f} times" if factor >= 2 else "about"


def _value(value: Any) -> str:
    return escape(tabulate.number(value) if isinstance(value, float) else "–" if value is None else str(value))


def _minus(value: Any) -> Any:
    """Replace the hyphen before negative numbers by a minus sign, as in intervals."""
    return re.sub(r"(?<!\w)-(?=\d)", "−", value) if isinstance(value, str) else value


def _facts(manifests: list[dict[str, Any]]) -> dict[str, str]:
    """Distinct values over all jobs."""
    facts: dict[str, set[str]] = {}
    for manifest in manifests:
        environment, git = manifest.get("environment", {}), manifest.get("git", {})
        found = {
            "Commit": f"{git['commit'][:12]}{' with local changes' if git.get('dirty') else ''}"
            if git.get("commit")
            else "",
            "Python": environment.get("python", ""),
            "System": environment.get("system", ""),
            "Processor": environment.get("cpu", ""),
            "Packages": ", ".join(f"{name} {version}" for name, version in environment.get("packages", {}).items()),
            "Code": f"{manifest.get('job', '')} {manifest.get('code', '')}".strip(),
        }
        for key, value in found.items():
            facts.setdefault(key, set()).add(str(value))
    return {key: "; ".join(sorted(values - {""})) for key, values in facts.items() if values - {""}}


def slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
