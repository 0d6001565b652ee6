"""Defines the tables of the index. Times are UTC in ISO 8601; a number that is not finite is stored as NULL.

SCHEMA is the number of the format. An index in an older format is rebuilt from the runs.
"""

from __future__ import annotations

SCHEMA = 1

TABLES = (
    """CREATE TABLE runs (
        id INTEGER PRIMARY KEY,
        path TEXT NOT NULL UNIQUE,
        matrix TEXT NOT NULL,
        kind TEXT NOT NULL,
        started TEXT NOT NULL,
        duration_s REAL,
        verdict TEXT,
        cells INTEGER NOT NULL,
        bad INTEGER NOT NULL,
        findings INTEGER NOT NULL,
        warnings TEXT NOT NULL,
        problem TEXT NOT NULL,
        stamp TEXT NOT NULL
    )""",
    """CREATE TABLE histories (
        id INTEGER PRIMARY KEY,
        matrix TEXT NOT NULL,
        series TEXT NOT NULL,
        host TEXT NOT NULL,
        gpu TEXT,
        scenario TEXT NOT NULL,
        params TEXT NOT NULL,
        lane TEXT NOT NULL,
        variant TEXT NOT NULL,
        stale INTEGER NOT NULL DEFAULT 1,
        UNIQUE (matrix, series, lane, scenario, params)
    )""",
    """CREATE TABLE images (
        run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
        series TEXT NOT NULL,
        position INTEGER NOT NULL,
        version TEXT NOT NULL,
        is_baseline INTEGER NOT NULL,
        PRIMARY KEY (run, series, position)
    ) WITHOUT ROWID""",
    """CREATE TABLE cells (
        id INTEGER PRIMARY KEY,
        run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
        history INTEGER NOT NULL REFERENCES histories,
        version TEXT NOT NULL,
        digest TEXT,
        verdict TEXT NOT NULL,
        state TEXT NOT NULL,
        why TEXT NOT NULL,
        trials INTEGER NOT NULL,
        failed INTEGER NOT NULL,
        first_launch TEXT,
        taken_over INTEGER NOT NULL,
        provisional INTEGER NOT NULL,
        layer TEXT
    )""",
    "CREATE INDEX cells_by_history ON cells (history, version)",
    "CREATE INDEX cells_by_run ON cells (run)",
    """CREATE TABLE figures (
        cell INTEGER NOT NULL REFERENCES cells ON DELETE CASCADE,
        signal TEXT NOT NULL,
        seen TEXT NOT NULL,
        value REAL,
        low REAL,
        high REAL,
        "limit" REAL,
        visible REAL,
        PRIMARY KEY (cell, signal)
    ) WITHOUT ROWID""",
    """CREATE TABLE findings (
        run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
        number INTEGER NOT NULL,
        history INTEGER NOT NULL REFERENCES histories,
        signal TEXT NOT NULL,
        kind TEXT NOT NULL,
        before TEXT,
        after TEXT NOT NULL,
        verdict TEXT NOT NULL,
        effect REAL,
        unit TEXT,
        low REAL,
        high REAL,
        p REAL,
        confirmed INTEGER NOT NULL,
        consequence_of TEXT NOT NULL,
        PRIMARY KEY (run, number)
    ) WITHOUT ROWID""",
    "CREATE INDEX findings_by_history ON findings (history)",
    """CREATE TABLE causes (
        run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
        number INTEGER NOT NULL,
        findings TEXT NOT NULL,
        sentence TEXT NOT NULL,
        PRIMARY KEY (run, number)
    ) WITHOUT ROWID""",
    """CREATE TABLE lives (
        history INTEGER NOT NULL REFERENCES histories,
        signal TEXT NOT NULL,
        status TEXT NOT NULL,
        begin_run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
        begin_number INTEGER NOT NULL,
        end_run INTEGER REFERENCES runs ON DELETE CASCADE,
        end_number INTEGER,
        found_run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
        seen_run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
        closed_run INTEGER REFERENCES runs ON DELETE CASCADE
    )""",
    "CREATE INDEX lives_by_history ON lives (history)",
    """CREATE TABLE drifts (
        history INTEGER NOT NULL REFERENCES histories,
        signal TEXT NOT NULL,
        first TEXT NOT NULL,
        last TEXT NOT NULL,
        effect REAL NOT NULL,
        low REAL,
        high REAL,
        p REAL NOT NULL,
        versions INTEGER NOT NULL,
        runs INTEGER NOT NULL,
        PRIMARY KEY (history, signal)
    ) WITHOUT ROWID""",
)
