# paper: every figure, every table and the report. They show what `analysis` wrote and compute nothing.

FORMATS = ("pdf", "svg", "png")
FIGURES = [
    f"paper_figures/{name}.{suffix}"
    for name in CONFIG.paper.figures
    for suffix in FORMATS
]
TABLES = [
    f"paper_figures/tables/{name}.{suffix}"
    for name in CONFIG.paper.tables
    for suffix in ("tex", "csv", "md")
]

LOOK = as_json(
    {
        "experiment": CONFIG.experiment,
        "corpus": CONFIG.corpus.source,
        "tokens": CONFIG.training.steps * CONFIG.training.batch * CONFIG.models.context,
        "context": CONFIG.models.context,
        "vocab": CONFIG.tokens.vocab,
        "looks": {name: look.model_dump() for name, look in CONFIG.paper.looks.items()},
    }
)


rule figure:
    """Draw one figure as PDF, SVG and PNG, with a caption computed from the data."""
    input:
        shown("figure"),
    output:
        pdf="paper_figures/{name}.pdf",
        svg=report(
            "paper_figures/{name}.svg",
            caption="../report/figure.rst",
            category="Figures",
            labels={"figure": "{name}"},
        ),
        png="paper_figures/{name}.png",
        caption="paper_figures/{name}.caption.rst",
        manifest="paper_figures/{name}.manifest.json",
    log:
        f"{RESULTS}/logs/figure/{{name}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/figure/{{name}}.tsv"
    conda:
        f"{ENVS}/analysis.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=5,
    params:
        results=lambda wc: RESULTS,
        look=LOOK,
        code=lambda wc: code("figure", f"lmu_scaling.paper.figures.{wc.name}"),
    shell:
        "python -m lmu_scaling figure"
        " --name {wildcards.name:q} --results {params.results:q} --look {params.look:q}"
        " --pdf {output.pdf:q} --svg {output.svg:q} --png {output.png:q} --caption {output.caption:q}"
        " --read {input:q}"
        " --manifest {output.manifest:q} --code {params.code} 2>&1 | tee {log:q}"


rule paper_table:
    """Write one table as LaTeX, CSV and Markdown."""
    input:
        shown("table"),
    output:
        tex="paper_figures/tables/{name}.tex",
        csv=report(
            "paper_figures/tables/{name}.csv",
            caption="../report/table.rst",
            category="Tables",
            labels={"table": "{name}"},
        ),
        md="paper_figures/tables/{name}.md",
        manifest="paper_figures/tables/{name}.manifest.json",
    log:
        f"{RESULTS}/logs/paper_table/{{name}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/paper_table/{{name}}.tsv"
    conda:
        f"{ENVS}/analysis.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=5,
    params:
        results=lambda wc: RESULTS,
        look=LOOK,
        code=lambda wc: code("paper-table", f"lmu_scaling.paper.tables.{wc.name}"),
    shell:
        "python -m lmu_scaling paper-table"
        " --name {wildcards.name:q} --results {params.results:q} --look {params.look:q}"
        " --tex {output.tex:q} --csv {output.csv:q} --md {output.md:q} --read {input:q}"
        " --manifest {output.manifest:q} --code {params.code} 2>&1 | tee {log:q}"


rule report:
    """Execute the notebook into one self-contained page."""
    input:
        FIGURES,
        TABLES,
        claims=f"{RESULTS}/analysis/claims.json",
        config=f"{RESULTS}/config.json",
    output:
        page=report(
            f"{RESULTS}/report.html", caption="../report/report.rst", category="Report"
        ),
        manifest=f"{RESULTS}/report.manifest.json",
    log:
        f"{RESULTS}/logs/report.log",
    benchmark:
        f"{RESULTS}/benchmarks/report.tsv"
    conda:
        f"{ENVS}/analysis.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=10,
    params:
        results=lambda wc: RESULTS,
        notebook=content(f"{workflow.basedir}/workflow/notebooks/replication.ipynb"),
        style=content(f"{workflow.basedir}/lmu_scaling/paper/report.css"),
        code=code("report"),
    shell:
        "python -m lmu_scaling report"
        " --results {params.results:q} --figures paper_figures"
        " --out {output.page:q} --read {input:q}"
        " --manifest {output.manifest:q} --code {params.code} 2>&1 | tee {log:q}"
