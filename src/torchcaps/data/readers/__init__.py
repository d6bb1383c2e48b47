"""Readers of data files: bytes in, arrays out.

A reader never trusts a header. It compares sizes with the bytes that are present before it
allocates memory, and raises `FileFormatError` with one sentence if they disagree.
"""
