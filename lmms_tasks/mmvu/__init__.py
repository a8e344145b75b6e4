"""MMVU, validation: multiple choice and open-ended."""
