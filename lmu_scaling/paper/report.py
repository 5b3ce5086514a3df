"""The report: executes the notebook and writes one self-contained page that works offline, on a phone and on paper."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from html import escape
from pathlib import Path
from typing import Any

import mistune
import nbformat

from lmu_scaling.errors import ResultsError
from lmu_scaling.paper.page import REPOSITORY, slug
from lmu_scaling.runtime import atomic_write

STYLE = Path(__file__).with_name("report.css")
TIMEOUT = 600  # seconds for one cell


def report(notebook: Path, results: Path, figures: Path, out: Path) -> None:
    """Execute `notebook` on `results` and `figures`, and write the page `out`."""
    executed = execute(
        Path(notebook), {"LMU_RESULTS": str(Path(results).resolve()), "LMU_FIGURES": str(Path(figures).resolve())}
    )
    with atomic_write(out) as file:
        file.write(page(executed))


def execute(notebook: Path, variables: dict[str, str]) -> Any:
    """The notebook with fresh outputs, run by this very Python, whatever kernels a user has installed."""
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager
    from jupyter_core.utils import run_sync
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    content = nbformat.read(notebook, as_version=4)
    with tempfile.TemporaryDirectory(prefix="lmu-report-") as scratch:
        kernel = Path(scratch, "kernels", "own")
        kernel.mkdir(parents=True)
        command = [
            sys.executable,
            "-m",
            "ipykernel_launcher",
            "-f",
            "{connection_file}",
            "--HistoryManager.enabled=False",
        ]
        (kernel / "kernel.json").write_text(json.dumps({"argv": command, "display_name": "own", "language": "python"}))
        manager = AsyncKernelManager(
            kernel_name="own",
            kernel_spec_manager=KernelSpecManager(kernel_dirs=[str(kernel.parent)], ensure_native_kernel=False),
            connection_file=str(Path(scratch, "connection.json")),
            transport="ipc",  # sockets in our own folder: no open port, and none to be taken by another job
            ip=str(Path(scratch, "socket")),
        )
        private = {
            "IPYTHONDIR": scratch,
            "JUPYTER_RUNTIME_DIR": scratch,
            "MPLCONFIGDIR": scratch,
            "PYTHONHASHSEED": "0",
        }
        path = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]))
        client = NotebookClient(content, km=manager, timeout=TIMEOUT, resources={"metadata": {"path": scratch}})
        try:
            client.execute(env={**os.environ, **variables, **private, "PYTHONPATH": path})
        except CellExecutionError as error:
            raise ResultsError(
                f"a cell of the notebook failed: {error.ename}: {error.evalue}",
                str(notebook),
                "open the notebook in Jupyter and run it cell by cell",
            ) from error
        finally:
            if manager.has_kernel:  # a manager that is handed over is not shut down by the client
                run_sync(manager.shutdown_kernel)(now=True)
    return content


def page(notebook: Any) -> str:
    """Plain HTML with our own style sheet: no script, no font, no request. The policy in the head enforces it."""
    to_html = mistune.create_markdown(escape=False, plugins=["table", "strikethrough"])
    body = "\n".join(
        str(to_html(cell.source)) if cell.cell_type == "markdown" else _outputs(cell) for cell in notebook.cells
    )
    body, links = _anchors(body)
    title = re.sub(r"<[^>]+>", "", (re.findall(r"<h1[^>]*>(.*?)</h1>", body, re.S) or ["Report"])[0])
    return TEMPLATE.format(title=title, style=STYLE.read_text("utf-8"), links=links, body=body)


def _outputs(cell: Any) -> str:
    parts = []
    for output in cell.get("outputs", []):
        if output.output_type == "stream":
            parts.append(f"<pre>{escape(output.text)}</pre>")
        elif output.output_type in ("execute_result", "display_data"):
            data = output.data
            parts.append(
                data["text/html"] if "text/html" in data else f"<pre>{escape(data.get('text/plain', ''))}</pre>"
            )
    return "\n".join(parts)


def _anchors(body: str) -> tuple[str, str]:
    """Give every second-level heading an id, and list them for the navigation."""
    links = []

    def name(match: re.Match[str]) -> str:
        links.append(f'<a href="#{slug(match[1])}">{match[1]}</a>')
        return f'<h2 id="{slug(match[1])}">{match[1]}</h2>'

    body = re.sub(r"<h2>(.*?)</h2>", name, body, flags=re.S)
    return body, "\n".join(links)


TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<nav aria-label="Sections">
{links}
</nav>
<main id="top">
{body}
</main>
</body>
</html>
"""
