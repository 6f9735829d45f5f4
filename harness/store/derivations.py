"""The derived tables as SQL over `told`: the events of attempts, each with its cell, attempt and survival.

Statements only; snapshot.py runs them. What a clock measured comes from `measured`, all else from `payload`.
"""

from __future__ import annotations

from typing import Final

from harness.events.schema import CHARGE_KINDS

_CHARGE: Final = """
    (payload->>'$.charge.generated_tokens')::BIGINT AS generated_tokens,
    (payload->>'$.charge.flops')::DOUBLE AS flops,
    (measured->>'$.charge.gpu_hours')::DOUBLE AS gpu_hours, (measured->>'$.charge.cpu_hours')::DOUBLE AS cpu_hours
"""

_MILESTONES: Final = '[{"currency": "VARCHAR", "amount": "DOUBLE", "charge_after": "DOUBLE"}]'

_COUNTS: Final = (
    '"MAP(VARCHAR, STRUCT(samples BIGINT, generated_tokens BIGINT, prefill_tokens BIGINT,'
    ' cached_prefill_tokens BIGINT, flops DOUBLE))"'
)
_SECONDS: Final = '"MAP(VARCHAR, STRUCT(wall_seconds DOUBLE, cpu_seconds DOUBLE))"'

ATTEMPTS: Final = f"""
INSERT INTO snapshot.attempts BY NAME
WITH lives AS (
    SELECT path, max(time) AS last_seen, max(seq) AS last_seq,
        arg_max(payload, seq) FILTER (kind = 'finished') AS ending,
        arg_min(measured->'charge', seq) FILTER (told) AS first_charge,
        arg_max(measured->'charge', seq) FILTER (told) AS last_charge
    FROM (SELECT *, kind IN {CHARGE_KINDS} AND (measured->'charge') IS NOT NULL AS told FROM events) GROUP BY path
), endings AS (
    SELECT
        *, ending->>'status' AS status, ending->>'reason' AS reason,
        (last_charge->>'gpu_hours')::DOUBLE - (first_charge->>'gpu_hours')::DOUBLE AS gpu_hours,
        (last_charge->>'cpu_hours')::DOUBLE - (first_charge->>'cpu_hours')::DOUBLE AS cpu_hours
    FROM lives
)
SELECT
    cell, attempt, payload->>'study' AS study, payload->>'mode' AS mode, payload->>'mode_reason' AS mode_reason,
    payload->>'lock_hash' AS lock_hash, payload->>'code_commit' AS code_commit,
    (payload->>'code_dirty')::BOOLEAN AS code_dirty, payload->>'code_hash' AS code_hash,
    payload->>'device' AS device, (payload->>'threads')::INTEGER AS threads,
    (payload->>'$.resumed_from.attempt')::INTEGER AS resumed_attempt,
    (payload->>'$.resumed_from.seq')::BIGINT AS resumed_seq,
    time AS started, last_seen, last_seq, status, reason, gpu_hours, cpu_hours,
    (measured->>'heartbeat_seconds')::DOUBLE AS heartbeat_seconds
FROM files JOIN endings USING (path) JOIN events USING (path)
WHERE log = 'attempt' AND seq = 0
ORDER BY cell, attempt
"""

ENDINGS: Final = """
WITH told AS (
    SELECT
        cell, attempt, any_value(payload->>'fault') FILTER (kind = 'finished') AS fault,
        coalesce(bool_or((payload->>'earlier_out_of_memory')::BOOLEAN) FILTER (seq = 0), false) AS earlier
    FROM files JOIN events USING (path) WHERE log = 'attempt' GROUP BY cell, attempt
)
SELECT cell, attempt, status, fault, earlier FROM snapshot.attempts JOIN told USING (cell, attempt)
ORDER BY cell, attempt
"""
"""How each attempt ended, what it told of whose fault that was, and whether memory ran out in the one before."""

CRASHES: Final = """
UPDATE snapshot.attempts SET crash = faults.fault FROM faults
WHERE faults.cell = attempts.cell AND faults.attempt = attempts.attempt AND faults.crashed
"""
"""`faults` (cell, attempt, fault, crashed) holds what the fold said."""

QUARANTINE: Final = """
INSERT INTO snapshot.quarantine SELECT path, quarantined FROM files WHERE quarantined IS NOT NULL ORDER BY path
"""

TOLD: Final = """
CREATE OR REPLACE TEMP VIEW told AS
SELECT
    cell, attempt, seq, kind, payload, measured, coalesce(seq <= survives_to, false) AS surviving,
    CASE WHEN NOT coalesce(seq <= survives_to, false) THEN fault END AS lost
FROM events JOIN files USING (path) LEFT JOIN segments USING (cell, attempt) LEFT JOIN faults USING (cell, attempt)
WHERE log = 'attempt'
"""
"""`segments` (cell, attempt, survives_to) holds what the fold said."""

LEDGER: Final = f"""
INSERT INTO snapshot.ledger BY NAME
WITH work AS (
    SELECT
        cell, attempt, seq, surviving, lost, coalesce(payload->>'update', payload->>'updates')::BIGINT AS update,
        json_transform(payload->'rows', '{_COUNTS}') AS counts,
        CASE kind
            WHEN 'ledger' THEN json_transform(measured->'rows', '{_SECONDS}')
            WHEN 'evaluation' THEN if((measured->'wall_seconds') IS NULL, NULL, MAP(['evaluation'], [struct_pack(
                wall_seconds := (measured->>'wall_seconds')::DOUBLE,
                cpu_seconds := (measured->>'cpu_seconds')::DOUBLE)]))
        END AS seconds
    FROM told WHERE kind IN ('ledger', 'evaluation')
), rows AS (
    SELECT *, unnest(list_sort(list_distinct(map_keys(counts) || coalesce(map_keys(seconds), [])))) AS kind FROM work
)
SELECT
    cell, attempt, seq, surviving, lost, update, kind,
    coalesce(counts[kind].samples, 0) AS samples, coalesce(counts[kind].generated_tokens, 0) AS generated_tokens,
    coalesce(counts[kind].prefill_tokens, 0) AS prefill_tokens,
    coalesce(counts[kind].cached_prefill_tokens, 0) AS cached_prefill_tokens,
    coalesce(counts[kind].flops, 0) AS flops,
    seconds[kind].wall_seconds AS wall_seconds, seconds[kind].cpu_seconds AS cpu_seconds
FROM rows
ORDER BY cell, attempt, seq, kind
"""

UPDATES: Final = f"""
INSERT INTO snapshot.updates BY NAME
SELECT
    cell, attempt, seq, surviving, (payload->>'update')::BIGINT AS update, {_CHARGE},
    (payload->>'learning_rate')::DOUBLE AS learning_rate, (payload->>'loss')::DOUBLE AS loss,
    (payload->>'grad_norm')::DOUBLE AS grad_norm, (payload->>'reward_mean')::DOUBLE AS reward_mean,
    (payload->>'clipped_share')::DOUBLE AS clipped_share,
    (payload->>'zero_variance_share')::DOUBLE AS zero_variance_share,
    (payload->>'verifier_errors')::BIGINT AS verifier_errors, (payload->>'entropy')::DOUBLE AS entropy,
    (payload->>'sampler_mismatch')::DOUBLE AS sampler_mismatch,
    (payload->>'trained_tokens')::BIGINT AS trained_tokens, payload->'notes' AS notes,
    (payload->>'diverged')::BOOLEAN AS diverged
FROM told WHERE kind = 'update'
ORDER BY cell, attempt, seq
"""

CHOICES: Final = """
INSERT INTO snapshot.choices BY NAME
WITH made AS (
    SELECT
        cell, attempt, seq, surviving, (payload->>'update')::BIGINT AS update,
        unnest(json_transform(payload->'choices', '[{"problem": "BIGINT", "predicted": "DOUBLE", "realised": "DOUBLE",
            "uniform": "BOOLEAN"}]'), recursive := true)
    FROM told WHERE kind = 'update' AND (payload->'choices') IS NOT NULL
)
SELECT * FROM made
ORDER BY cell, attempt, seq, problem
"""

EVALUATIONS: Final = f"""
INSERT INTO snapshot.evaluations BY NAME
WITH evaluations AS (
    SELECT
        cell, attempt, seq, surviving, (payload->>'updates')::BIGINT AS updates, {_CHARGE},
        (payload->>'accuracy')::DOUBLE AS accuracy, (payload->'outcomes')::UTINYINT[] AS outcomes,
        (payload->>'samples_per_problem')::INTEGER AS samples_per_problem,
        (payload->>'verifier_errors')::BIGINT AS verifier_errors, (payload->>'diverged')::BOOLEAN AS diverged,
        list_concat(
            json_transform(payload->'milestones', '{_MILESTONES}'),
            json_transform(measured->'milestones', '{_MILESTONES}')
        ) AS milestones
    FROM told WHERE kind = 'evaluation'
), due AS (
    SELECT * EXCLUDE (milestones), unnest(milestones, recursive := true) FROM evaluations
)
SELECT * FROM due
ORDER BY cell, attempt, seq, currency, amount
"""

RUNS: Final = f"""
INSERT INTO snapshot.runs BY NAME
WITH cells AS (
    SELECT cell, count(*)::INTEGER AS attempts FROM files
    WHERE log = 'attempt' AND (read_lines > 0 OR quarantined IS NOT NULL) GROUP BY cell
), newest AS (
    SELECT
        cell, arg_max(coalesce(status, 'running'), attempt) AS status,
        arg_max(coalesce(reason, ''), attempt) AS reason
    FROM snapshot.attempts GROUP BY cell
), charges AS (
    SELECT cell, {_CHARGE} FROM told WHERE surviving AND kind IN ('update', 'finished')
    QUALIFY row_number() OVER (PARTITION BY cell ORDER BY attempt DESC, seq DESC) = 1
), histories AS (
    SELECT
        cell, coalesce(max((payload->>'update')::BIGINT) FILTER (kind = 'update'), 0) AS updates,
        coalesce(bool_or((payload->>'diverged')::BOOLEAN), false) AS diverged
    FROM told WHERE surviving AND kind IN ('update', 'evaluation', 'finished') GROUP BY cell
)
SELECT
    cell, CASE WHEN broken.reason IS NULL THEN status ELSE 'failed' END AS status,
    coalesce(broken.reason, newest.reason) AS reason, attempts, coalesce(updates, 0) AS updates,
    coalesce(diverged, false) AS diverged, generated_tokens, flops, gpu_hours, cpu_hours
FROM cells LEFT JOIN newest USING (cell) LEFT JOIN charges USING (cell) LEFT JOIN histories USING (cell)
    LEFT JOIN broken USING (cell)
ORDER BY cell
"""
"""`broken` (cell, reason) holds the runs whose path the fold could not follow."""

SWEEPS: Final = """
SELECT study, payload FROM events JOIN files USING (path) WHERE log = 'study' AND kind = 'sweep_started'
QUALIFY row_number() OVER (PARTITION BY study ORDER BY seq DESC) = 1
ORDER BY study
"""
"""The newest sweep of each study: what its plan says now."""
