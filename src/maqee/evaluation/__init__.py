"""Measuring models: exits, policies, throughput."""
