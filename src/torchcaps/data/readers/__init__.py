"""Readers of the canonical files: bytes in, arrays out, every length checked before it is used.

A reader never trusts a header: sizes are compared with the bytes that are there before anything is
allocated, and a file that does not fit raises `FileFormatError` with one sentence.
"""
