"""Models that run on this machine: checkpoints of encoders, of learned sparse encoders and of cross-encoders.

`keystone.indexing.vectors.embed.load_model` chooses the encoder of an index: one of `dense`, or one at a URL.
"""
