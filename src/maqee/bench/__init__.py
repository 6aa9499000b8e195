"""What takes how long, measured side by side on the machine at hand."""
