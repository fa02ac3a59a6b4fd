"""What users hold: programs and methods, and the functions that load and profile them."""
