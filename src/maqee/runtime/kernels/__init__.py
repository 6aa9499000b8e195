"""GPU kernels in Triton: transformer blocks on integer codes.

What travels between kernels are codes of one byte. Norms, softmax and the stream that blocks add to stay float. Modules
of this folder that begin with `import triton` are imported only when the engine is asked for.
"""
