"""Read a CSV file of 3,000 rows whose last column is empty."""

ROWS = 3000


def setup():
    import io

    import pandas

    rows = ("%d,%.1f,name %d,\n" % (i, i / 3, i) for i in range(ROWS))
    text = "number,ratio,name,remark\n" + "".join(rows)

    def step():
        pandas.read_csv(io.StringIO(text), engine="c")

    return step
