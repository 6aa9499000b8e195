"""Text tables and pictures, made from results."""
