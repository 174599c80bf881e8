"""Saliency S(x) of the paper and regions: by an ONNX model, or without any."""
