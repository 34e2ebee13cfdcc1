"""How jobs reach workers and answers come back."""
