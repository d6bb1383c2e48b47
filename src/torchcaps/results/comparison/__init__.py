"""Comparisons of heads: rows, tables, findings, and the page that shows them."""
