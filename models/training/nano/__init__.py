"""Trains the bundled miniature: data, tokenizer, model, losses, export. No part of the engine uses this code."""
