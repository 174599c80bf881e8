"""Saliency S(x) of the paper: by an ONNX model, or without any."""
