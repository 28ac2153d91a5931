"""What lies beneath the arrays: threads of the numerical libraries."""
