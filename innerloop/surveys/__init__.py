"""Measure the certificates, convergence curves and regret curves of a report.

`survey.py` measures them part by part, so that a caller can show progress, and returns one object
of plain data, `data.ReportData`. The report draws this object and computes nothing. This folder may
import everything up to the ledger, but not the report.
"""
