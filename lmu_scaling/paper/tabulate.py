"""A table as LaTeX (booktabs), CSV, Markdown and HTML."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass, field
from html import escape as escape_html
from typing import Any


class Math(str):
    """A formula in plain notation, e.g. 2dq'²; LaTeX sets it in math mode."""

    __slots__ = ()


class Code(str):
    """A config key or file name; set in typewriter."""

    __slots__ = ()


Cell = Any  # str, Math, Code, int, float or None


@dataclass(frozen=True)
class Table:
    """A caption, a header and rows of cells; `widths` (cm, LaTeX only) makes a column wrap."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    align: str = ""
    """One of l, c, r per column; default: text left."""
    widths: dict[int, float] = field(default_factory=dict)
    note: str = ""
    breakable: bool = False
    """LaTeX only: a longtable, which may run over pages."""

    def __post_init__(self) -> None:
        if any(len(row) != len(self.header) for row in self.rows):
            raise ValueError(f"not every row of {self.caption!r} has {len(self.header)} cells")


def number(value: float | None, digits: int = 3) -> str:
    """A number with fixed digits; scientific when very large or small; – when unknown."""
    if value is None or value != value:
        return "–"
    if abs(value) == float("inf"):
        return "∞" if value > 0 else "−∞"
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.{digits}f}".replace("-", "−")
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa} × 10{_superscript(int(exponent))}".replace("-", "−")


def interval(low: float | None, high: float | None, digits: int = 3) -> str:
    """An interval as [low, high]; – when unknown."""
    if low is None or high is None or low != low or high != high:
        return "–"
    return f"[{number(low, digits)}, {number(high, digits)}]"


def _superscript(value: int) -> str:
    return str(value).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def plain(cell: Cell) -> str:
    if cell is None:
        return "–"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    return number(cell) if isinstance(cell, float) else str(cell)


# ------------------------------------------------------------------------------------------------------------- CSV
def csv_text(table: Table) -> str:
    """Raw values, without thousands separators or rounding."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.header)
    writer.writerows([["" if cell is None else cell for cell in row] for row in table.rows])
    return out.getvalue()


# -------------------------------------------------------------------------------------------------------- Markdown
def markdown(table: Table) -> str:
    marks = {"l": ":--", "c": ":-:", "r": "--:"}
    lines = [
        _line(_markdown_cell(name) for name in table.header),
        _line(marks[letter] for letter in _align(table)),
        *(_line(_markdown_cell(cell) for cell in row) for row in table.rows),
    ]
    note = f"\n{table.note}\n" if table.note else ""
    return f"{table.caption}\n\n" + "\n".join(lines) + "\n" + note


def _line(cells: Any) -> str:
    return "| " + " | ".join(cells) + " |"


def _markdown_cell(cell: Cell) -> str:
    text = re.sub(r"\s", " ", plain(cell)).replace("\\", "\\\\").replace("|", "\\|")
    if isinstance(cell, Code):
        return f"`{text}`" if text else ""
    return re.sub(r"([*_<>`\[\]])", r"\\\1", text)


# ------------------------------------------------------------------------------------------------------------ HTML
def html(table: Table) -> str:
    """HTML for the report: all text is escaped, wide tables scroll inside their frame."""
    classes = [
        ("ww" if table.widths[i] > 4 else "w") if i in table.widths else {"l": "n", "r": "r", "c": "c"}[letter]
        for i, letter in enumerate(_align(table))
    ]
    head = "".join(
        f'<th class="{kind}">{escape_html(name)}</th>' for name, kind in zip(table.header, classes, strict=True)
    )
    body = "".join(
        "<tr>" + "".join(_html_cell(cell, kind) for cell, kind in zip(row, classes, strict=True)) + "</tr>"
        for row in table.rows
    )
    dense = ' class="dense"' if len(table.header) > 8 else ""
    note = f'<p class="note"><small>{escape_html(table.note)}</small></p>' if table.note else ""
    return (
        f'<div class="scroll"><table{dense}><caption>{escape_html(table.caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{note}"
    )


def _html_cell(cell: Cell, kind: str) -> str:
    text = escape_html(plain(cell))
    if isinstance(cell, Code) and text:
        joints = re.sub(r"([/._])", r"\1<wbr>", text)  # long names may break here
        text = f"<code>{joints}</code>"
    return f'<td class="{kind}">{text}</td>'


# ----------------------------------------------------------------------------------------------------------- LaTeX
SPECIAL = {
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "|": r"\textbar{}"},
    **{"<": r"\textless{}", ">": r"\textgreater{}", '"': r"\textquotedbl{}", "’": "'", "“": "``", "”": "''"},
    **{"–": "--", "—": "---", "…": r"\dots{}", "\n": " ", "\u00a0": "~", "\u0303": ""},
}
SYMBOLS = {
    **{"×": r"\times ", "·": r"\cdot ", "−": "-", "±": r"\pm ", "√": r"\surd ", "∞": r"\infty ", "½": r"\tfrac12 "},
    **{"≈": r"\approx ", "≤": r"\le ", "≥": r"\ge ", "≪": r"\ll ", "→": r"\to ", "∈": r"\in ", "′": "'"},
    **{"α": r"\alpha ", "β": r"\beta ", "ε": r"\epsilon ", "θ": r"\theta ", "σ": r"\sigma "},
    **{"ᵀ": r"^{\top}", "𝔏": r"\mathcal{L}", "̄": ""},
}
SCRIPTS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉", "-01234567890123456789")
SUPERSCRIPT, SUBSCRIPT = "⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "₀₁₂₃₄₅₆₇₈₉"


def latex(table: Table) -> str:
    """A `table` or, when it may break over pages, a `longtable`, for a document that loads booktabs."""
    columns = "".join(
        rf">{{\raggedright\arraybackslash}}p{{{table.widths[i]:g}cm}}" if i in table.widths else letter
        for i, letter in enumerate(_align(table))
    )
    head = [r"\toprule", " & ".join(escape(name) for name in table.header) + r" \\", r"\midrule"]
    body = [" & ".join(_latex_cell(cell) for cell in row) + r" \\" for row in table.rows]
    size = r"\small" if len(table.header) <= 8 else r"\footnotesize\setlength{\tabcolsep}{3pt}"
    caption = rf"\caption{{{escape(table.caption)}}}"
    note = [rf"\par\smallskip{{\footnotesize {escape(table.note)}\par}}"] if table.note else []
    if table.breakable:
        begin = rf"\begin{{longtable}}{{@{{}}{columns}@{{}}}}"
        lines = [f"{{{size}", begin, caption + r"\\", *head, r"\endhead", *body]
        lines += [r"\bottomrule", r"\end{longtable}}", *note]
        return "\n".join(["% needs \\usepackage{booktabs,array,longtable}", *lines]) + "\n"
    begin = rf"\begin{{tabular}}{{@{{}}{columns}@{{}}}}"
    lines = [r"\begin{table}", rf"\centering{size}", caption, begin, *head, *body, r"\bottomrule", r"\end{tabular}"]
    return "\n".join(["% needs \\usepackage{booktabs,array}", *lines, *note, r"\end{table}"]) + "\n"


def _latex_cell(cell: Cell) -> str:
    text = plain(cell)
    if isinstance(cell, Math):
        return f"${_math(text)}$" if text not in ("", "–") else "--"
    if isinstance(cell, Code):
        breakable = re.sub(r"(\\_|[./,])", r"\1\\allowbreak{}", escape(text))
        return rf"\texttt{{{breakable}}}"
    return escape(text)


def escape(text: str) -> str:
    """Any text as LaTeX: special characters are escaped, Unicode symbols become commands."""
    out = []
    for part in re.findall(rf"[{SUPERSCRIPT}]+|[{SUBSCRIPT}]+|.|\n", text):
        if part[0] in SUPERSCRIPT or part[0] in SUBSCRIPT or part in SYMBOLS:
            out.append(f"${_math(part).strip()}$")
        elif part in SPECIAL:
            out.append(SPECIAL[part])
        elif part.isascii() or (part.isalpha() and ord(part) < 0x250):
            out.append(part)
        else:
            out.append("?")
    return "".join(out)


def _math(text: str) -> str:
    text = re.sub(rf"[{SUPERSCRIPT}]+", lambda m: f"^{{{m[0].translate(SCRIPTS)}}}", text)
    text = re.sub(rf"[{SUBSCRIPT}]+", lambda m: f"_{{{m[0].translate(SCRIPTS)}}}", text)
    text = text.replace("'^{", "^{\\prime ").replace("log", r"\log ").replace("ln ", r"\ln ")
    return "".join(SYMBOLS.get(letter, {"%": r"\%", "#": r"\#", "&": r"\&"}.get(letter, letter)) for letter in text)


def _align(table: Table) -> str:
    return table.align or "l" * len(table.header)
