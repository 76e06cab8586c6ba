"""How good labels are: against human scores and as rankers."""
