"""Language models from folders as Hugging Face publishes them: config.json, safetensors, tokenizer.json."""
