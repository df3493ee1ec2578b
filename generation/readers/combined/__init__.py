"""Readers that combine others: fused evidence, and escalation."""
