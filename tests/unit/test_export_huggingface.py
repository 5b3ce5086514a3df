"""The exported folder in the real transformers and the real lm-evaluation-harness, offline."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from lmu_scaling import cli
from lmu_scaling.errors import MissingPackage, ModelError, ResultsError
from lmu_scaling.models import variants
from lmu_scaling.models.network import build
from lmu_scaling.runtime import write_json
from lmu_scaling.spec import RunSpec
from lmu_scaling.tokens.tokenizer import Tokenizer
from tests import toy
from tests.needs import needs

pytestmark = [
    needs(importlib.util.find_spec("transformers"), "needs transformers (make test installs it)"),
    pytest.mark.slow,
]
TEXT = "The state of the Union: naïve £5 — or  two\n\n\tspaces, 12345 don't."


@pytest.fixture(scope="module", autouse=True)
def offline(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """No network, and no cache in the user's home."""
    patch = pytest.MonkeyPatch()
    home = tmp_path_factory.mktemp("hf")
    for key, value in {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}.items():
        patch.setenv(key, value)
    patch.setenv("HF_MODULES_CACHE", str(home / "modules"))
    yield
    patch.undo()


def make_run(folder: Path, variant: str, d: int = 8) -> Path:
    """A run as `train` leaves it, with random weights of a size that matters."""
    from safetensors.torch import save_file

    run = folder / "results/toy/training" / f"{variant}-2k-x1-s1"
    run.mkdir(parents=True)
    values = toy.spec(variant)
    write_json(run / "spec.json", values)
    spec = RunSpec.read(run / "spec.json")
    model = build(spec.model, seed=4, compile="off")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    save_file(model.state_dict(), run / "weights.safetensors")
    machine = {"device": "cpu", "precision": "float32", "seconds": 1.0}
    facts = {"n_exact": 1234, "tokens": 5678, "epochs": 0.5, "learning_rate": 0.01, "flops_per_token": 10.0}
    write_json(run / "result.json", {**facts, "machine": machine})
    losses = {"loss": 4.25, "se_documents": 0.05, "se_sequences": 0.04, "bits_per_byte": 1.9, "tokens": 1500}
    write_json(folder / f"results/toy/evaluation/{run.name}/summary.json", {"splits": {"test": losses}})
    return run


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    """variant → (run, exported folder)."""
    from lmu_scaling.export.huggingface import export

    found = {}
    for variant in variants():
        home = tmp_path_factory.mktemp(variant)
        run = make_run(home, variant)
        export(run, home / "exported")
        found[variant] = (run, home / "exported")
    return found


def load(folder: Path) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True).eval()
    return model, AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("variant", variants())
@torch.no_grad()
def test_logits_are_the_originals(variant: str, exported: dict[str, tuple[Path, Path]]) -> None:
    from lmu_scaling.training.generate import load_model

    run, folder = exported[variant]
    ids = torch.randint(toy.VOCAB, (3, 24), generator=torch.Generator().manual_seed(2))
    assert (load(folder)[0](ids).logits - load_model(run)(ids)).abs().max() < 1e-5


@pytest.mark.parametrize("variant", variants())
@torch.no_grad()
def test_generate_continues_as_the_parallel_form_would(variant: str, exported: dict[str, tuple[Path, Path]]) -> None:
    model, _ = load(exported[variant][1])
    ids = torch.tensor([[5, 17, 250, 3]])
    said = model.generate(ids, max_new_tokens=12, do_sample=False, eos_token_id=None)
    best = model(said).logits.argmax(-1)
    assert said[0, 4:].tolist() == best[0, 3:-1].tolist()
    slow = model.generate(ids, max_new_tokens=12, do_sample=False, eos_token_id=None, use_cache=False)
    assert said.tolist() == slow.tolist()


@pytest.mark.parametrize("variant", variants())
@torch.no_grad()
def test_padding_and_beams_change_nothing(variant: str, exported: dict[str, tuple[Path, Path]]) -> None:
    model, _ = load(exported[variant][1])
    how = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    alone = [model.generate(torch.tensor([row]), **how)[0, -6:].tolist() for row in ([7, 8, 9, 10], [11, 12])]
    padded = torch.tensor([[7, 8, 9, 10], [0, 0, 11, 12]])
    mask = torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]])
    together = model.generate(padded, attention_mask=mask, **how)[:, -6:].tolist()
    assert together == alone
    with_state = model.generate(torch.tensor([[7, 8]]), num_beams=3, **how)
    without = model.generate(torch.tensor([[7, 8]]), num_beams=3, use_cache=False, **how)
    assert with_state.tolist() == without.tolist()


@torch.no_grad()
def test_the_cache_of_the_lmu_has_a_constant_size(exported: dict[str, tuple[Path, Path]]) -> None:
    sizes = {}
    for variant in ("lmu", "lstm", "transformer"):
        model, _ = load(exported[variant][1])
        state = model(torch.tensor([[1, 2, 3]]), use_cache=True).past_key_values
        before = state.numbers
        for token in range(10):
            state = model(torch.tensor([[token]]), past_key_values=state, use_cache=True).past_key_values
        sizes[variant] = (before, state.numbers)
    assert sizes["lmu"][0] == sizes["lmu"][1] and sizes["lstm"][0] == sizes["lstm"][1]
    assert sizes["transformer"][0] < sizes["transformer"][1]


def test_the_tokenizer_is_the_runs(exported: dict[str, tuple[Path, Path]]) -> None:
    _, tokenizer = load(exported["lmu"][1])
    ours = Tokenizer(toy.VOCAB)
    assert tokenizer(TEXT)["input_ids"] == ours.encode(TEXT).tolist()
    assert tokenizer.decode(ours.encode(TEXT)) == TEXT
    assert tokenizer.eos_token_id == tokenizer.convert_tokens_to_ids("<|endoftext|>") == ours.eot
    assert len(tokenizer) == toy.VOCAB


def test_the_card_is_filled_from_the_records(exported: dict[str, tuple[Path, Path]]) -> None:
    card = (exported["lmu"][1] / "README.md").read_text("utf-8")
    assert card.startswith("---\nlicense: mit\n")
    assert "1,234 non-embedding parameters" in card and "5,678" in card
    assert "| test | 4.250 | 4.152 to 4.348 | 1.900 | 1,500 |" in card  # 4.25 ± 1.96 · 0.05
    assert "Limits" in card


def test_a_wrong_export_is_refused(exported: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    import shutil

    from lmu_scaling.export.huggingface import verify
    from lmu_scaling.training.generate import load_model

    run, folder = exported["lmu"]
    shutil.copytree(folder, tmp_path / "wrong")
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "wrong/config.json").write_text(json.dumps({**config, "softmax_scale": "sqrt_d", "theta": 99}))
    with pytest.raises(ResultsError, match="logits differ"):
        verify(load_model(run), tmp_path / "wrong")


def test_a_layer_that_the_code_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from lmu_scaling.export import huggingface
    from lmu_scaling.models import resolve

    monkeypatch.setattr(huggingface, "SUBLAYERS", ("ffn",))
    with pytest.raises(ModelError, match="no layer lmu"):
        huggingface.model_config(resolve("lmu", 8, 24, 300))


def test_without_transformers_nothing_is_written_and_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path, "lmu")
    monkeypatch.setitem(sys.modules, "transformers", None)
    for name in ("modeling_lmu", "configuration_lmu"):
        monkeypatch.delitem(sys.modules, f"lmu_scaling.export.{name}", raising=False)
    assert cli.main(["export", "--run", str(run), "--to", str(tmp_path / "exported")]) == MissingPackage.exit_code
    said = capsys.readouterr().err
    assert "the package transformers is not installed" in said and "lmu-scaling[export]" in said
    assert "Traceback" not in said and not (tmp_path / "exported").exists()


@needs(importlib.util.find_spec("lm_eval"), "needs lm_eval (make test installs it)")
def test_the_evaluation_harness_measures_the_same_loss(exported: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    """A perplexity task of our own text, run by the harness without a network."""
    run, folder = exported["lmu"]
    (tmp_path / "text.json").write_text(json.dumps({"page": TEXT}) + "\n")
    task = f"""task: own_text
dataset_path: json
dataset_kwargs: {{data_files: {{test: {tmp_path / "text.json"}}}}}
output_type: loglikelihood_rolling
test_split: test
doc_to_text: ""
doc_to_target: "{{{{page}}}}"
metric_list: [{{metric: byte_perplexity}}]
"""
    (tmp_path / "own_text.yaml").write_text(task)
    code = """
import json, sys
from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager

folder, tasks = sys.argv[1:]
own = TaskManager(include_path=tasks, include_defaults=False)  # reading its thousands of tasks takes a minute
arguments = {"pretrained": folder, "trust_remote_code": True, "max_length": 256, "device": "cpu"}
found = simple_evaluate(model="hf", model_args=arguments, tasks=["own_text"], batch_size=1, task_manager=own)
print(json.dumps(found["results"]["own_text"]["byte_perplexity,none"]))
"""
    offline = dict.fromkeys(
        ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "HF_EVALUATE_OFFLINE", "TRANSFORMERS_OFFLINE"), "1"
    )
    environment = os.environ | offline
    command = [sys.executable, "-c", code, str(folder), str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    measured = json.loads(done.stdout.splitlines()[-1])
    ids = Tokenizer(toy.VOCAB).encode(TEXT).tolist()
    with torch.no_grad():
        from lmu_scaling.training.generate import load_model

        logits = load_model(run)(torch.tensor([[toy.VOCAB - 1, *ids[:-1]]]))
    nats = torch.nn.functional.cross_entropy(logits[0], torch.tensor(ids), reduction="sum")
    assert measured == pytest.approx(float((nats / len(TEXT.encode())).exp()), rel=1e-4)


def test_logits_of_a_confident_model_may_differ_by_their_own_rounding(
    exported: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    """The comparison is relative: a trained model's logits are larger than a new one's."""
    import shutil

    from safetensors.torch import load_file, save_file

    from lmu_scaling.export.huggingface import export

    run = tmp_path / "results/toy/training" / exported["lmu_attention"][0].name
    shutil.copytree(exported["lmu_attention"][0].parents[3], tmp_path, dirs_exist_ok=True)
    weights = load_file(run / "weights.safetensors")
    last = [name for name in weights if name.startswith("norm")]
    assert last, sorted(weights)
    save_file(
        {name: tensor * (1e4 if name in last else 1) for name, tensor in weights.items()}, run / "weights.safetensors"
    )
    export(run, tmp_path / "exported-confident")
