"""Measures the time and memory of a generation beside other constrained decoders.

`decode` compares whole generations on a model of GPT-2's shape (`gpt2`), and on the built-in model with other systems.
`step` compares the search with the model's forward pass. `batch` compares concurrent requests with sequential ones.
"""
