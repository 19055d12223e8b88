CREATE TABLE about (key TEXT PRIMARY KEY, value ANY NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE transfers (
    id INTEGER PRIMARY KEY CHECK (id > 0),
    principal TEXT NOT NULL,
    sandbox TEXT NOT NULL,
    direction TEXT NOT NULL,
    local_path TEXT NOT NULL,
    remote_path TEXT NOT NULL,
    request TEXT NOT NULL,
    pair_key TEXT NOT NULL,
    status TEXT NOT NULL
        CHECK (status IN ('queued', 'running', 'completed', 'failed', 'cancelled')),
    pid INTEGER,
    pid_start INTEGER,
    boot_id TEXT,
    log_file TEXT NOT NULL,
    progress TEXT,
    result TEXT,
    error TEXT,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    finished INTEGER
) STRICT;
CREATE UNIQUE INDEX transfers_one_per_pair ON transfers (principal, pair_key)
    WHERE status IN ('queued', 'running');
CREATE INDEX transfers_by_end ON transfers (finished) WHERE finished IS NOT NULL;
CREATE INDEX transfers_by_principal ON transfers (principal, created);
