# corpus: download or locate the text, filter it, decide on duplicates and the subsample.

CORPUS = f"{RESULTS}/corpus"
PARTS = [f"{part:05d}" for part in range(CONFIG.corpus.parts)]
TOKENS_SETTINGS = narrow(CONFIG.tokens)


rule fetch:
    """Download the source, or find it on this machine. The only rule that needs the network."""
    output:
        source=f"{CORPUS}/source.json",
        manifest=f"{CORPUS}/source.manifest.json",
    log:
        f"{RESULTS}/logs/fetch.log",
    benchmark:
        f"{RESULTS}/benchmarks/fetch.tsv"
    # the download has its own patience; what it gives up on, a scheduler's retries would only say five times
    retries: 0
    conda:
        f"{ENVS}/data.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=1440,
    params:
        settings=narrow(CONFIG.corpus, "source", "path"),
        entry=content(f"{CATALOG}/datasets.yaml"),
        files=own_files(CONFIG.corpus.path),
        code=code("fetch"),
    shell:
        "python -m lmu_scaling fetch"
        " --settings {params.settings:q} --data data"
        " --out {output.source:q}"
        " --manifest {output.manifest:q} --code {params.code} 2>&1 | tee {log:q}"


rule filter:
    """Read one part of the corpus, apply the filters to each document and encode what is left."""
    input:
        source=f"{CORPUS}/source.json",
    output:
        tokens=temp(f"{CORPUS}/parts/{{part}}.tokens.bin"),
        signatures=temp(f"{CORPUS}/parts/{{part}}.signatures.npz"),
        counts=f"{CORPUS}/parts/{{part}}.json",
        manifest=f"{CORPUS}/parts/{{part}}.manifest.json",
    log:
        f"{RESULTS}/logs/filter/{{part}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/filter/{{part}}.tsv"
    conda:
        f"{ENVS}/data.yaml"
    threads: 1
    resources:
        mem_mb=lambda wc, attempt: attempt * 2000,
        runtime=lambda wc: NEEDS.text_minutes("filter", len(PARTS)),
    params:
        settings=narrow(CONFIG.corpus, "filters", "parts", "on_bad_document"),
        tokens=TOKENS_SETTINGS,
        part=lambda wc: int(wc.part),
        folder=lambda wc: f"{CORPUS}/parts",
        code=code("filter"),
    shell:
        "python -m lmu_scaling filter"
        " --settings {params.settings:q} --tokens {params.tokens:q}"
        " --source {input.source:q} --part {params.part} --out {params.folder:q}"
        " --wrote {output.tokens:q} {output.signatures:q} {output.counts:q}"
        " --manifest {output.manifest:q} --code {params.code} 2>&1 | tee {log:q}"


rule deduplicate:
    """Decide for the whole corpus which documents are duplicates and which are left out by the token target."""
    input:
        source=f"{CORPUS}/source.json",
        signatures=expand(f"{CORPUS}/parts/{{part}}.signatures.npz", part=PARTS),
        counts=expand(f"{CORPUS}/parts/{{part}}.json", part=PARTS),
    output:
        drops=f"{CORPUS}/drops.npy",
        report=f"{CORPUS}/report.csv",
        summary=f"{CORPUS}/manifest.json",
        manifest=f"{CORPUS}/report.manifest.json",
    log:
        f"{RESULTS}/logs/deduplicate.log",
    benchmark:
        f"{RESULTS}/benchmarks/deduplicate.tsv"
    conda:
        f"{ENVS}/data.yaml"
    threads: 1
    resources:
        mem_mb=lambda wc, attempt: attempt * NEEDS.deduplicate_mb(),
        runtime=lambda wc: NEEDS.text_minutes("deduplicate"),
    params:
        settings=narrow(
            CONFIG.corpus,
            "filters",
            "parts",
            "split",
            "target_tokens",
            "max_bad_share",
        ),
        parts=lambda wc: f"{CORPUS}/parts",
        folder=lambda wc: CORPUS,
        code=code("deduplicate"),
    shell:
        "python -m lmu_scaling deduplicate"
        " --settings {params.settings:q} --source {input.source:q}"
        " --parts {params.parts:q} --out {params.folder:q}"
        " --read {input.signatures:q} {input.counts:q}"
        " --wrote {output.drops:q} {output.report:q} {output.summary:q}"
        " --manifest {output.manifest:q} --code {params.code} 2>&1 | tee {log:q}"
