"""The work of decoders.py and serve/decoder_peer.py."""

PROMPT, NEW = 16, 64  # prompt and generated tokens of a stream
SHORTEST, LONGEST = 16, 144  # tokens of the scored prompts
TEXT = 512  # tokens of a long scored prompt
BATCH, MOST_PADDING = 8, 0.25  # prompts in a library's batch, and its largest share of padding
FIXED = [7, 2003, 30521, 11, 999, 5000, 102, 17000]
