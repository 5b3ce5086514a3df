"""One style for all figures: sizes, fonts, and one colour, marker and line per variant everywhere.

Colours are safe for the colour-blind and differ in lightness (L* = 10, 30, 52, 71), so that they stay apart in grey.
PDF embeds TrueType fonts (type 42: text can be searched and edited). SVG draws glyphs as paths: a browser without our
font would otherwise substitute another one and move every label. The font ships with Matplotlib, so that a figure is
the same on every machine, and nothing that changes between two runs (dates, versions, random ids) is written.
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

from lmu_scaling.runtime import atomic_write, si

ONE_COLUMN, TWO_COLUMNS = 3.4, 7.0  # inches
PNG_DPI = 220
INK, SUBDUED, FAINT = "#222222", "#6b6b6b", "#d9d9d9"

RC: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 7.5,
    "axes.titlesize": 8,
    "axes.labelsize": 7.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 1.8,
    "mathtext.fontset": "dejavusans",
    "axes.linewidth": 0.6,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "xtick.minor.size": 1.6,
    "ytick.minor.size": 1.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#ececec",
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "lines.linewidth": 1.3,
    "lines.markersize": 4,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "figure.dpi": 100,
    "pdf.fonttype": 42,
    "pdf.compression": 6,
    "svg.fonttype": "path",
    "svg.hashsalt": "lmu-scaling",
    "path.simplify": True,
}


@dataclass(frozen=True)
class Mark:
    """How a variant looks."""

    label: str
    colour: str
    marker: str
    dashes: Any = "-"


DEFAULTS = {
    "lmu": Mark("LMU", "#0b84c6", "o"),
    "lmu_attention": Mark("LMU + attention", "#87204f", "s"),
    "transformer": Mark("Transformer", "#1b1b1b", "^"),
    "lstm": Mark("LSTM", "#e69f00", "D"),
}
SPARE = (("#4b9b62", "v"), ("#6a4fb3", "P"), ("#b3a125", "X"), ("#8c5a3c", "p"))

# Layers of Table 1 borrow the colour of the variant that they are the heart of.
LAYERS = {
    "attention": ("Full attention", DEFAULTS["transformer"].colour, "^", "-"),
    "attention_flash": ("Attention, not materialised", "#8a8a8a", "v", (0, (4, 2))),
    "lmu_parallel": ("LMU, parallel", DEFAULTS["lmu"].colour, "o", "-"),
    "lmu_recurrent": ("LMU, recurrent", DEFAULTS["lmu_attention"].colour, "s", (0, (1.5, 1.2))),
}


@dataclass(frozen=True)
class Look:
    """The context of a drawing: how variants look, what the footer says, and how wide the figure is."""

    experiment: str = ""
    corpus: str = ""
    tokens: float | None = None
    marks: Mapping[str, Mark] = field(default_factory=dict)
    columns: int | None = None
    """1 or 2 columns of a paper; None: as the figure prefers."""

    @classmethod
    def of(cls, settings: Any, columns: int | None = None) -> Look:
        """From the command line's settings: `experiment`, `corpus`, `tokens` and `looks` (`paper.looks`)."""
        looks = _mapping(getattr(settings, "looks", None) or {})
        marks = {}
        for name, entry in looks.items():
            given, known = _mapping(entry), DEFAULTS.get(name, _spare(name))
            marks[name] = Mark(**{key: given.get(key) or getattr(known, key) for key in ("label", "colour", "marker")})
        return cls(
            str(getattr(settings, "experiment", "")),
            str(getattr(settings, "corpus", "")),
            getattr(settings, "tokens", None),
            marks,
            columns,
        )

    def mark(self, variant: str) -> Mark:
        return self.marks.get(variant) or DEFAULTS.get(variant) or _spare(variant)

    def label(self, variant: str) -> str:
        return self.mark(variant).label

    def order(self, variants: Iterable[str]) -> list[str]:
        """Reading order: as in the paper, then by name. (A mapping in JSON keeps no order.)"""
        known = list(DEFAULTS)
        return sorted(set(variants), key=lambda name: (known.index(name) if name in known else len(known), name))

    @property
    def footer(self) -> str:
        experiment = f"experiment {self.experiment}" if self.experiment else ""
        corpus = f"corpus {self.corpus.replace('_', ' ')}" if self.corpus else ""
        budget = f"main budget {si(self.tokens)} tokens" if self.tokens else ""
        return "  ·  ".join(part for part in (experiment, corpus, budget) if part)

    def figure(self, columns: int, height: float, narrow_height: float | None = None) -> Figure:
        """An empty figure; `columns` is what the figure prefers, `height` [in] holds at two columns."""
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
    """Matplotlib's defaults plus this style, whatever a user's matplotlibrc says."""
    settings: dict[Any, Any] = {**matplotlib.rcParamsDefault, "backend": "agg", **RC}
    return matplotlib.rc_context(settings)


def save(figure: Figure, *, pdf: Path, svg: Path, png: Path) -> None:
    """Write all three formats; equal figures give equal bytes."""
    logging.getLogger("fontTools").setLevel(logging.ERROR)  # it remarks on the age of the font that it embeds
    plain = {
        pdf: ("pdf", {"Creator": None, "Producer": None, "CreationDate": None}),
        svg: ("svg", {"Creator": None, "Date": None, "Format": None, "Type": None}),
        png: ("png", {"Software": None}),
    }
    settle(figure)
    for path, (kind, metadata) in plain.items():
        with atomic_write(path, "wb") as file:
            figure.savefig(file, format=kind, metadata=metadata, dpi=PNG_DPI)


def settle(figure: Figure) -> None:
    """Lay the figure out once and fix the places, rounded.

    The last digits of what the layout's solver finds differ from process to process (seen: one in four; it probably
    orders its unknowns by their addresses), and with them the shades of a bitmap's edges.
    """
    figure.set_dpi(PNG_DPI)  # letters are a little narrower or wider at other resolutions
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axes in figure.axes:
        axes.set_position(Bbox(axes.get_position().get_points().round(5)))


def tint(colour: str, share: float) -> str:
    """The colour, mixed with white: 0 leaves it, 1 is white."""
    red, green, blue = (channel + (1 - channel) * share for channel in to_rgb(colour))
    return to_hex((red, green, blue))


def note(axes: Axes, text: str, height: float = 0.5) -> None:
    """Say in the panel why there is nothing to see."""
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


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else dict(vars(value))


def _spare(variant: str) -> Mark:
    """A variant without a look gets a stable one; `paper.looks` chooses a better one."""
    colour, marker = SPARE[zlib.crc32(variant.encode()) % len(SPARE)]
    return Mark(variant.replace("_", " "), colour, marker)
