"""`pathloom twin`: forks of running fabrics, and questions to them."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pathloom import _core
from pathloom._core import PathloomError
from pathloom.cli import console
from pathloom.cli.exits import Interrupted
from pathloom.cli.help import App
from pathloom.cli.options import (
    ClusterOption,
    JobsOption,
    JsonOption,
    SeedOption,
    job_count,
    seed_number,
    show_help_if_alone,
)
from pathloom.cli.remote import CaOption, TokenOption, UrlOption
from pathloom.cli.settings_options import whole_number
from pathloom.cli.twin_options import (
    AnswerFolderOption,
    AtOption,
    BudgetOption,
    ControllerOption,
    DurationOption,
    FabricOption,
    FailuresOption,
    FolderOption,
    ForkArgument,
    ForkFileOption,
    KeepOption,
    LearnOption,
    LedgerOption,
    LedgerToFillOption,
    MeasureOption,
    MetricsOption,
    NamesOption,
    QuestionsArgument,
    RecordsOption,
    RunOption,
    RunsOption,
    SchemeOption,
    TakeBackOption,
    TransportOption,
    WorstOption,
)
from pathloom.errors import bad_input, nearest_hint
from pathloom.experiments.settings.model import MOST_RUNS
from pathloom.remote import DEFAULT_URL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pathloom.experiments.running.work import Progress
    from pathloom.twin.ask import Answer, Plan
    from pathloom.twin.failures import Report
    from pathloom.twin.fork import Fork
    from pathloom.twin.measures import Measure

app = App(
    help="Fork a running fabric into packets, and ask what would happen.",
    invoke_without_command=True,
    callback=show_help_if_alone,
)

DEFAULT_FORK = Path("now.plf")
DEFAULT_LEDGER = Path("twin.sqlite")
MOST_QUESTIONS, MOST_PATHS, MOST_WORST = 10**9, 1000, 10_000


@app.command("fork")
def fork_command(
    controller: ControllerOption = None,
    folder: FolderOption = None,
    records: RecordsOption = None,
    at: AtOption = None,
    fabric: FabricOption = None,
    scheme: SchemeOption = None,
    run: RunOption = "1",
    learn: LearnOption = "10s",
    transport: TransportOption = None,
    names: NamesOption = False,
    out: ForkFileOption = DEFAULT_FORK,
    token_file: TokenOption = None,
    ca: CaOption = None,
) -> int:
    """Write the state of a fabric into a file: links, flows with their rates and paths, and how flows arrive.

    Example: pathloom twin fork --from results/stride --at 5s --out now.plf

    Example: pathloom twin fork --controller http://127.0.0.1:6680 --learn 30s --out now.plf
    """
    from pathloom.experiments.results.output_files import check_writable

    sources = {"--controller": controller, "--from": folder, "--records": records}
    given = [name for name, value in sources.items() if value is not None]
    if len(given) != 1:
        found = " and ".join(given) or "none"
        raise bad_input(f"twin fork: expected one of --controller, --from and --records, found {found}")
    check_writable(out)
    if controller is not None:
        forked = _of_controller(controller, learn, transport, token_file, ca)
    else:
        if at is None:
            raise bad_input(f"{given[0]}: needs --at, the time of the fork, such as --at 5s")
        at_s = _seconds("--at", at)
        if folder is not None:
            forked = _of_folder(folder, scheme, whole_number("--run", run, 1, MOST_RUNS), at_s)
        else:
            assert records is not None
            forked = _of_records(records, fabric, scheme or "ecmp", at_s, transport)
    forked = forked if names else forked.anonymised()
    forked.write(out)
    _say_what_was_found(forked, out)
    return 0


def _of_controller(url: str, learn: str, transport: str | None, token_file: Path | None, ca: Path | None) -> Fork:
    from pathloom.remote import Controller, find_token
    from pathloom.twin.from_controller import fork_of_controller

    learn_s = _seconds("--learn", learn)
    return fork_of_controller(Controller(url, find_token(token_file), ca), learn_s, transport=transport)


def _of_folder(folder: Path, scheme: str | None, run: int, at_s: float) -> Fork:
    from pathloom.twin.from_runs import fork_of_run, job_of, settings_of_folder

    settings, fabric_text = settings_of_folder(folder)
    return fork_of_run(settings, fabric_text, job_of(settings, scheme, run), at_s)


def _of_records(path: Path, spec: str | None, scheme: str, at_s: float, transport: str | None) -> Fork:
    from pathloom.fabrics import Fabric
    from pathloom.twin.from_records import fork_of_records, read_records

    if spec is None:
        raise bad_input("--records: needs --fabric, the fabric of the flows, such as --fabric fat-tree:k=4")
    _core.scheme_name(scheme)
    found, notes = read_records(path)
    return fork_of_records(found, Fabric(spec), scheme, at_s, transport, notes)


def _say_what_was_found(forked: Fork, out: Path) -> None:
    from pathloom.quantities import counted

    down = sum(bool(edge.get("failed")) for edge in forked.fabric["edges"])
    flows, hosts = counted(len(forked.flows), "flow"), counted(len(forked.hosts), "host")
    print(f"Fork: {out}")
    print(
        f"{flows} under way on {hosts} under {forked.scheme}, {counted(down, 'cable')} out of service; "
        f"{forked.arrivals.flows_per_s:.4g} new flows/s"
    )
    for note in forked.notes:
        print(f"Note: {note}.")


@app.command("ask")
def ask_command(
    fork: ForkArgument,
    questions: QuestionsArgument = None,
    failures: FailuresOption = None,
    worst: WorstOption = "5",
    measure: MeasureOption = "mean-throughput",
    duration: DurationOption = "1s",
    runs: RunsOption = "5",
    budget: BudgetOption = None,
    seed: SeedOption = None,
    jobs: JobsOption = None,
    cluster: ClusterOption = None,
    out: AnswerFolderOption = None,
    ledger: LedgerToFillOption = None,
    json: JsonOption = None,
) -> int:
    """Rank what could be done: each alternative, and nothing, in packets over the same forks.

    Example: pathloom twin ask now.plf drain:c0 cut:e0_0-a0_0 scheme:hedera load:x1.2 --for worst-pair --budget 30s

    Example: pathloom twin ask now.plf --failures double --worst 10 --budget 60s --out failures
    """
    from pathloom.experiments.running.runners import check_cluster, runner_of
    from pathloom.experiments.running.threads import default_threads
    from pathloom.twin.ask import Plan, Question
    from pathloom.twin.fork import read_fork
    from pathloom.twin.questions import parse_alternatives
    from pathloom.twin.report import draw_answer

    console.check_json_target(json)
    threads = job_count(jobs)
    check_cluster(cluster, threads)
    first_seed = seed_number(seed)
    plan = Plan(
        measure=measure_of(measure),
        duration=duration,
        runs=whole_number("--runs", runs, 1, MOST_RUNS),
        seed=1 if first_seed is None else first_seed,
        budget_s=None if budget is None else _seconds("--budget", budget),
    )
    if failures is not None:
        if questions:
            raise bad_input("--failures: takes no questions; ask them in a command of their own")
        most = whole_number("--worst", worst, 1, MOST_WORST)
        return _ask_failures(fork, failures, most, plan, threads, cluster, out, ledger, json)
    alternatives = parse_alternatives(questions or [])
    question = Question(read_fork(fork), fork.resolve(), alternatives, plan)
    with (
        runner_of(cluster, threads or default_threads(), console.say) as runner,
        _watch(len(alternatives) * plan.runs) as report,
    ):
        answer = question.carry_out(runner, report)
    if ledger is not None:
        _note(answer, fork, ledger, json)
    _deliver("answer", answer.json(), partial(draw_answer, answer), partial(_print_answer, answer), out, json)
    _check_whole(answer)
    return 0


def _ask_failures(
    fork: Path,
    kind: str,
    worst: int,
    plan: Plan,
    threads: int | None,
    cluster: str | None,
    out: Path | None,
    ledger: Path | None,
    json: str | None,
) -> int:
    """All failures by max-min rates, and the worst of them in packets."""
    from pathloom.experiments.running.runners import runner_of
    from pathloom.experiments.running.threads import default_threads
    from pathloom.twin.failures import Batch
    from pathloom.twin.failures_report import draw_failures
    from pathloom.twin.fork import read_fork

    count = threads or default_threads()
    batch, began_s = Batch(read_fork(fork), fork.resolve(), kind, plan), time.monotonic()
    screening = batch.screen(count)
    left_s = None if plan.budget_s is None else max(plan.budget_s - (time.monotonic() - began_s), 0.0)
    ran = min(worst, len(screening.rows)) + 1
    with runner_of(cluster, count, console.say) as runner, _watch(ran * plan.runs) as report:
        found = batch.in_packets(screening, worst, runner, report, left_s)
    if ledger is not None:
        _note(found.answer, fork, ledger, json)
    _deliver("failures", found.json(), partial(draw_failures, found), partial(_print_failures, found), out, json)
    _check_whole(found.answer)
    return 0


def _check_whole(answer: Answer) -> None:
    """Raises `Interrupted` if Ctrl-C ended the question early."""
    if answer.interrupted:
        raise Interrupted(f"interrupted: the answer is of {answer.runs} of {answer.plan.runs} forks")


def _print_failures(report: Report) -> None:
    from pathloom.twin.failures_report import summary, table_of_failures

    answer = report.answer
    print(f"{answer.plan.measure.about}, {answer.runs} forks of {answer.plan.duration}\n")
    console.table(None, *table_of_failures(report), 1)
    print()
    print(summary(report))


def _note(answer: Answer, fork: Path, ledger: Path, json: str | None) -> None:
    from pathloom.experiments.settings.input_files import sha256_of_file
    from pathloom.twin.ledger import Ledger

    number = Ledger(ledger).add_answer(answer, fork, sha256_of_file(fork) or "", time.time())
    (console.say if json == console.STDOUT else print)(f"Question {number} of {ledger}\n")


@app.command("apply")
def apply_command(
    question: Annotated[str, typer.Argument(metavar="NUMBER", help="Number of the question in the ledger.")],
    name: Annotated[str, typer.Argument(metavar="ALTERNATIVE", help="One of its alternatives, such as drain:c0.")],
    do: Annotated[bool, typer.Option("--do", help="Carry it out. Without this, only show and check it.")] = False,
    back: Annotated[bool, typer.Option("--back", help="Take it back.")] = False,
    least_paths: Annotated[
        str, typer.Option("--least-paths", metavar="N", help="Paths that must be left between any two ToRs.")
    ] = "2",
    most_age: Annotated[
        str, typer.Option("--most-age", metavar="TIME", help="Refuse predictions that are older.")
    ] = "10min",
    url: UrlOption = DEFAULT_URL,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", metavar="FILE", help="Token with the role operate; --do needs it."),
    ] = None,
    ca: CaOption = None,
    ledger: LedgerOption = DEFAULT_LEDGER,
) -> int:
    """Carry an alternative out without loss, after checks, and note it in the ledger. Only shows it without --do.

    Example: pathloom twin apply 3 drain:c0 --token-file operate.token --do
    """
    from pathloom.remote import Controller, find_token
    from pathloom.twin.apply import Guard, apply_to_controller, check_guards, steps_of
    from pathloom.twin.ledger import Ledger
    from pathloom.twin.questions import parse_alternative
    from pathloom.twin.watching import Watch

    number = whole_number("NUMBER", question, 1, MOST_QUESTIONS)
    guard = Guard(whole_number("--least-paths", least_paths, 1, MOST_PATHS))
    book, alternative = Ledger(ledger, make=False), parse_alternative(name)
    book.check_alternative(number, alternative.name)
    if do and token_file is None:
        raise bad_input("--do: needs --token-file, because acting has a token of its own; reading uses PATHLOOM_TOKEN")
    controller = Controller(url, find_token(token_file), ca)
    if back:
        last = book.last_decision(number, alternative.name)
        if last is None or last["back"]:
            raise bad_input(f"--back: question {number} has no `{alternative.name}` that was carried out")
        before = last["before"]
    else:
        _check_age(book.question(number)["at_s"], most_age)
        before = check_guards(controller, alternative, guard)
    steps = steps_of(alternative, before["scheme"], back)
    for step in steps:
        print(step.text)
    if not do:
        print("Nothing was sent: --do carries it out.")
        return 0
    flows = [] if back else list(controller.pages("/v1/flows"))
    at_s = time.time()
    apply_to_controller(controller, steps)
    decision = book.add_decision(number, alternative.name, at_s, [step.text for step in steps], before, back)
    if not back:
        watch = Watch(at_s, _core.parse_time_s(book.question(number)["duration"]))
        watch.look(flows, at_s)
        book.store_watch(decision, watch.state())
    print(
        "Taken back."
        if back
        else f"Carried out; `pathloom twin apply {number} {alternative.name} --back` takes it back, and `pathloom twin "
        "follow` measures what comes of it."
    )
    return 0


def _check_age(asked_at_s: float, most_age: str) -> None:
    age_s, most_s = time.time() - asked_at_s, _seconds("--most-age", most_age)
    if age_s > most_s:
        raise bad_input(f"the prediction is {age_s:.0f} s old; ask again with a new fork, or give a longer --most-age")


@app.command("follow")
def follow_command(
    take_back: TakeBackOption = False,
    keep: KeepOption = False,
    metrics: MetricsOption = None,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenOption = None,
    ca: CaOption = None,
    ledger: LedgerOption = DEFAULT_LEDGER,
) -> int:
    """Measure what came of what was carried out, and take it back if it went worse than predicted.

    Example: pathloom twin follow --ledger twin.sqlite

    Example: pathloom twin follow --keep --take-back --token-file operate.token --metrics twin.prom
    """
    from pathloom.experiments.results.output_files import write_text
    from pathloom.remote import Controller, find_token
    from pathloom.twin.following import LOOK_S, Follower, metrics_text
    from pathloom.twin.ledger import Ledger

    if take_back and token_file is None:
        raise bad_input("--take-back: needs --token-file, because acting has a token of its own")
    book = Ledger(ledger, make=False)
    follower = Follower(book, Controller(url, find_token(token_file), ca), take_back, print, time.time)
    left = follower.look()
    while True:
        if metrics is not None:
            write_text(metrics, metrics_text(book, time.time()))
        if not left and not keep:
            return 0
        time.sleep(LOOK_S)
        left = follower.look()


@app.command("score")
def score_command(
    outcomes: Annotated[
        list[str] | None,
        typer.Option(
            "--outcome",
            metavar="NUMBER:ALTERNATIVE=VALUE",
            help="Note what was measured after an alternative of a question: 3:drain:c0=0.42.",
        ),
    ] = None,
    ledger: LedgerOption = DEFAULT_LEDGER,
    json: JsonOption = None,
) -> int:
    """Show how good predictions were: coverage of the 90 % intervals, error, order of the alternatives.

    Example: pathloom twin score --outcome 3:drain:c0=0.42
    """
    from pathloom.twin.ledger import Ledger
    from pathloom.twin.score import score_of

    console.check_json_target(json)
    book = Ledger(ledger, make=False)
    for text in outcomes or []:
        book.add_outcome(*_outcome(text), time.time())
    score = score_of(book.predictions())
    if json is not None:
        console.put_json(json, score.json())
    if json == console.STDOUT:
        return 0
    print(f"{score.outcomes} of {score.predictions} predictions have an outcome")
    shares = [
        ("outcomes within the 90 % interval", score.coverage),
        ("mean error", score.mean_error),
        ("bias", score.bias),
        ("best alternative named first", score.best_first),
    ]
    rows = [[name, "" if value is None else f"{100 * value:.1f} %"] for name, value in shares]
    correlation = "" if score.rank_correlation is None else f"{score.rank_correlation:.2f}"
    console.table(None, ["score", "value"], [*rows, ["rank correlation", correlation]], 1)
    return 0


def _outcome(text: str) -> tuple[int, str, float]:
    """Question, alternative and value of an outcome.

    >>> _outcome("3:degrade:e0_0-a0_1=10Mbps=0.42")
    (3, 'degrade:e0_0-a0_1=10Mbps', 0.42)
    """
    number, _, rest = text.partition(":")
    name, _, value = rest.rpartition("=")
    try:
        return int(number), name, float(value)
    except ValueError:
        raise bad_input(f"--outcome `{text}`: expected NUMBER:ALTERNATIVE=VALUE, such as 3:drain:c0=0.42") from None


def measure_of(name: str) -> Measure:
    """The measure with this name. Raises `PathloomError`."""
    from pathloom.twin.measures import MEASURES

    if name not in MEASURES:
        raise bad_input(f"--for `{name}`: is not one of {', '.join(MEASURES)}{nearest_hint(name, MEASURES)}")
    return MEASURES[name]


@contextmanager
def _watch(runs: int) -> Iterator[Progress]:
    with console.progress_bar("ask", runs) as report:
        yield lambda work, share: report(replace(work.job, label=f"{work.place} {work.job.label}"), share)


def _deliver(
    name: str,
    content: dict[str, Any],
    draw: Callable[[Path], None],
    print_table: Callable[[], None],
    out: Path | None,
    json: str | None,
) -> None:
    """Writes the folder, and prints the table, or JSON instead."""
    from pathloom.twin.report import save

    if out is not None:
        save(content, out, name, draw)
    if json is not None:
        console.put_json(json, content)
    if json == console.STDOUT:
        return
    print_table()
    if out is not None:
        print(f"{name.capitalize()}: {out / name}.json")


def _print_answer(answer: Answer) -> None:
    from pathloom.twin.report import table_of, unfinished_note, verdict

    print(f"{answer.plan.measure.about}, {answer.runs} forks of {answer.plan.duration}, {answer.took_s:.1f} s\n")
    headings, rows = table_of(answer)
    console.table(None, headings, rows, 1)
    print()
    print(verdict(answer))
    if (note := unfinished_note(answer)) is not None:
        print(note)


def _seconds(option: str, text: str) -> float:
    try:
        return _core.parse_time_s(text)
    except PathloomError as error:
        raise bad_input(f"{option}: {error}") from None
