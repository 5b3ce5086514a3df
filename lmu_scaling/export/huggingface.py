"""The job `export`: a trained model as a folder for Hugging Face transformers.

    AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)

The folder holds the weights, the sizes, GPT-2's tokenizer with the vocabulary of the run, the modelling code, and a
card that is filled from the run's own records. The exported model is compared with the original before the job ends.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from lmu_scaling.errors import MissingPackage, ModelError, ResultsError
from lmu_scaling.export.card import model_card
from lmu_scaling.jobs import Folder, job
from lmu_scaling.models import ModelSpec, architecture
from lmu_scaling.models.network import NORM_EPS, LanguageModel
from lmu_scaling.runtime import atomic_write, write_json
from lmu_scaling.tokens.tokenizer import SEPARATOR, SMALLEST_VOCAB, gpt2_merges, symbols
from lmu_scaling.training.generate import load_model

CODE = ("configuration_lmu.py", "modeling_lmu.py")
SUBLAYERS = ("ffn", "ffn_gated", "attention", "attention_qk_norm", "lstm", "lmu")  # of modeling_lmu.py
TOLERANCE = 1e-5  # of the largest logit, and at least of 1: float32 rounds relative to it
SAMPLE = (2, 64)  # sequences and tokens that are compared
# Fields of a spec by their names in config.json; others have no part in the forward pass.
FIELDS = {
    "vocab": "vocab_size",
    "d": "hidden_size",
    "context": "max_position_embeddings",
    "blocks": "num_blocks",
    "ffn": "intermediate_size",
    "heads": "num_attention_heads",
    "q": "order",
    "q_reduced": "reduced_order",
    "theta": "theta",
    "softmax_scale": "softmax_scale",
    "positions": "positions",
    "embedding_scale": "embedding_scale",
}


@job
def export(run: Folder, to: Path) -> None:
    """Export a trained model for Hugging Face transformers.

    Args:
        run: results/<experiment>/training/<run>
        to: folder to write; it may exist
    """
    exported_class()  # before anything is written
    model = load_model(run)
    config = model_config(model.spec)
    to.mkdir(parents=True, exist_ok=True)
    weights = load_file(run / "weights.safetensors")
    weights["embed.weight"] = weights.pop("head_weight")
    save_file(weights, to / "model.safetensors", metadata={"format": "pt"})
    write_json(to / "config.json", config)
    end = model.spec.vocab - 1
    generation = {"bos_token_id": end, "eos_token_id": end, "pad_token_id": end, "do_sample": True, "temperature": 0.8}
    write_json(to / "generation_config.json", generation)
    write_tokenizer(to, model.spec.vocab, model.spec.context)
    for name in CODE:
        shutil.copyfile(Path(__file__).with_name(name), to / name)
    with atomic_write(to / "README.md") as file:
        file.write(model_card(run))
    error = verify(model, to)
    print(f"{to}: {model.spec.variant}, d = {model.spec.d}; logits agree with the original to {error:.1e}", flush=True)


def model_config(spec: ModelSpec) -> dict[str, Any]:
    arch = architecture(spec.variant)
    if unknown := sorted(set(arch.sublayers) - set(SUBLAYERS)):
        raise ModelError(
            f"the exported code has no layer {', '.join(unknown)}",
            f"variant {spec.variant}",
            "add the layer to lmu_scaling/export/modeling_lmu.py",
        )
    values = spec.asdict()
    module = "modeling_lmu.LMUForCausalLM"
    return {
        "model_type": "lmu_scaling",
        "architectures": ["LMUForCausalLM"],
        "auto_map": {"AutoConfig": "configuration_lmu.LMUConfig", "AutoModelForCausalLM": module},
        "torch_dtype": "float32",
        "sublayers": list(arch.sublayers),
        "norm": arch.norm,
        "norm_eps": NORM_EPS,
        "bos_token_id": spec.vocab - 1,
        "eos_token_id": spec.vocab - 1,
        "pad_token_id": spec.vocab - 1,
        "tie_word_embeddings": False,
        **{name: values[field] for field, name in FIELDS.items()},
    }


def write_tokenizer(folder: Path, vocab: int, context: int) -> None:
    """GPT-2's files, cut to the first `vocab - 1` ranks; the separator is the last id."""
    ranks = {symbol: rank for rank, symbol in enumerate([*symbols(vocab), SEPARATOR])}
    merges = gpt2_merges()[: vocab - SMALLEST_VOCAB]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    pieces = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    description = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": vocab - 1, "content": SEPARATOR, **flags}],
        "normalizer": None,
        "pre_tokenizer": pieces,
        "post_processor": None,
        "decoder": pieces,
        "model": {"type": "BPE", "vocab": ranks, "merges": merges, "unk_token": None, "ignore_merges": False},
    }
    special = dict.fromkeys(("bos_token", "eos_token", "unk_token", "pad_token"), SEPARATOR)
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": context, **special}
    files = {
        "tokenizer.json": json.dumps(description, ensure_ascii=False),
        "tokenizer_config.json": json.dumps(settings, indent=2),
        "vocab.json": json.dumps(ranks, ensure_ascii=False),
        "merges.txt": "#version: 0.2\n" + "".join(f"{merge}\n" for merge in merges),
    }
    for name, text in files.items():
        with atomic_write(folder / name) as file:
            file.write(text)


def exported_class() -> Any:
    """The exported code's model. It needs transformers, which is an extra."""
    try:
        from lmu_scaling.export.modeling_lmu import LMUForCausalLM
    except ModuleNotFoundError as error:
        where = f"the Python in {sys.prefix}"
        what = f"the package {error.name} is not installed: `export` compares the exported model with the original"
        raise MissingPackage(what, where, "pip install 'lmu-scaling[export]'") from error
    return LMUForCausalLM


@torch.no_grad()
def verify(model: LanguageModel, folder: Path) -> float:
    """The largest difference in logits between the original and the exported folder; raises if it is not tiny."""
    exported = exported_class().from_pretrained(folder).eval()
    shape = (SAMPLE[0], min(SAMPLE[1], model.spec.context))
    ids_bn = torch.randint(model.spec.vocab, shape, generator=torch.Generator().manual_seed(0))
    expected_bnv = model(ids_bn)
    error = float((exported(ids_bn).logits - expected_bnv).abs().max())
    if not error < TOLERANCE * max(1.0, float(expected_bnv.abs().max())):
        raise ResultsError(
            f"the exported model's logits differ by {error:.1e}",
            str(folder),
            "lmu_scaling/export/modeling_lmu.py must compute what lmu_scaling/models does",
        )
    return error
