"""The report: execute the notebook and write one self-contained HTML page."""

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
from lmu_scaling.jobs import Folder, Input, Output, job
from lmu_scaling.paper.charts import embed
from lmu_scaling.paper.page import slug
from lmu_scaling.paths import NOTEBOOK, REPOSITORY
from lmu_scaling.runtime import atomic_write

STYLE = Path(__file__).with_name("report.css")
TIMEOUT = 600  # seconds for one cell


@job
def report(results: Folder, figures: Folder, page: Output, notebook: Input = NOTEBOOK) -> None:
    """Execute the notebook into one self-contained page.

    Args:
        results: folder results/<experiment>
        figures: folder paper_figures
        page: report.html
        notebook: the report's notebook
    """
    executed = execute(notebook, {"LMU_RESULTS": str(results.resolve()), "LMU_FIGURES": str(figures.resolve())})
    with atomic_write(page) as file:
        file.write(html_page(executed))


def execute(notebook: Path, variables: dict[str, str]) -> Any:
    """Execute the notebook with this Python, independent of the kernels that a user has installed."""
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager
    from jupyter_core.utils import run_sync
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    content = nbformat.read(notebook, as_version=4)
    with tempfile.TemporaryDirectory(prefix="lmu-report-") as scratch:
        kernel = Path(scratch, "kernels", "own")
        kernel.mkdir(parents=True)
        launcher = ["-m", "ipykernel_launcher", "-f", "{connection_file}", "--HistoryManager.enabled=False"]
        spec = {"argv": [sys.executable, *launcher], "display_name": "own", "language": "python"}
        (kernel / "kernel.json").write_text(json.dumps(spec))
        manager = AsyncKernelManager(
            kernel_name="own",
            kernel_spec_manager=KernelSpecManager(kernel_dirs=[str(kernel.parent)], ensure_native_kernel=False),
            connection_file=str(Path(scratch, "connection.json")),
            transport="ipc",  # sockets in the scratch folder: no network port
            ip=str(Path(scratch, "socket")),
        )
        private = dict.fromkeys(("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "MPLCONFIGDIR"), scratch)
        private["PYTHONHASHSEED"] = "0"
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
            if manager.has_kernel:  # the client does not shut down a manager that was passed in
                run_sync(manager.shutdown_kernel)(now=True)
    return content


def html_page(notebook: Any) -> str:
    """HTML with an inline style sheet; the policy in its head forbids requests, and all scripts but our own two."""
    to_html = mistune.create_markdown(escape=False, plugins=["table", "strikethrough"])
    body = "\n".join(
        str(to_html(cell.source)) if cell.cell_type == "markdown" else _outputs(cell) for cell in notebook.cells
    )
    body, links = _anchors(body)
    title = re.sub(r"<[^>]+>", "", (re.findall(r"<h1[^>]*>(.*?)</h1>", body, re.S) or ["Report"])[0])
    style = STYLE.read_text("utf-8")
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {embed.policy()}"
    return TEMPLATE.format(title=title, style=style, links=links, body=body, policy=policy)


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
<meta http-equiv="Content-Security-Policy" content="{policy}">
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
