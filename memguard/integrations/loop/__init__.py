"""A loop that nobody describes: where its batches begin and end, told from forwards, backwards and steps."""
