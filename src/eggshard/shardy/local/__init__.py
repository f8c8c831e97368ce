"""From global shapes with shardings to the program of one device."""
