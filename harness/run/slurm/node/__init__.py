"""Works on the node that is held: describes it, runs steps on it, and removes what dead runs left there."""
