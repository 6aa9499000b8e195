"""The figures of a report, one module each: from the content of a run to a section of its page."""
