"""Measurements of a report beyond the claims: certificates, convergence and regret curves.

`survey.py` measures them part by part, so that a caller can show progress, and gives one plain
object, `data.ReportData`. May import everything up to the ledger; never the report, which draws
that object and computes nothing.
"""
