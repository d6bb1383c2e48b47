"""Vector strokes of digits, and their drawing."""
