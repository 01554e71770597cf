"""What a real model's key–query channels hold: `headcount audit` (Sections 2.1 and 10)."""
