# audit: the effective configuration, the plan before a run, the verification after it.

from lmu_scaling.audit.plan import refuse_small_disk

AUDIT = f"{RESULTS}/audit"


rule effective_config:
    """Store the validated configuration, with every default filled in, beside the results."""
    output:
        config=f"{RESULTS}/config.json",
        manifest=f"{RESULTS}/config.manifest.json",
    log:
        f"{RESULTS}/logs/effective_config.log",
    benchmark:
        f"{RESULTS}/benchmarks/effective_config.tsv"
    conda:
        f"{ENVS}/snakemake.yaml"
    threads: 1
    resources:
        mem_mb=500,
        runtime=5,
    params:
        config=as_json(CONFIG.model_dump()),
        code=code("config"),
    shell:
        "python -m lmu_scaling config"
        " --config {params.config:q}"
        " --out {output.config:q}"
        " --manifest {output.manifest:q} --code {params.code} > {log:q} 2>&1"


rule plan:
    """Say what the experiment will cost, before it runs: jobs, tokens, FLOPs, hours, disk, memory, price."""

    # no output and no benchmark file: it runs whenever it is asked for
    log:
        f"{RESULTS}/logs/plan.log",
    conda:
        f"{ENVS}/snakemake.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        config=as_json(CONFIG.model_dump()),
        how="",
        json=f"{AUDIT}/plan.json",
        md=f"{AUDIT}/plan.md",
        manifest=f"{AUDIT}/plan.manifest.json",
        code=code("plan"),
    shell:
        "python -m lmu_scaling plan"
        " --config {params.config:q} {params.how} --threads {threads}"
        " --out-json {params.json:q} --out-md {params.md:q}"
        " --manifest {params.manifest:q} --code {params.code} 2>&1 | tee {log:q}"


use rule plan as rehearsal with:
    log:
        f"{RESULTS}/logs/rehearsal.log",
    conda:
        f"{ENVS}/train.yaml"
    params:
        config=as_json(CONFIG.model_dump()),
        how="--rehearse",
        json=f"{AUDIT}/plan.json",
        md=f"{AUDIT}/plan.md",
        manifest=f"{AUDIT}/plan.manifest.json",
        code=code("plan"),


rule audit:
    """Verify every checksum, compare tables with runs and runs with specs, recompute a sample."""
    input:
        products(),
    output:
        json=f"{AUDIT}/audit.json",
        md=f"{AUDIT}/audit.md",
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
        code=code("audit"),
    shell:
        "python -m lmu_scaling audit {params.results:q}"
        " --figures paper_figures"
        " --out-json {output.json:q} --out-md {output.md:q}"
        " --manifest {output.manifest:q} --code {params.code} 2>&1 | tee {log:q}"


rule bundle:
    """Pack figures, tables, specs, manifests, evaluations and weights into one zip, described as an RO-Crate."""
    input:
        audit=f"{AUDIT}/audit.json",
    output:
        crate=f"{RESULTS}.crate.zip",
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
        code=code("bundle"),
    shell:
        "python -m lmu_scaling bundle {params.results:q}"
        " --figures paper_figures"
        " --out {output.crate:q}"
        " --manifest {output.manifest:q} --code {params.code} 2>&1 | tee {log:q}"


onstart:
    asked = set(workflow.dag_settings.targets)
    if not asked or asked - {"plan", "rehearsal", "audit"}:
        try:
            refuse_small_disk(CONFIG)
        except UserError as error:
            raise WorkflowError(str(error)) from None
