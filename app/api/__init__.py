"""HTTP: what a request must look like, and what an answer and an error look like."""
