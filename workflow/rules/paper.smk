# paper: figures, tables and the report, made from what `analysis` wrote.

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

LOOK = as_json(look_of(CONFIG))


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
        name="{name}",
        results=lambda wc: RESULTS,
        look=LOOK,
        paper=content(f"{CATALOG}/paper.yaml"),
        code=lambda wc: code("figure", f"lmu_scaling.paper.figures.{wc.name}"),
    shell:
        command("figure")


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
        name="{name}",
        results=lambda wc: RESULTS,
        look=LOOK,
        paper=content(f"{CATALOG}/paper.yaml"),
        code=lambda wc: code("paper-table", f"lmu_scaling.paper.tables.{wc.name}"),
    shell:
        command("paper-table")


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
        figures=lambda wc: "paper_figures",
        source=content(f"{workflow.basedir}/workflow/notebooks/replication.ipynb"),
        style=content(f"{workflow.basedir}/lmu_scaling/paper/report.css"),
        charts=content(f"{workflow.basedir}/lmu_scaling/paper/charts/charts.js"),
        plotly=content(
            f"{workflow.basedir}/lmu_scaling/paper/charts/vendor/plotly-basic.min.js"
        ),
        paper=content(f"{CATALOG}/paper.yaml"),
        code=code("report"),
    shell:
        command("report")
