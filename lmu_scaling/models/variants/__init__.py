"""One module per model variant, called like the variant; it registers an `Architecture` when it is read."""
