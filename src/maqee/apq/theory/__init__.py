"""The paper's theorems as measurements."""
