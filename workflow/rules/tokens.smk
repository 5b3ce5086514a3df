# tokens: encode the text, decide on duplicates and the subsample, write flat uint16 shards and their index.

TOKENS = f"{RESULTS}/tokens"
PARTS = [f"{part:05d}" for part in range(CONFIG.corpus.parts)]
TOKENS_SETTINGS = as_json(CONFIG.tokens.model_dump())
FILTERS = as_json([item.model_dump() for item in CONFIG.corpus.filters])
SPLIT = as_json(CONFIG.corpus.split.model_dump())
# Modules of the configured filters: an edit of another filter reruns nothing.
FILTER_MODULES = [type(item).__module__ for item in CONFIG.corpus.filters]
# A filter that drops repeated paragraphs needs to know them before the first part is encoded.
SURVEYS = PARTS if surveyed(CONFIG.corpus.filters) else []


rule survey:
    """Note the paragraphs of one part, so that those which occur again can be dropped."""
    input:
        source=f"{CORPUS}/source.json",
    output:
        survey=temp(f"{TOKENS}/parts/{{part}}.survey.npz"),
        manifest=f"{TOKENS}/parts/{{part}}.survey.manifest.json",
    log:
        f"{RESULTS}/logs/survey/{{part}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/survey/{{part}}.tsv"
    conda:
        f"{ENVS}/data.yaml"
    threads: 1
    resources:
        mem_mb=lambda wc, attempt: attempt * 2000,
        runtime=lambda wc: JOB_RESOURCES.text_minutes("survey", len(PARTS)),
    params:
        filters=FILTERS,
        parts=CONFIG.corpus.parts,
        part=lambda wc: int(wc.part),
        out=lambda wc: f"{TOKENS}/parts",
        code=code("survey", *FILTER_MODULES),
    shell:
        command("survey")


rule encode:
    """Read one part of the corpus, apply the filters to each document, encode what is left."""
    input:
        source=f"{CORPUS}/source.json",
        surveys=expand(f"{TOKENS}/parts/{{part}}.survey.npz", part=SURVEYS),
    output:
        tokens=temp(f"{TOKENS}/parts/{{part}}.tokens.bin"),
        signatures=temp(f"{TOKENS}/parts/{{part}}.signatures.npz"),
        counts=f"{TOKENS}/parts/{{part}}.json",
        manifest=f"{TOKENS}/parts/{{part}}.manifest.json",
    log:
        f"{RESULTS}/logs/encode/{{part}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/encode/{{part}}.tsv"
    conda:
        f"{ENVS}/data.yaml"
    threads: 1
    resources:
        mem_mb=lambda wc, attempt: attempt * 2000,
        runtime=lambda wc: JOB_RESOURCES.text_minutes("encode", len(PARTS)),
    params:
        filters=FILTERS,
        parts=CONFIG.corpus.parts,
        on_bad_document=CONFIG.corpus.on_bad_document,
        tokens=TOKENS_SETTINGS,
        part=lambda wc: int(wc.part),
        out=lambda wc: f"{TOKENS}/parts",
        code=code("encode", *FILTER_MODULES),
    shell:
        command("encode")


rule deduplicate:
    """Decide for the whole corpus which documents are duplicates and which are left out by the token target."""
    input:
        source=f"{CORPUS}/source.json",
        signatures=expand(f"{TOKENS}/parts/{{part}}.signatures.npz", part=PARTS),
        counts=expand(f"{TOKENS}/parts/{{part}}.json", part=PARTS),
    output:
        drops=f"{TOKENS}/drops.npy",
        report=f"{TOKENS}/report.csv",
        overlap=f"{TOKENS}/overlap.csv",
        selection=f"{TOKENS}/selection.json",
        manifest=f"{TOKENS}/selection.manifest.json",
    log:
        f"{RESULTS}/logs/deduplicate.log",
    benchmark:
        f"{RESULTS}/benchmarks/deduplicate.tsv"
    conda:
        f"{ENVS}/data.yaml"
    threads: 1
    resources:
        mem_mb=lambda wc, attempt: attempt * JOB_RESOURCES.deduplicate_mb(),
        runtime=lambda wc: JOB_RESOURCES.text_minutes("deduplicate"),
    params:
        filters=FILTERS,
        parts=CONFIG.corpus.parts,
        split=SPLIT,
        target_tokens=CONFIG.corpus.target_tokens,
        max_bad_share=CONFIG.corpus.max_bad_share,
        part_folder=lambda wc: f"{TOKENS}/parts",
        out=lambda wc: TOKENS,
        code=code("deduplicate", *FILTER_MODULES),
    shell:
        command("deduplicate")


rule shard:
    """Write the shards of one part: the documents that are kept, split by content hash."""
    input:
        tokens=f"{TOKENS}/parts/{{part}}.tokens.bin",
        signatures=f"{TOKENS}/parts/{{part}}.signatures.npz",
        drops=f"{TOKENS}/drops.npy",
        selection=f"{TOKENS}/selection.json",
    output:
        train=f"{TOKENS}/{{part}}.train.bin",
        validation=f"{TOKENS}/{{part}}.validation.bin",
        test=f"{TOKENS}/{{part}}.test.bin",
        counts=f"{TOKENS}/{{part}}.json",
        histogram=f"{TOKENS}/{{part}}.counts.npy",
        manifest=f"{TOKENS}/{{part}}.manifest.json",
    log:
        f"{RESULTS}/logs/shard/{{part}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/shard/{{part}}.tsv"
    conda:
        f"{ENVS}/data.yaml"
    threads: 1
    resources:
        mem_mb=lambda wc, attempt: attempt * 2000,
        runtime=lambda wc: JOB_RESOURCES.text_minutes("shard", len(PARTS)),
    params:
        split=SPLIT,
        tokens=TOKENS_SETTINGS,
        selection=lambda wc: TOKENS,
        part_folder=lambda wc: f"{TOKENS}/parts",
        part=lambda wc: int(wc.part),
        out=lambda wc: TOKENS,
        code=code("shard"),
    shell:
        command("shard")


rule index:
    """Write the index of all shards: counts, checksums, unigram cross-entropy. All later stages start from it."""
    input:
        selection=f"{TOKENS}/selection.json",
        counts=expand(f"{TOKENS}/{{part}}.json", part=PARTS),
        histograms=expand(f"{TOKENS}/{{part}}.counts.npy", part=PARTS),
        shards=expand(
            f"{TOKENS}/{{part}}.{{split}}.bin",
            part=PARTS,
            split=["train", "validation", "test"],
        ),
    output:
        out=f"{TOKENS}/index.json",
        manifest=f"{TOKENS}/index.manifest.json",
    log:
        f"{RESULTS}/logs/index.log",
    benchmark:
        f"{RESULTS}/benchmarks/index.tsv"
    conda:
        f"{ENVS}/data.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=lambda wc: JOB_RESOURCES.text_minutes("index"),
    params:
        parts=CONFIG.corpus.parts,
        tokens=TOKENS_SETTINGS,
        folder=lambda wc: TOKENS,
        code=code("index"),
    shell:
        command("index")
