"""The command that runs a study."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.cli.options import Json, Runs, StudyFile, load, plain, print_json, runs_folder
from harness.cli.results import report


def sweep(
    study: StudyFile,
    runs: Runs = None,
    backend: Annotated[
        str, typer.Option(help="Where cells run: local (this machine) or slurm, both through submitit.")
    ] = "local",
    inline: Annotated[bool, typer.Option("--inline", help="One cell after the other, in this process.")] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Cells at once.  [default: cores / threads]", show_default=False)
    ] = None,
    partition: Annotated[str | None, typer.Option(help="Of Slurm.", show_default=False)] = None,
    account: Annotated[str | None, typer.Option(help="Of Slurm.", show_default=False)] = None,
    time_limit: Annotated[
        str | None,
        typer.Option(
            help="Of one Slurm job: minutes, H:MM:SS or D-HH:MM:SS. A longer cell goes on in another.",
            show_default=False,
        ),
    ] = None,
    max_parallel: Annotated[
        int | None, typer.Option(min=1, help="Cells that run at once on Slurm.", show_default=False)
    ] = None,
    sbatch: Annotated[
        list[str] | None,
        typer.Option("--sbatch", help="KEY=VALUE: a further option of sbatch. Repeatable.", show_default=False),
    ] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Launch failed cells again.")] = False,
    stop_on_failure: Annotated[
        bool, typer.Option("--stop-on-failure", help="Launch nothing more once a cell failed.")
    ] = False,
    allow_code_change: Annotated[
        bool,
        typer.Option("--allow-code-change", help="Go on when the code changes during the sweep; it is recorded."),
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return at once; the sweep goes on in the background.")
    ] = False,
    on_finish: Annotated[
        str | None,
        typer.Option(
            help="Command to run when the sweep has ended; ISOBUDGET_STUDY and ISOBUDGET_EXIT_CODE tell it how.",
            show_default=False,
        ),
    ] = None,
    no_report: Annotated[bool, typer.Option("--no-report", help="Run only; print no tables.")] = False,
    as_json: Json = False,
) -> None:
    """Run a study: launch what is not done, gather, and report. Safe to repeat, and to interrupt."""
    from harness.launch.backends import Wanted, make_backend
    from harness.launch.background import command_of, in_the_background, run_hook
    from harness.launch.progress import make_display
    from harness.launch.slurm_options import SlurmOptions, sbatch_options
    from harness.launch.sweep import LaunchFacts, SweepOptions
    from harness.launch.sweep import sweep as run_sweep
    from harness.store.collector import collect as collect_events
    from harness.store.collector import publish
    from harness.study.load import check_task
    from harness.study.lock import code_hash, code_state, mode_of
    from harness.study.plan import make_plan

    loaded = load(study)
    check_task(loaded)
    folder = runs_folder(runs).create()
    slurm = SlurmOptions(partition, account, time_limit, max_parallel, sbatch_options(sbatch or []))
    wanted = Wanted(loaded.study.threads, loaded.study.device, workers, slurm)
    hook = command_of(on_finish) if on_finish is not None else None
    place = make_backend("inline" if inline else backend, folder, wanted)  # refused here, and not in a detached log
    if detach:
        pid, log = in_the_background(folder, loaded.name)
        if as_json:
            print_json({"study": loaded.name, "pid": pid, "log": str(log)})
        else:
            print(f"{loaded.name}: process {pid} sweeps it; isobudget watch {study} shows how far it is; log: {log}")
        return
    # Before anything is launched, so that logs removed since are missed, not mistaken; the sweep tells of the others.
    collect_events(folder, say=lambda message: None)
    mode, state = mode_of(loaded, folder), code_state()
    facts = LaunchFacts(mode.name, mode.reason, mode.lock_hash, state.commit, state.dirty)
    result = run_sweep(
        make_plan(loaded),
        folder,
        place,
        SweepOptions(retry_failed, stop_on_failure, allow_code_change),
        facts=facts,
        code_hash=code_hash,
        display=make_display(silent=as_json),
    )
    if not as_json:
        print(result, flush=True)  # first of all: what follows needs room on the disk, too
    collect_events(folder)
    publish(folder)
    if as_json:
        print_json({"sweep": plain(result), "mode": mode.name, "mode_reason": mode.reason})
    elif result.completed and not result.stopped and not no_report:
        report(folder, loaded.name)
    if hook is not None:
        run_hook(hook, loaded.name, result.exit_code)
    raise typer.Exit(result.exit_code)
