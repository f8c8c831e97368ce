"""Plans: physical steps in order, their prices, and their explanation."""
