"""What a run will take before it starts: rows, bytes and seconds of every artefact that is still to be built."""

from relabel.predict.prediction import Prediction, predict

__all__ = ["Prediction", "predict"]
