# evaluation: cross-entropy and per-token loss of each run, on validation and test.


rule evaluate:
    """Cross-entropy in nats and bits per byte, per sequence and per token position."""
    input:
        spec=f"{RESULTS}/training/{{run}}/spec.json",
        weights=f"{RESULTS}/training/{{run}}/weights.safetensors",
        tokens=f"{RESULTS}/tokens/index.json",
    output:
        # update(): as in `train`
        summary=update(f"{RESULTS}/evaluation/{{run}}/summary.json"),
        per_token=update(f"{RESULTS}/evaluation/{{run}}/per_token.parquet"),
        sequences=update(f"{RESULTS}/evaluation/{{run}}/sequences.parquet"),
        manifest=update(f"{RESULTS}/evaluation/{{run}}/evaluate.manifest.json"),
    log:
        f"{RESULTS}/logs/evaluate/{{run}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/evaluate/{{run}}.tsv"
    conda:
        f"{ENVS}/train.yaml"
    threads: 1
    resources:
        mem_mb=lambda wc, attempt: attempt * (4000 if JOB_RESOURCES.gpu else 2000),
        runtime=lambda wc: JOB_RESOURCES.evaluate_minutes(wc.run),
        gpu=JOB_RESOURCES.gpu,
        device="auto",
    params:
        max_sequences=CONFIG.evaluation.max_sequences,
        code=lambda wc: model_code("evaluate", wc.run),
    shell:
        command("evaluate", "threads", resources=("device",), gpu=True)
