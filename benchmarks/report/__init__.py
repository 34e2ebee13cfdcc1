"""The report: RESULTS.md and the README's table, written from the stored figures. It measures nothing.

`results_page` joins the sections, each of which is a function from the contents of a results file to Markdown. `layout`
has the tables, numbers and figures that the sections share. `readme` writes the README's summary, and `ablation` the
tables of docs/experiments.md.
"""

from benchmarks.report.results_page import write_report, write_run

__all__ = ["write_report", "write_run"]
