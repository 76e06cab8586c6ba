"""Readers: one file a format, each a generator of `relabel.captions.Caption` in file order.

A reader refuses what it cannot read, with file, line and reason, and gives ids their namespace (`coco:770337`).
What holds for every format (ids used once, an image and a text for each caption, known splits) is checked by
`Corpus.from_captions`.
"""
