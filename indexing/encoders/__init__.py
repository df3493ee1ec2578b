"""Models that run on this machine: checkpoints of encoders, of learned sparse encoders and of cross-encoders."""
