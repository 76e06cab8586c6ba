"""Composite: human scores of relevance, 1 to 5, for captions of Flickr8k, Flickr30K and COCO by people and two models.

Aditya, Yang, Baral, Fermuller, Aloimonos: "From Images to Sentences through Scene Description Graphs using Commonsense
Reasoning and Knowledge", arXiv 1511.03292.
"""

from relabel.datasets.evaluation_sets._hub import hub_set

SET = hub_set("composite", "Composite", "All rows of the hub's test split.")
