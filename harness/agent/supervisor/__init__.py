"""The supervisor's process, which talks to the harness and watches the process under test."""
