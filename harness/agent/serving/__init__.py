"""The client of a `serve` scenario: a process that sends requests to the server under test and times them."""
