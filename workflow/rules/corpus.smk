# corpus: download the text, or find it on this machine.

CORPUS = f"{RESULTS}/corpus"


rule fetch:
    """Download the source, or find it on this machine. The only rule that needs the network."""
    output:
        out=f"{CORPUS}/source.json",
        manifest=f"{CORPUS}/source.manifest.json",
    log:
        f"{RESULTS}/logs/fetch.log",
    benchmark:
        f"{RESULTS}/benchmarks/fetch.tsv"
    # the download retries by itself; retries of the whole job would only repeat its error
    retries: 0
    conda:
        f"{ENVS}/data.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=1440,
    params:
        source=CONFIG.corpus.source,
        # a function: in a plain string Snakemake takes {braces} for wildcards
        path=lambda wildcards: CONFIG.corpus.path,
        sample=CONFIG.corpus.sample,
        data="data",
        entry=catalog_entry(CONFIG.corpus.source),
        files=own_files(CONFIG.corpus.path),
        code=code("fetch"),
    shell:
        command("fetch")
