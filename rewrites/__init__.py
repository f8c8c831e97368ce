"""What is equal: rewrite rules, one file per topic."""
