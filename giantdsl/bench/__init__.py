"""Measuring: collectives of several backends side by side, in one run, on the same ranks.

The ranks are processes that live for all cells of a run: importing torch costs seconds. Here they are
started and asked (`session`, `local`, `runner`), measure (`rank`, `operations`), and what they answer becomes
rows and tables (`rows`, `table`). `cells` and `limits` are plain numbers.
"""
