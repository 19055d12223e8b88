CREATE TABLE jobs (
    id TEXT PRIMARY KEY,
    principal TEXT NOT NULL,
    sandbox TEXT NOT NULL,
    session TEXT NOT NULL,
    log_file TEXT NOT NULL,
    cwd TEXT,
    command TEXT NOT NULL,
    spec TEXT NOT NULL,
    metadata TEXT,
    run_id TEXT,
    name TEXT,
    gpus TEXT,
    watch_id INTEGER UNIQUE CHECK (watch_id > 0),
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL
) STRICT;
CREATE INDEX jobs_by_principal ON jobs (principal, created);
CREATE INDEX jobs_by_session ON jobs (principal, sandbox, session, created);
CREATE TABLE attempts (
    job TEXT NOT NULL,
    number INTEGER NOT NULL CHECK (number > 0),
    nonce TEXT NOT NULL UNIQUE,
    command TEXT NOT NULL,
    state TEXT NOT NULL,
    process TEXT,
    log_offset INTEGER,
    is_stop_asked INTEGER NOT NULL DEFAULT 0,
    starter_pid INTEGER,
    starter_start INTEGER,
    starter_boot TEXT,
    created INTEGER NOT NULL,
    started INTEGER,
    ended INTEGER,
    PRIMARY KEY (job, number)
) STRICT;
CREATE UNIQUE INDEX attempts_one_open ON attempts (job) WHERE ended IS NULL;
CREATE INDEX attempts_by_end ON attempts (ended) WHERE ended IS NOT NULL;
