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
        tunings=[f"{RESULTS}/training/tuning/{cell}.json" for cell in CELLS],
    output:
        out=f"{ANALYSIS}/runs.csv",
        sensitivity=f"{ANALYSIS}/sensitivity.csv",
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
        command("table", "tunings")


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
        draws=CONFIG.analysis.draws,
        confidence=CONFIG.analysis.confidence,
        seed=CONFIG.analysis.seed,
        bins_per_octave=CONFIG.evaluation.bins_per_octave,
        code=code("per-token"),
    shell:
        command("per-token")


rule fit:
    """Power laws with intervals, reference curves, multipliers at matched loss, the best loss for a compute."""
    input:
        table=f"{ANALYSIS}/runs.csv",
        sequences=evaluated("evaluation/{run}/sequences.parquet"),
    output:
        fits=f"{ANALYSIS}/fits.json",
        curves=f"{ANALYSIS}/curves.csv",
        multipliers=f"{ANALYSIS}/multipliers.csv",
        frontier=f"{ANALYSIS}/frontier.csv",
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
        draws=CONFIG.analysis.draws,
        confidence=CONFIG.analysis.confidence,
        seed=CONFIG.analysis.seed,
        reference=CONFIG.analysis.reference,
        catalog=content(f"{CATALOG}/paper.yaml"),
        code=code("fit"),
    shell:
        command("fit")


rule counts:
    """Parameters and FLOPs of every model, by formula and measured on the built network (Table 2)."""
    output:
        out=f"{ANALYSIS}/counts.csv",
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
        models=models(),
        code=code(
            "counts",
            *{
                module
                for run in RUNS.values()
                for module in architecture(run.variant).modules
            },
        ),
    shell:
        command("counts")


rule largest:
    """Table 2 and the appendix's costs at the paper's largest model, whatever was trained."""
    output:
        out=f"{ANALYSIS}/table2_largest.csv",
        implementations=f"{ANALYSIS}/implementations.csv",
        manifest=f"{ANALYSIS}/largest.manifest.json",
    log:
        f"{RESULTS}/logs/largest.log",
    benchmark:
        f"{RESULTS}/benchmarks/largest.tsv"
    conda:
        f"{ENVS}/train.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=10,
    params:
        catalog=content(f"{CATALOG}/paper.yaml"),
        code=code(
            "largest",
            *{
                module
                for variant in ("lmu", "lmu_attention")
                for module in architecture(variant).modules
            },
        ),
    shell:
        command("largest")


rule complexity:
    """Time and memory against sequence length, measured (Table 1)."""
    output:
        out=f"{ANALYSIS}/complexity.csv",
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
        gpu=JOB_RESOURCES.gpu,
        device="auto",
    params:
        settings=narrow(CONFIG.analysis.complexity),
        catalog=content(f"{CATALOG}/paper.yaml"),
        code=code("complexity"),
    shell:
        command("complexity", "threads", resources=("device",), gpu=True)


rule claims:
    """A verdict on each of the paper's claims, by a written rule."""
    input:
        table=f"{ANALYSIS}/runs.csv",
        fits=f"{ANALYSIS}/fits.json",
        multipliers=f"{ANALYSIS}/multipliers.csv",
        per_token_fits=f"{ANALYSIS}/per_token_fits.csv",
        sensitivity=f"{ANALYSIS}/sensitivity.csv",
        slopes=f"{ANALYSIS}/complexity_slopes.csv",
        counts=f"{ANALYSIS}/counts.csv",
        table2=f"{ANALYSIS}/table2.csv",
    output:
        out_json=f"{ANALYSIS}/claims.json",
        out_csv=f"{ANALYSIS}/claims.csv",
        out_md=f"{ANALYSIS}/claims.md",
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
        confidence=CONFIG.analysis.confidence,
        catalog=content(f"{CATALOG}/paper.yaml"),
        code=code("claims", *claim_modules()),
    shell:
        command("claims")
