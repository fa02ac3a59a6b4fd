"""What language models are made of, whatever file they come from."""
