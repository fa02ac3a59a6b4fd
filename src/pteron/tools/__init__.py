"""What a developer does with a program: export, inspect, verify, tune, view."""
