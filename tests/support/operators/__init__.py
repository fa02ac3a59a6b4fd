"""What every operator takes, gives and runs, by its own rule."""
