"""What must never be let in or out: pickles, shells, unencrypted mirrors, secrets."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import yaml

from lmu_scaling.corpus import download
from lmu_scaling.errors import DownloadError
from lmu_scaling.jobs import command

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted((ROOT / "lmu_scaling").rglob("*.py"))
RULES = sorted((ROOT / "workflow" / "rules").glob("*.smk"))

FORBIDDEN_CALLS = {"eval", "exec", "torch.load", "pd.read_pickle", "yaml.load", "os.system", "os.popen"}
FORBIDDEN_IMPORTS = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "joblib"}
FORBIDDEN_METHODS = {"extractall", "extract", "to_pickle"}
# What a shell command may hold without quotes: numbers and hashes that the workflow makes itself.
PLAIN = re.compile(r"threads|params\.code|resources\.gpu")


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_unpickles_evaluates_or_opens_a_shell(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not {name.partition(".")[0] for name in names} & FORBIDDEN_IMPORTS
    for name, call in calls(tree):
        assert name not in FORBIDDEN_CALLS, name
        assert name.rpartition(".")[2] not in FORBIDDEN_METHODS, f"{name}: archives are streamed, never unpacked"
        options = {keyword.arg: keyword.value for keyword in call.keywords}
        for option, bad in (("shell", True), ("allow_pickle", True), ("weights_only", False), ("verify", False)):
            value = options.get(option)
            wrong = isinstance(value, ast.Constant) and value.value is bad
            assert not (wrong and (option != "verify" or "requests" in name)), f"{name}({option}={bad})"


def test_the_test_of_forbidden_calls_sees_them() -> None:
    tree = ast.parse("import pickle\nx = torch.load(f)\nsubprocess.run(c, shell=True)\n")
    assert [name for name, _ in calls(tree)] == ["torch.load", "subprocess.run"]


def test_a_pickled_array_is_refused(tmp_path: Path) -> None:
    """numpy's own default; a change of it would let a hostile results folder run code."""
    np.save(tmp_path / "x.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="allow_pickle"):
        np.load(tmp_path / "x.npy")


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.name)
def test_every_value_in_a_shell_command_is_quoted(path: Path) -> None:
    text = path.read_text("utf-8")
    names = {name: ast.literal_eval(value) for name, value in re.findall(r"^([A-Z]+) = (\(.*?\))\n", text, re.M | re.S)}
    blocks = re.findall(r"^    shell:\n((?:        [^\n]*\n)+)", text, re.M)
    assert len(blocks) == len(re.findall(r"^    shell:", text, re.M)), "a command this test cannot read"
    commands = [eval(f"({block})", {"command": command, **names}) for block in blocks]
    fields = [field for command in commands for field in re.findall(r"(?<!{){([^{}]+)}(?!})", command)]
    assert fields or path.name in ("common.smk", "start.smk")
    unquoted = [field for field in fields if not field.endswith(":q") and not PLAIN.fullmatch(field)]
    assert not unquoted, f"write {{{unquoted}:q}}"


def test_no_rule_runs_a_script_or_inline_python() -> None:
    for path in RULES:
        assert not re.search(r"^    (script|run|notebook|wrapper):", path.read_text("utf-8"), re.M), path.name


# --------------------------------------------------------------------------------------------------------- downloads
def test_every_mirror_of_the_catalogue_is_encrypted_and_its_content_pinned() -> None:
    for name, entry in yaml.safe_load((ROOT / "lmu_scaling/catalog/datasets.yaml").read_text("utf-8")).items():
        for mirror in entry.get("mirrors", []):
            assert mirror.startswith("https://"), name
            assert re.fullmatch("[0-9a-f]{64}", entry["sha256"]), name


@pytest.mark.parametrize(
    "url", ["http://mirror.example/f", "ftp://mirror.example/f", "file:///etc/passwd", "http://127.0.0.1.example/f"]
)
def test_an_unencrypted_mirror_is_refused_before_a_byte_is_sent(url: str, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="not https"):
        download.download([url], tmp_path / "f", 3, "0" * 64)


class Redirects(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.asked.append(self.path)  # type: ignore[attr-defined]
        self.send_response(302 if self.path == "/away" else 200)
        if self.path == "/away":
            self.send_header("Location", f"http://{self.server.elsewhere}/f")  # type: ignore[attr-defined]
        self.send_header("Content-Length", "0" if self.path == "/away" else "3")
        self.end_headers()
        self.wfile.write(b"" if self.path == "/away" else b"abc")

    def log_message(self, *_: object) -> None:
        """Quiet."""


def test_a_redirect_to_an_unencrypted_address_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And that address is not even asked."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Redirects)
    server.asked = []  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        own = f"127.0.0.1:{server.server_port}"
        # the machine's own name for itself: reachable without a network, but no loopback address
        server.elsewhere = own.replace("127.0.0.1", "0.0.0.0")  # type: ignore[attr-defined]
        monkeypatch.setenv("NO_PROXY", "*")
        with pytest.raises(DownloadError, match="not https"):
            download.download([f"http://{own}/away"], tmp_path / "f", 3, "0" * 64)
        assert server.asked == ["/away"]  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        server.server_close()


# ----------------------------------------------------------------------------------------------------------- secrets
def test_errors_and_tracebacks_hide_secrets(tmp_path: Path) -> None:
    """A failing job's log is shown on the terminal and kept beside the results."""
    secret = "s3cr3t-value-42"
    environment = {**os.environ, "HF_TOKEN": secret, "LMU_SCALING_TRACEBACK": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "lmu_scaling", "audit", str(tmp_path / secret)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 6
    assert secret not in done.stdout + done.stderr
    assert "[redacted]" in done.stderr
    assert "Traceback" in done.stderr
