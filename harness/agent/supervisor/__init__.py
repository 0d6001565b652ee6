"""The supervisor's process: it talks to the harness and watches the process under test, which may die."""
