# training: one job per variant × size × budget × seed; with recipe `tuned`, a learning-rate sweep before it.


rule specify:
    """Write down all that defines one run: spec.json."""
    input:
        tuning=tuning_of,
    output:
        spec=f"{RESULTS}/training/{{run}}/spec.json",
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
        template=lambda wc: canonical_json(
            experiment.spec_of(CONFIG, {**RUNS, **SWEEPS}[wc.run])
        ),
        tuning=lambda wc, input: (
            f"--tuning {shlex.quote(str(input.tuning))}" if input.tuning else ""
        ),
        code=code("specify"),
    shell:
        "python -m lmu_scaling specify"
        " --template {params.template:q}"
        " {params.tuning}"
        " --out {output.spec:q}"
        " --manifest {output.manifest:q} --code {params.code} > {log:q} 2>&1"


rule tune:
    """Choose the learning rate of one variant at one size on validation."""
    input:
        results=sweep_results,
    output:
        choice=f"{RESULTS}/training/tuning/{{variant}}-{{size}}.json",
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
        code=code("tune"),
    shell:
        "python -m lmu_scaling tune"
        " --results {input.results:q}"
        " --variant {wildcards.variant:q} --size {wildcards.size:q}"
        " --out {output.choice:q}"
        " --manifest {output.manifest:q} --code {params.code} > {log:q} 2>&1"


rule train:
    """Train one run, or resume it from its last checkpoint in training/<run>/live/."""
    input:
        spec=f"{RESULTS}/training/{{run}}/spec.json",
        tokens=f"{RESULTS}/tokens/manifest.json",
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
        mem_mb=lambda wc, attempt: attempt * NEEDS.train(wc.run)["mem_mb"],
        runtime=lambda wc: NEEDS.train(wc.run)["runtime"],
        gpu=lambda wc: NEEDS.train(wc.run)["gpu"],
        # how to compute, not what: resources never trigger a rerun, and a profile may set them
        device="auto",
        precision="auto",
        micro_batch=0,
        compile="auto",
        checkpoint_seconds=600,
    params:
        live=lambda wc: f"{RESULTS}/training/{wc.run}/live",
        sweep=lambda wc: "--keep-going" if wc.run in SWEEPS else "",
        code=lambda wc: model_code("train", wc.run),
    shell:
        # a scheduler's TERM goes to all processes of a job: only the trainer heeds it, and stops after a checkpoint
        "trap '' TERM USR1; python -m lmu_scaling.training.launch {resources.gpu} train"
        " --spec {input.spec:q} --tokens {input.tokens:q} --live {params.live:q}"
        " --weights {output.weights:q} --history {output.history:q} --result {output.result:q}"
        " --device {resources.device} --precision {resources.precision} --threads {threads}"
        " --micro-batch {resources.micro_batch} --compile {resources.compile}"
        " --checkpoint-seconds {resources.checkpoint_seconds} {params.sweep}"
        " --manifest {output.manifest:q} --code {params.code} 2>&1 | tee {log:q}"
