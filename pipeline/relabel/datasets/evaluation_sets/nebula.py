"""Nebula: mean human scores, 0 to 1, of captions from models.

Matsuda, Wada, Sugiura: "DENEB: A Hallucination-Robust Automatic Evaluation Metric for Image Captioning", ACCV 2024.
"""

from relabel.datasets.evaluation_sets._hub import hub_set

SET = hub_set("nebula", "Nebula", "The 3,298 rows of the test split; arXiv 2512.21582 corrects some scores.")
