# training: one job per variant × size × budget × seed; with recipe `tuned`, a sweep before it.

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
        earlier=earlier_results,
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
        fixed=lambda wc: list(origin_of(wc).fixed),
        learning_rate_step=search_step("learning_rate"),
        embedding_scale_step=search_step("embedding_scale"),
        code=code("specify"),
    shell:
        command(
            "specify",
            "tuning",
            "fixed",
            "earlier",
            "learning_rate_step",
            "embedding_scale_step",
            tee=False,
        )


rule tune:
    """Choose learning rate and embedding scale of one variant, size and budget on validation."""
    input:
        results=sweep_results,
    output:
        out=f"{RESULTS}/training/tuning/{{cell}}.json",
        manifest=f"{RESULTS}/training/tuning/{{cell}}.manifest.json",
    log:
        f"{RESULTS}/logs/tune/{{cell}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/tune/{{cell}}.tsv"
    conda:
        f"{ENVS}/snakemake.yaml"
    threads: 1
    resources:
        mem_mb=500,
        runtime=5,
    params:
        cell="{cell}",
        multiple=CONFIG.training.tuning.multiple,
        learning_rate_step=search_step("learning_rate"),
        embedding_scale_step=search_step("embedding_scale"),
        code=code("tune"),
    shell:
        command("tune", tee=False)


rule train:
    """Train one run, or resume it from its last checkpoint in training/<run>/live/."""
    input:
        spec=f"{RESULTS}/training/{{run}}/spec.json",
        tokens=f"{RESULTS}/tokens/index.json",
    output:
        # update(): Snakemake leaves the files of an earlier training, and the job looks whether they still hold
        weights=update(f"{RESULTS}/training/{{run}}/weights.safetensors"),
        history=update(f"{RESULTS}/training/{{run}}/history.parquet"),
        result=update(f"{RESULTS}/training/{{run}}/result.json"),
        manifest=update(f"{RESULTS}/training/{{run}}/train.manifest.json"),
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
        slurm_extra=lambda wc: JOB_RESOURCES.warning(wc.run),
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
