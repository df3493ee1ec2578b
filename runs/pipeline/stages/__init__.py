"""The stages of a run, each with its files, key, work, cost and words. `keystone.runs.pipeline.table` lists them."""
