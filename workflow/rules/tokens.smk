# tokens: flat uint16 shards per part and split, and the manifest that makes them one stream.

TOKENS = f"{RESULTS}/tokens"


rule tokenise:
    """Write the shards of one part: drops applied, documents split by content hash, separators between them."""
    input:
        tokens=f"{CORPUS}/parts/{{part}}.tokens.bin",
        signatures=f"{CORPUS}/parts/{{part}}.signatures.npz",
        drops=f"{CORPUS}/drops.npy",
        corpus=f"{CORPUS}/manifest.json",
    output:
        train=f"{TOKENS}/{{part}}.train.bin",
        validation=f"{TOKENS}/{{part}}.validation.bin",
        test=f"{TOKENS}/{{part}}.test.bin",
        counts=f"{TOKENS}/{{part}}.json",
        histogram=f"{TOKENS}/{{part}}.counts.npy",
        manifest=f"{TOKENS}/{{part}}.manifest.json",
    log:
        f"{RESULTS}/logs/tokenise/{{part}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/tokenise/{{part}}.tsv"
    conda:
        f"{ENVS}/data.yaml"
    threads: 1
    resources:
        mem_mb=lambda wc, attempt: attempt * 2000,
        runtime=lambda wc: NEEDS.text_minutes("tokenise", len(PARTS)),
    params:
        settings=narrow(CONFIG.corpus, "split"),
        tokens=TOKENS_SETTINGS,
        part=lambda wc: int(wc.part),
        corpus=lambda wc: CORPUS,
        parts=lambda wc: f"{CORPUS}/parts",
        folder=lambda wc: TOKENS,
        code=code("tokenise"),
    shell:
        "python -m lmu_scaling tokenise"
        " --settings {params.settings:q} --tokens {params.tokens:q}"
        " --corpus {params.corpus:q} --parts {params.parts:q} --part {params.part} --out {params.folder:q}"
        " --read {input:q}"
        " --wrote {output.train:q} {output.validation:q} {output.test:q} {output.counts:q} {output.histogram:q}"
        " --manifest {output.manifest:q} --code {params.code} 2>&1 | tee {log:q}"


rule tokens_manifest:
    """Merge the parts: counts, checksums, unigram cross-entropy. All later stages start from this file."""
    input:
        corpus=f"{CORPUS}/manifest.json",
        counts=expand(f"{TOKENS}/{{part}}.json", part=PARTS),
        histograms=expand(f"{TOKENS}/{{part}}.counts.npy", part=PARTS),
        shards=expand(
            f"{TOKENS}/{{part}}.{{split}}.bin",
            part=PARTS,
            split=["train", "validation", "test"],
        ),
    output:
        tokens=f"{TOKENS}/manifest.json",
        manifest=f"{TOKENS}/tokens.manifest.json",
    log:
        f"{RESULTS}/logs/tokens_manifest.log",
    benchmark:
        f"{RESULTS}/benchmarks/tokens_manifest.tsv"
    conda:
        f"{ENVS}/data.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=lambda wc: NEEDS.text_minutes("tokens_manifest"),
    params:
        settings=narrow(CONFIG.corpus, "parts"),
        tokens=TOKENS_SETTINGS,
        corpus=lambda wc: CORPUS,
        folder=lambda wc: TOKENS,
        code=code("tokens-manifest"),
    shell:
        "python -m lmu_scaling tokens-manifest"
        " --settings {params.settings:q} --tokens {params.tokens:q}"
        " --corpus {params.corpus:q} --folder {params.folder:q}"
        " --out {output.tokens:q} --read {input.corpus:q} {input.counts:q}"
        " --manifest {output.manifest:q} --code {params.code} 2>&1 | tee {log:q}"
