# evaluation: cross-entropy and per-token loss of each run, on validation and test.


rule evaluate:
    """Cross-entropy in nats and bits per byte, per sequence and per token position."""
    input:
        spec=f"{RESULTS}/training/{{run}}/spec.json",
        weights=f"{RESULTS}/training/{{run}}/weights.safetensors",
        tokens=f"{RESULTS}/tokens/manifest.json",
    output:
        summary=f"{RESULTS}/evaluation/{{run}}/summary.json",
        per_token=f"{RESULTS}/evaluation/{{run}}/per_token.parquet",
        sequences=f"{RESULTS}/evaluation/{{run}}/sequences.parquet",
        manifest=f"{RESULTS}/evaluation/{{run}}/evaluate.manifest.json",
    log:
        f"{RESULTS}/logs/evaluate/{{run}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/evaluate/{{run}}.tsv"
    conda:
        f"{ENVS}/train.yaml"
    threads: 1
    resources:
        mem_mb=lambda wc, attempt: attempt * (4000 if NEEDS.gpu else 2000),
        runtime=lambda wc: NEEDS.evaluate_minutes(wc.run),
        gpu=NEEDS.gpu,
        device="auto",
    params:
        settings=narrow(CONFIG.evaluation),
        code=lambda wc: model_code("evaluate", wc.run),
    shell:
        "python -m lmu_scaling.training.launch {resources.gpu} evaluate"
        " --spec {input.spec:q} --weights {input.weights:q} --tokens {input.tokens:q}"
        " --settings {params.settings:q}"
        " --summary {output.summary:q} --per-token {output.per_token:q} --sequences {output.sequences:q}"
        " --device {resources.device} --threads {threads}"
        " --manifest {output.manifest:q} --code {params.code} 2>&1 | tee {log:q}"
