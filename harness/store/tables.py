"""The tables of the store and of the published snapshot: what `analysis` may rely on.

The first group is events, row by row, and stays in the store. The second is derived from it at each
publication and is the whole snapshot, so that reading needs no fold. `surviving` marks rows on the path that
led to the analysed weights; the others are lost work: of the run's own fault (`lost` = 'self', *algorithmic* all the
same) or of the infrastructure's (retraced: in *spent* only).
"""

from __future__ import annotations

from typing import Final

EVENTS: Final = """
CREATE TABLE built_by (layout TEXT NOT NULL);   -- of which tables: another layout is rebuilt
CREATE TABLE files (
    path TEXT PRIMARY KEY,          -- relative to the runs folder
    log TEXT NOT NULL,              -- 'attempt' or 'study'
    cell TEXT, attempt INTEGER,     -- of an attempt's log
    study TEXT,                     -- of a study's log
    read_bytes BIGINT NOT NULL,     -- ingested so far, whole lines only
    read_lines BIGINT NOT NULL,
    prefix_sum TEXT NOT NULL,       -- of the first read_bytes: a changed prefix quarantines the file
    size_bytes BIGINT NOT NULL, modified_ns BIGINT NOT NULL,   -- when it was read: where both stand, so does the log
    quarantined TEXT                -- reason, or NULL
);
CREATE TABLE events (
    path TEXT NOT NULL, seq BIGINT NOT NULL, kind TEXT NOT NULL,
    time DOUBLE NOT NULL,           -- Unix seconds
    payload JSON NOT NULL, measured JSON NOT NULL,
    PRIMARY KEY (path, seq)
);
"""

DERIVED: Final = """
CREATE TABLE studies (
    study TEXT PRIMARY KEY, title TEXT, question TEXT, baseline TEXT, alpha DOUBLE, correction TEXT,
    mode TEXT,                      -- confirmatory | exploratory | reproduction | replication
    mode_reason TEXT, lock_hash TEXT, code_commit TEXT, code_dirty BOOLEAN,
    charged TEXT[], plan JSON       -- the whole plan record of the newest sweep (events/schema.py)
);
CREATE TABLE budgets (study TEXT, currency TEXT, amount DOUBLE);
CREATE TABLE milestones (
    study TEXT, currency TEXT, amount DOUBLE, fraction DOUBLE,   -- fraction NULL on a grid
    budgeted BOOLEAN                -- whether the study declares a budget in this currency
);
CREATE TABLE arms (study TEXT, arm TEXT, position INTEGER, intervention TEXT, parameters JSON, training JSON);
CREATE TABLE claims (study TEXT, claim TEXT, position INTEGER, statement TEXT, text TEXT, form JSON);
CREATE TABLE planned_cells (
    study TEXT, cell TEXT, model TEXT, arm TEXT, seed BIGINT, block INTEGER, position INTEGER
);
CREATE TABLE attempts (
    cell TEXT, attempt INTEGER, study TEXT, mode TEXT, mode_reason TEXT, lock_hash TEXT, code_commit TEXT,
    code_dirty BOOLEAN, code_hash TEXT, device TEXT, threads INTEGER, resumed_attempt INTEGER, resumed_seq BIGINT,
    started DOUBLE, last_seen DOUBLE, last_seq BIGINT, status TEXT, reason TEXT,  -- status NULL: no `finished` line
    gpu_hours DOUBLE, cpu_hours DOUBLE,   -- of training phases within this attempt, up to its last line that tells
    heartbeat_seconds DOUBLE,       -- a killed attempt may have lived so much longer than it was last seen
    crash TEXT                      -- whose fault its end was: 'self' | 'infrastructure'; NULL where it ended well,
                                    -- was asked to stop, or is the newest and has not ended
);
CREATE TABLE runs (
    cell TEXT PRIMARY KEY,
    status TEXT,                    -- completed | failed | interrupted | running (no finished line);
                                    -- failed, too, where a quarantined log breaks the surviving path
    reason TEXT, attempts INTEGER, updates BIGINT, diverged BOOLEAN,
    generated_tokens BIGINT, flops DOUBLE, gpu_hours DOUBLE, cpu_hours DOUBLE    -- algorithmic, charged kinds
);
CREATE TABLE ledger (
    cell TEXT, attempt INTEGER, seq BIGINT, surviving BOOLEAN, lost TEXT,   -- 'self' | 'infrastructure' | NULL
    update BIGINT, kind TEXT,
    samples BIGINT, generated_tokens BIGINT, prefill_tokens BIGINT, cached_prefill_tokens BIGINT,
    flops DOUBLE, wall_seconds DOUBLE, cpu_seconds DOUBLE
);                                  -- evaluation's own rows (kind 'evaluation') included
CREATE TABLE updates (
    cell TEXT, attempt INTEGER, seq BIGINT, surviving BOOLEAN, update BIGINT,
    generated_tokens BIGINT, flops DOUBLE, gpu_hours DOUBLE, cpu_hours DOUBLE,   -- cumulative, charged kinds
    learning_rate DOUBLE, loss DOUBLE, grad_norm DOUBLE, reward_mean DOUBLE, clipped_share DOUBLE,
    zero_variance_share DOUBLE, verifier_errors BIGINT,
    entropy DOUBLE, sampler_mismatch DOUBLE,    -- in nats; NULL where the run did not tell
    trained_tokens BIGINT, notes JSON, diverged BOOLEAN
);
CREATE TABLE choices (              -- prompts that arms chose, one row per prompt kept in an update
    cell TEXT, attempt INTEGER, seq BIGINT, surviving BOOLEAN, update BIGINT,
    problem BIGINT,                 -- index in the training pool
    predicted DOUBLE, realised DOUBLE,   -- success; realised NULL where no group of it was trained on
    uniform BOOLEAN                 -- drawn uniformly, whatever was predicted
);
CREATE TABLE evaluations (          -- one row per (evaluation, milestone)
    cell TEXT, attempt INTEGER, seq BIGINT, surviving BOOLEAN,
    currency TEXT, amount DOUBLE,   -- the milestone
    charge_after DOUBLE,            -- the meter at the barrier: charge_after - amount is the overshoot
    updates BIGINT,                 -- of the policy evaluated
    generated_tokens BIGINT, flops DOUBLE, gpu_hours DOUBLE, cpu_hours DOUBLE,   -- charge of that policy
    accuracy DOUBLE, outcomes UTINYINT[], samples_per_problem INTEGER, verifier_errors BIGINT, diverged BOOLEAN
);
CREATE TABLE quarantine (path TEXT, reason TEXT);
"""
