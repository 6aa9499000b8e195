"""Models for other engines: one ONNX file a segment, in standard operators."""
