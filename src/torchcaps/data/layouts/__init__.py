"""Files that several data sets share a layout of."""
