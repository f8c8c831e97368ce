"""Global-to-local conversion: from global shapes with shardings to the program of one device."""
