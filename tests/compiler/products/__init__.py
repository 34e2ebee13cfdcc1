"""Tests of products that are not multiplied out."""
