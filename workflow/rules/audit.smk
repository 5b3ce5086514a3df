# audit: verification of a finished run, and the bundle to publish it.

AUDIT = f"{RESULTS}/audit"


rule audit:
    """Verify every checksum, compare tables with runs and runs with specs, recompute a sample."""
    input:
        products(),
    output:
        out_json=f"{AUDIT}/audit.json",
        out_md=f"{AUDIT}/audit.md",
        manifest=f"{AUDIT}/audit.manifest.json",
    log:
        f"{RESULTS}/logs/audit.log",
    benchmark:
        f"{RESULTS}/benchmarks/audit.tsv"
    conda:
        f"{ENVS}/train.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=60,
    params:
        results=lambda wc: RESULTS,
        figures=lambda wc: "paper_figures",
        code=code("audit"),
    shell:
        command("audit", "figures", "out_json", "out_md")


rule bundle:
    """Pack figures, tables, specs, manifests, evaluations and weights into one zip, described as an RO-Crate."""
    input:
        audit=f"{AUDIT}/audit.json",
    output:
        out=f"{RESULTS}.crate.zip",
        manifest=f"{RESULTS}.crate.manifest.json",
    log:
        f"{RESULTS}/logs/bundle.log",
    benchmark:
        f"{RESULTS}/benchmarks/bundle.tsv"
    conda:
        f"{ENVS}/train.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=60,
    params:
        results=lambda wc: RESULTS,
        figures=lambda wc: "paper_figures",
        code=code("bundle"),
    shell:
        command("bundle", "figures")
