"""Stage `tokens`: GPT-2's byte-pair encoding, flat uint16 shards, and batches out of them (section 4, "Dataset")."""
