"""Polaris: human scores, 0 to 1, of captions from ten models and from people.

Wada, Kaneda, Saito, Sugiura: "Polos: Multimodal Metric Learning from Human Feedback for Image Captioning", CVPR 2024.
"""

from relabel.datasets.evaluation_sets._hub import hub_set

SET = hub_set("polaris", "Polaris", "Test split; every score counts separately.")
