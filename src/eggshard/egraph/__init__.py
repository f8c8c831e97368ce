"""The e-graph: encoding, saturation, reading back. No cost in here."""
