# training: one job per variant × size × budget × seed; with recipe `tuned`, a learning-rate sweep before it.

# parameters of `train` that a profile may set
COMPUTE = (
    "device",
    "precision",
    "micro_batch",
    "compile",
    "checkpoint_seconds",
    "trackers",
)


rule specify:
    """Write down all that defines one run: spec.json."""
    input:
        tuning=tuning_of,
    output:
        out=f"{RESULTS}/training/{{run}}/spec.json",
        manifest=f"{RESULTS}/training/{{run}}/spec.manifest.json",
    log:
        f"{RESULTS}/logs/specify/{{run}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/specify/{{run}}.tsv"
    conda:
        f"{ENVS}/snakemake.yaml"
    threads: 1
    resources:
        mem_mb=500,
        runtime=5,
    params:
        template=lambda wc: canonical_json(spec_of(wc.run).asdict()),
        code=code("specify"),
    shell:
        command("specify", "tuning", tee=False)


rule tune:
    """Choose the learning rate of one variant at one size on validation."""
    input:
        results=sweep_results,
    output:
        out=f"{RESULTS}/training/tuning/{{variant}}-{{size}}.json",
        manifest=f"{RESULTS}/training/tuning/{{variant}}-{{size}}.manifest.json",
    log:
        f"{RESULTS}/logs/tune/{{variant}}-{{size}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/tune/{{variant}}-{{size}}.tsv"
    conda:
        f"{ENVS}/snakemake.yaml"
    threads: 1
    resources:
        mem_mb=500,
        runtime=5,
    params:
        variant="{variant}",
        size="{size}",
        code=code("tune"),
    shell:
        command("tune", tee=False)


rule train:
    """Train one run, or resume it from its last checkpoint in training/<run>/live/."""
    input:
        spec=f"{RESULTS}/training/{{run}}/spec.json",
        tokens=f"{RESULTS}/tokens/index.json",
    output:
        weights=f"{RESULTS}/training/{{run}}/weights.safetensors",
        history=f"{RESULTS}/training/{{run}}/history.parquet",
        result=f"{RESULTS}/training/{{run}}/result.json",
        manifest=f"{RESULTS}/training/{{run}}/train.manifest.json",
    log:
        f"{RESULTS}/logs/train/{{run}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/train/{{run}}.tsv"
    conda:
        f"{ENVS}/train.yaml"
    threads: 1
    resources:
        mem_mb=lambda wc, attempt: attempt * JOB_RESOURCES.train(wc.run)["mem_mb"],
        runtime=lambda wc: JOB_RESOURCES.train(wc.run)["runtime"],
        gpu=lambda wc: JOB_RESOURCES.train(wc.run)["gpu"],
        # how to compute, not what: resources never trigger a rerun, and a profile may set them
        device="auto",
        precision="auto",
        micro_batch=0,
        compile="auto",
        checkpoint_seconds=600,
        trackers="none",
    params:
        live=lambda wc: f"{RESULTS}/training/{wc.run}/live",
        keep_going=lambda wc: wc.run in SWEEPS,
        code=lambda wc: model_code("train", wc.run),
    shell:
        # a scheduler sends TERM to all processes of a job: only the trainer handles it, and stops after a checkpoint
        "trap '' TERM USR1; "
        + command("train", "keep_going", "threads", resources=COMPUTE, gpu=True)
