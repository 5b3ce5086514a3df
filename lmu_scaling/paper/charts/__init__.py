"""Interactive forms of the main figures, drawn by plotly.js in the report and in the notebook.

A chart shows the same tables as the figure of its name. The figure stays in the page, for paper and for browsers that
run no scripts.
"""
