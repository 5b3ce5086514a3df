"""Fingerprints change with code that can change a number, and with nothing else."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from lmu_scaling import fingerprint as module
from lmu_scaling.models import architecture, variants

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small package of the same name in a scratch repository."""
    folder = tmp_path / "lmu_scaling" / "stage"
    folder.mkdir(parents=True)
    (tmp_path / "lmu_scaling" / "__init__.py").write_text('"""A package."""\n')
    (folder / "__init__.py").write_text("")
    (folder / "a.py").write_text("from lmu_scaling.stage import b\n\ndef f(x):\n    return b.g(x) + 1\n")
    (folder / "b.py").write_text("def g(x):\n    return 2 * x\n")
    (folder / "unrelated.py").write_text("VALUE = 1\n")
    monkeypatch.setattr(module, "REPOSITORY", tmp_path)
    return folder


def clear_caches() -> None:
    for cached in (module.fingerprint, module._tree, module._module_hash, module._imports):
        cached.cache_clear()


def fingerprint(name: str = "lmu_scaling.stage.a") -> str:
    clear_caches()
    return module.fingerprint(name)


@pytest.fixture(autouse=True)
def _fresh_caches() -> None:
    clear_caches()


def test_comments_docstrings_and_formatting_do_not_count(package: Path) -> None:
    before = fingerprint()
    (package / "a.py").write_text(
        '"""Now documented."""\n\nfrom lmu_scaling.stage import (\n    b,\n)\n\n\n'
        'def f(x):\n    """Why."""\n    # a comment\n    return (b.g(x)\n            + 1)\n'
    )
    assert fingerprint() == before


def test_an_edit_that_changes_meaning_counts(package: Path) -> None:
    before = fingerprint()
    (package / "a.py").write_text("from lmu_scaling.stage import b\n\ndef f(x):\n    return b.g(x) + 2\n")
    assert fingerprint() != before


def test_an_edit_of_an_imported_module_counts(package: Path) -> None:
    before = fingerprint()
    (package / "b.py").write_text("def g(x):\n    return 3 * x\n")
    assert fingerprint() != before


def test_an_edit_of_another_module_does_not_count(package: Path) -> None:
    before = fingerprint()
    (package / "unrelated.py").write_text("VALUE = 2\n")
    assert fingerprint() == before


def test_imports_for_type_checkers_do_not_count(package: Path) -> None:
    source = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from lmu_scaling.stage import unrelated\n"
    (package / "b.py").write_text(source + "def g(x):\n    return 2 * x\n")
    fingerprint()
    assert "lmu_scaling.stage.unrelated" not in module.reachable("lmu_scaling.stage.a")


def test_a_lazy_import_counts(package: Path) -> None:
    (package / "b.py").write_text(
        "def g(x):\n    from lmu_scaling.stage import unrelated\n    return unrelated.VALUE\n"
    )
    before = fingerprint()
    (package / "unrelated.py").write_text("VALUE = 5\n")
    assert fingerprint() != before


def test_c_sources_that_a_module_names_count_without_their_comments(package: Path) -> None:
    (package / "b.py").write_text('C_SOURCES = ("kernels/k.c",)\n\ndef g(x):\n    return 2 * x\n')
    (package / "kernels").mkdir()
    (package / "kernels" / "other.c").write_text("int x;")
    source = package / "kernels" / "k.c"
    source.write_text("int f(int x) { return x + 1; }\n")
    before = fingerprint()
    source.write_text("/* why */\nint f(int x)  { return x\n    + 1; } // a comment\n")
    (package / "kernels" / "other.c").write_text("int y;")
    assert fingerprint() == before
    source.write_text("int f(int x) { return x + 2; }\n")
    assert fingerprint() != before


QUIET = """
class C:
    x: int

    def f(self, watch, x):
        if x < 0:
            raise ValueError() from None
        return x
"""
LOUD = """
class C:
    x: int
    'A field.'

    def f(self, watch, x):
        print("x is", x, flush=True)
        watch.say(f"{x} steps")
        self.writer.log({"x": x})
        warnings.warn("slow")
        if x < 0:
            raise ValueError("negative", str(x)) from None
        return x
"""


def test_messages_do_not_count(package: Path) -> None:
    (package / "b.py").write_text(QUIET)
    before = fingerprint()
    (package / "b.py").write_text(LOUD)
    assert fingerprint() == before


@pytest.mark.parametrize(
    "edit",
    [
        ("ValueError", "TypeError"),
        ("x < 0", "x < 1"),
        ("return x", "return print(x)"),
        ("return x", "y = watch.log(x)\n        return x"),
        ("return x", "watch.update(x)\n        return x"),
    ],
    ids=["class of an exception", "condition", "returned", "assigned", "another method"],
)
def test_what_is_more_than_a_message_counts(package: Path, edit: tuple[str, str]) -> None:
    (package / "b.py").write_text(QUIET)
    before = fingerprint()
    (package / "b.py").write_text(QUIET.replace(*edit))
    assert fingerprint() != before


def test_a_module_that_affects_no_result_does_not_count_nor_do_its_imports(package: Path) -> None:
    (package / "b.py").write_text("from lmu_scaling.stage import unrelated\n\nAFFECTS_RESULTS = False\n")
    before = fingerprint()
    (package / "b.py").write_text("from lmu_scaling.stage import unrelated\n\nAFFECTS_RESULTS = False\nX = 1\n")
    (package / "unrelated.py").write_text("VALUE = 2\n")
    assert fingerprint() == before
    (package / "b.py").write_text("X = 1\n")
    assert fingerprint() != before


@pytest.mark.parametrize("job", ["training.train", "evaluation.evaluate"])
def test_no_layer_and_no_variant_is_imported_by_training_or_evaluation(job: str) -> None:
    found = module.reachable(f"lmu_scaling.{job}")
    assert "lmu_scaling.models.loss" in found
    assert not [
        name for name in found if name.startswith(("lmu_scaling.models.layers.", "lmu_scaling.models.variants."))
    ]


KERNELS = {
    "lmu": {f"kernels/{name}.c" for name in ("convolution", "attention", "product")},
    "attention": {"kernels/causal_attention.c"},
    "lstm": {"kernels/lstm.c"},
}
KERNELS["attention_qk_norm"] = KERNELS["attention"]


def test_every_c_source_counts_and_a_variant_depends_on_the_kernels_of_its_layers_only() -> None:
    def sources(*modules: str) -> set[str]:
        return {source for name in module.reachable(*modules) for source in module._literal(name, "C_SOURCES", ())}

    every = {f"kernels/{path.name}" for path in (ROOT / "lmu_scaling/models/kernels").iterdir()}
    for variant in variants():
        own = set().union(*(KERNELS.get(layer, set()) for layer in architecture(variant).sublayers))
        head = {f"kernels/head{rest}" for rest in (".c", ".h", "512.c", "512.h", "_portable.c")}
        shared = head | {"kernels/share.c", "kernels/vector.h"}
        assert sources("lmu_scaling.training.train", *architecture(variant).modules) == shared | own
    assert every == shared.union(*KERNELS.values())


def test_a_module_that_affects_no_result_has_nothing_to_compute_with() -> None:
    files = [path.relative_to(ROOT).with_suffix("") for path in (ROOT / "lmu_scaling").rglob("*.py")]
    harmless = [path for path in files if not module._affects_results(".".join(path.parts))]
    assert len(harmless) > 10
    for path in harmless:
        tree = ast.parse((ROOT / path).with_suffix(".py").read_text("utf-8"))
        names = {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
        assert not names & {"torch", "numpy", "scipy", "pandas"}, path
