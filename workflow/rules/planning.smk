# planning: the effective configuration, the cost of an experiment before it runs.

PLANNING = f"{RESULTS}/planning"


rule effective_config:
    """Write the validated configuration, with every default filled in, beside the results."""
    output:
        out=f"{RESULTS}/config.json",
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
        code=code("effective-config"),
    shell:
        command("effective-config", tee=False)


rule plan:
    """Estimate what the experiment will cost: jobs, tokens, FLOPs, hours, disk, memory, price."""

    # no output and no benchmark file: it runs whenever it is requested
    log:
        f"{RESULTS}/logs/plan.log",
    conda:
        f"{ENVS}/analysis.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        config=as_json(CONFIG.model_dump()),
        rehearse=False,
        out_json=f"{PLANNING}/plan.json",
        out_md=f"{PLANNING}/plan.md",
        manifest=f"{PLANNING}/plan.manifest.json",
        code=code("plan"),
    shell:
        command(
            "plan",
            "config",
            "rehearse",
            "threads",
            "out_json",
            "out_md",
            outputs="params",
        )


use rule plan as rehearsal with:
    log:
        f"{RESULTS}/logs/rehearsal.log",
    conda:
        f"{ENVS}/train.yaml"
    params:
        config=as_json(CONFIG.model_dump()),
        rehearse=True,
        out_json=f"{PLANNING}/plan.json",
        out_md=f"{PLANNING}/plan.md",
        manifest=f"{PLANNING}/plan.manifest.json",
        code=code("plan"),
