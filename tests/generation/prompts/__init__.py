"""Tests of `keystone.generation.prompts`."""
