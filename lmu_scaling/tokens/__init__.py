"""Stage `tokens`: text becomes token ids (GPT-2's BPE), documents are selected, shards written and read (section 5)."""
