"""What start.py calls. Imports all of the agent at once: afterwards its folder is no longer on sys.path."""

from . import scenario, supervisor


def main(root, arguments):
    """Run the scenario process when told its file descriptors, else the supervisor; returns the exit code."""
    if arguments:
        return scenario.main(root, [int(number) for number in arguments])
    return supervisor.main(root)
