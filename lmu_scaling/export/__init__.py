"""export: trained models and token shards in the formats of Hugging Face."""
