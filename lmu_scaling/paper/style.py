"""Style of all figures: seaborn's theme with sizes and fonts of our own, and the colour and marker of each variant.

Colours are safe for the colour-blind and differ in lightness (L* = 10, 30, 52, 71), so that they remain distinct in
grey. PDF embeds TrueType fonts (type 42: text can be searched and edited). SVG draws glyphs as paths, because a browser
without the font would substitute another one and move every label. The font ships with Matplotlib and no dates,
versions or random ids are written, so that a figure has the same bytes on every machine.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from lmu_scaling.models import architecture, variants
from lmu_scaling.runtime import atomic_write, si

ONE_COLUMN, TWO_COLUMNS = 3.4, 7.0  # inches
PNG_DPI = 220
INK, SUBDUED, FAINT = "#222222", "#6b6b6b", "#d9d9d9"

# What differs from seaborn's style "ticks" and its context "paper".
RC: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "mathtext.fontset": "dejavusans",
    "legend.frameon": False,
    "legend.handlelength": 1.8,
    **dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "text.color", "xtick.color", "ytick.color"), INK),
    **dict.fromkeys(("axes.linewidth", "xtick.major.width", "ytick.major.width"), 0.6),
    **dict.fromkeys(("xtick.major.size", "ytick.major.size"), 3.5),
    **dict.fromkeys(("xtick.minor.width", "ytick.minor.width"), 0.4),
    **dict.fromkeys(("xtick.minor.size", "ytick.minor.size"), 1.6),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
    "axes.grid": True,
    "grid.color": "#ececec",
    "grid.linewidth": 0.5,
    "lines.markersize": 4,
    **dict.fromkeys(("figure.facecolor", "savefig.facecolor"), "white"),
    "figure.dpi": 100,
    "pdf.fonttype": 42,
    "pdf.compression": 6,
    "svg.fonttype": "path",
    "svg.hashsalt": "lmu-scaling",
    "path.simplify": True,
}
FONT_SCALE = 0.79  # of seaborn's "paper": labels and titles 7.6 pt, ticks and legends 7 pt


@dataclass(frozen=True)
class Mark:
    """Label, colour, marker and dash pattern of a variant or another series."""

    label: str
    colour: str
    marker: str
    dashes: Any = "-"


# Colour and marker of each variant, in the paper's order; `paper.looks` of the configuration overrides them. Labels are
# those of the variants themselves (lmu_scaling/models/variants/).
MARKS = {
    "lmu": ("#0b84c6", "o"),
    "lmu_attention": ("#87204f", "s"),
    "transformer": ("#1b1b1b", "^"),
    "lstm": ("#e69f00", "D"),
}
FALLBACK_MARKS = (("#4b9b62", "v"), ("#6a4fb3", "P"), ("#b3a125", "X"), ("#8c5a3c", "p"))

# Layers of Table 1 have the colour of the variant that is built on them.
LAYERS = {
    "attention": Mark("Full attention", MARKS["transformer"][0], "^"),
    "attention_flash": Mark("Attention, not materialised", "#8a8a8a", "v", (4, 2)),
    "lmu_parallel": Mark("LMU, parallel", MARKS["lmu"][0], "o"),
    "lmu_recurrent": Mark("LMU, recurrent", MARKS["lmu_attention"][0], "s", (1.5, 1.2)),
}
SMALL_MEMORY = "memory below 512 KiB, which is indistinguishable from noise, counts as equal"  # complexity.RESOLUTION


@dataclass(frozen=True)
class Look:
    """Settings of a drawing: marks of the variants, text of the footer, width of the figure."""

    experiment: str = ""
    corpus: str = ""
    tokens: float | None = None
    marks: Mapping[str, Mark] = field(default_factory=dict)
    columns: int | None = None
    """Width in columns of a paper, 1 or 2; None: the figure's own choice."""

    def mark(self, variant: str) -> Mark:
        return self.marks.get(variant) or default_mark(variant)

    def label(self, variant: str) -> str:
        return self.mark(variant).label

    def order(self, variants: Iterable[str]) -> list[str]:
        """Variants in the order of `MARKS`, then by name."""
        known = list(MARKS)
        return sorted(set(variants), key=lambda name: (known.index(name) if name in known else len(known), name))

    @property
    def footer(self) -> str:
        experiment = f"experiment {self.experiment}" if self.experiment else ""
        corpus = f"corpus {self.corpus.replace('_', ' ')}" if self.corpus else ""
        budget = f"main budget {si(self.tokens)} tokens" if self.tokens else ""
        return "  ·  ".join(part for part in (experiment, corpus, budget) if part)

    def figure(self, columns: int, height: float, narrow_height: float | None = None) -> Figure:
        """An empty figure; `columns` is its default width, `height` [in] for two columns, `narrow_height` for one."""
        columns = self.columns or columns
        if columns == 1:
            height = narrow_height or height
        figure = Figure(figsize=(ONE_COLUMN if columns == 1 else TWO_COLUMNS, height), layout="constrained")
        bottom = 0.17 / height if self.footer else 0
        engine: Any = figure.get_layout_engine()
        engine.set(rect=(0, bottom, 1, 1 - bottom), w_pad=0.04, h_pad=0.04, wspace=0.04, hspace=0.06)
        if self.footer:
            figure.text(0.5, 0.05 / height, self.footer, ha="center", va="bottom", size=5.5, color=SUBDUED)
        return figure

    def panels(self, count: int, height: float, narrow_height: float | None = None, **share: Any) -> tuple[Figure, Any]:
        """`count` panels side by side at two columns, one below the other at one."""
        figure = self.figure(2, height, narrow_height)
        shape = (1, count) if self.wide(figure) else (count, 1)
        return figure, figure.subplots(*shape, squeeze=False, **share).ravel()

    @staticmethod
    def wide(figure: Figure) -> bool:
        return figure.get_figwidth() > (ONE_COLUMN + TWO_COLUMNS) / 2


def context() -> AbstractContextManager[None]:
    """Matplotlib's defaults, seaborn's theme and this style, independent of the user's matplotlibrc."""
    import seaborn  # takes a second, and tables read this module as well

    theme = seaborn.axes_style("ticks") | seaborn.plotting_context("paper", font_scale=FONT_SCALE)
    settings: dict[Any, Any] = {**matplotlib.rcParamsDefault, "backend": "agg", **theme, **RC}
    return matplotlib.rc_context(settings)


def save(figure: Figure, *, pdf: Path, svg: Path, png: Path) -> None:
    """Write PDF, SVG and PNG; equal figures give equal bytes."""
    logging.getLogger("fontTools").setLevel(logging.ERROR)  # it warns about the age of the embedded font
    plain = {
        pdf: ("pdf", {"Creator": None, "Producer": None, "CreationDate": None}),
        svg: ("svg", {"Creator": None, "Date": None, "Format": None, "Type": None}),
        png: ("png", {"Software": None}),
    }
    fix_layout(figure)
    for path, (kind, metadata) in plain.items():
        with atomic_write(path, "wb") as file:
            figure.savefig(file, format=kind, metadata=metadata, dpi=PNG_DPI)


def fix_layout(figure: Figure) -> None:
    """Run the layout once and fix rounded positions.

    The last digits of the layout solver's result differ between processes (in one of four, observed), and would change
    the anti-aliasing of the bitmap.
    """
    figure.set_dpi(PNG_DPI)  # text widths depend slightly on the resolution
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axes in figure.axes:
        axes.set_position(Bbox(axes.get_position().get_points().round(5)))


def tint(colour: str, share: float) -> str:
    """Mix a colour with white: 0 leaves it unchanged, 1 is white."""
    red, green, blue = (channel + (1 - channel) * share for channel in to_rgb(colour))
    return to_hex((red, green, blue))


def note(axes: Axes, text: str, height: float = 0.5) -> None:
    """Write in the panel why it is empty."""
    axes.text(
        0.5,
        height,
        text,
        transform=axes.transAxes,
        ha="center",
        va="center",
        color=SUBDUED,
        style="italic",
        wrap=True,
        bbox={"facecolor": "white", "edgecolor": FAINT, "boxstyle": "round,pad=0.5", "linewidth": 0.6},
    )


def default_mark(variant: str) -> Mark:
    """The mark of `MARKS`; another variant gets one of the fallbacks, always the same."""
    colour, marker = MARKS.get(variant) or FALLBACK_MARKS[zlib.crc32(variant.encode()) % len(FALLBACK_MARKS)]
    label = architecture(variant).label if variant in variants() else variant.replace("_", " ")
    return Mark(label, colour, marker)
