"""Tests of the research agent."""
