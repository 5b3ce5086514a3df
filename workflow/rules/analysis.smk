# analysis: one tidy table, then laws, multipliers, complexity and a verdict on every claim.

ANALYSIS = f"{RESULTS}/analysis"


rule table:
    """The tidy table: one row per run, the only input of all fits and figures."""
    input:
        evaluated(
            "training/{run}/spec.json",
            "training/{run}/result.json",
            "training/{run}/history.parquet",
        ),
        evaluated("evaluation/{run}/summary.json"),
    output:
        table=f"{ANALYSIS}/runs.csv",
        history=f"{ANALYSIS}/history.parquet",
        manifest=f"{ANALYSIS}/runs.manifest.json",
    log:
        f"{RESULTS}/logs/table.log",
    benchmark:
        f"{RESULTS}/benchmarks/table.tsv"
    conda:
        f"{ENVS}/analysis.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=10,
    params:
        results=lambda wc: RESULTS,
        runs=list(RUNS),
        code=code("table"),
    shell:
        "python -m lmu_scaling table"
        " --results {params.results:q} --runs {params.runs:q}"
        " --out {output.table:q} --history {output.history:q} --read {input:q}"
        " --manifest {output.manifest:q} --code {params.code} 2>&1 | tee {log:q}"


rule per_token:
    """Per-token loss by position, binned, with fits and plateau statistics."""
    input:
        evaluated(
            "evaluation/{run}/per_token.parquet",
            "evaluation/{run}/sequences.parquet",
        ),
    output:
        curves=f"{ANALYSIS}/per_token.parquet",
        fits=f"{ANALYSIS}/per_token_fits.csv",
        manifest=f"{ANALYSIS}/per_token.manifest.json",
    log:
        f"{RESULTS}/logs/per_token.log",
    benchmark:
        f"{RESULTS}/benchmarks/per_token.tsv"
    conda:
        f"{ENVS}/analysis.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=30,
    params:
        results=lambda wc: RESULTS,
        runs=list(RUNS),
        settings=as_json(
            {
                **CONFIG.analysis.model_dump(include={"draws", "confidence", "seed"}),
                **CONFIG.evaluation.model_dump(include={"bins_per_octave"}),
            }
        ),
        code=code("per-token"),
    shell:
        "python -m lmu_scaling per-token"
        " --results {params.results:q} --runs {params.runs:q} --settings {params.settings:q}"
        " --curves {output.curves:q} --fits {output.fits:q} --read {input:q}"
        " --manifest {output.manifest:q} --code {params.code} 2>&1 | tee {log:q}"


rule fit:
    """Power laws with intervals, reference curves, and multipliers at matched loss."""
    input:
        table=f"{ANALYSIS}/runs.csv",
        sequences=evaluated("evaluation/{run}/sequences.parquet"),
    output:
        fits=f"{ANALYSIS}/fits.json",
        curves=f"{ANALYSIS}/curves.csv",
        multipliers=f"{ANALYSIS}/multipliers.csv",
        manifest=f"{ANALYSIS}/fits.manifest.json",
    log:
        f"{RESULTS}/logs/fit.log",
    benchmark:
        f"{RESULTS}/benchmarks/fit.tsv"
    conda:
        f"{ENVS}/analysis.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=30,
    params:
        results=lambda wc: RESULTS,
        settings=narrow(CONFIG.analysis, "draws", "confidence", "seed", "reference"),
        paper=content(f"{CATALOG}/paper.yaml"),
        code=code("fit"),
    shell:
        "python -m lmu_scaling fit"
        " --table {input.table:q} --results {params.results:q}"
        " --settings {params.settings:q}"
        " --fits {output.fits:q} --curves {output.curves:q} --multipliers {output.multipliers:q}"
        " --read {input.sequences:q}"
        " --manifest {output.manifest:q} --code {params.code} 2>&1 | tee {log:q}"


rule counts:
    """Parameters and FLOPs of every model, by formula and measured on the built network (Table 2)."""
    output:
        counts=f"{ANALYSIS}/counts.csv",
        table2=f"{ANALYSIS}/table2.csv",
        manifest=f"{ANALYSIS}/counts.manifest.json",
    log:
        f"{RESULTS}/logs/counts.log",
    benchmark:
        f"{RESULTS}/benchmarks/counts.tsv"
    conda:
        f"{ENVS}/train.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=10,
    params:
        specs=models(),
        code=code(
            "counts",
            *{
                kind.builder.partition(":")[0]
                for run in RUNS.values()
                for kind in architecture(run.variant).kinds
            },
        ),
    shell:
        "python -m lmu_scaling counts"
        " --specs {params.specs:q}"
        " --out {output.counts:q} --table2 {output.table2:q}"
        " --manifest {output.manifest:q} --code {params.code} 2>&1 | tee {log:q}"


rule complexity:
    """Time and memory against sequence length, measured (Table 1)."""
    output:
        points=f"{ANALYSIS}/complexity.csv",
        slopes=f"{ANALYSIS}/complexity_slopes.csv",
        manifest=f"{ANALYSIS}/complexity.manifest.json",
    log:
        f"{RESULTS}/logs/complexity.log",
    benchmark:
        f"{RESULTS}/benchmarks/complexity.tsv"
    conda:
        f"{ENVS}/train.yaml"
    threads: 1
    resources:
        mem_mb=8000,
        runtime=30,
        gpu=NEEDS.gpu,
        device="auto",
    params:
        settings=narrow(CONFIG.analysis.complexity),
        code=code("complexity"),
    shell:
        "python -m lmu_scaling.training.launch {resources.gpu} complexity"
        " --settings {params.settings:q}"
        " --out {output.points:q} --slopes {output.slopes:q}"
        " --device {resources.device} --threads {threads}"
        " --manifest {output.manifest:q} --code {params.code} 2>&1 | tee {log:q}"


rule claims:
    """A verdict on each of the paper's claims, by a written rule."""
    input:
        table=f"{ANALYSIS}/runs.csv",
        fits=f"{ANALYSIS}/fits.json",
        multipliers=f"{ANALYSIS}/multipliers.csv",
        per_token_fits=f"{ANALYSIS}/per_token_fits.csv",
        slopes=f"{ANALYSIS}/complexity_slopes.csv",
        counts=f"{ANALYSIS}/counts.csv",
        table2=f"{ANALYSIS}/table2.csv",
    output:
        json=f"{ANALYSIS}/claims.json",
        csv=f"{ANALYSIS}/claims.csv",
        md=f"{ANALYSIS}/claims.md",
        manifest=f"{ANALYSIS}/claims.manifest.json",
    log:
        f"{RESULTS}/logs/claims.log",
    benchmark:
        f"{RESULTS}/benchmarks/claims.tsv"
    conda:
        f"{ENVS}/analysis.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        settings=narrow(CONFIG.analysis, "confidence", "reference"),
        paper=content(f"{CATALOG}/paper.yaml"),
        code=code("claims"),
    shell:
        "python -m lmu_scaling claims"
        " --table {input.table:q} --fits {input.fits:q} --multipliers {input.multipliers:q}"
        " --per-token-fits {input.per_token_fits:q} --slopes {input.slopes:q}"
        " --counts {input.counts:q} --table2 {input.table2:q}"
        " --settings {params.settings:q}"
        " --out-json {output.json:q} --out-csv {output.csv:q} --out-md {output.md:q}"
        " --manifest {output.manifest:q} --code {params.code} 2>&1 | tee {log:q}"
