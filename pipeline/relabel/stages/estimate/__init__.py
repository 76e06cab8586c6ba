"""Rows and bytes of the artefacts that a run will build."""

from relabel.stages.estimate.prediction import Prediction, predict

__all__ = ["Prediction", "predict"]
