"""stub"""
def run(workshop, *, sweeps, resampled, note):
    return ""
