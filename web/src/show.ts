// The page of a result: the fabric over time, and the race of two schemes.

import { address, note } from "./address";
import { byId, h, replace } from "./dom";
import { Explorer } from "./explorer";
import { Unfolded } from "./fold";
import { MatrixView } from "./matrix-view";
import type { Fabric, LinkState } from "./model";
import { RaceView } from "./race-view";
import { ResultDetails } from "./result-details";
import { about as askAbout, fabric as askFabric, Run, type About } from "./results";
import { selectionIn, selectionOf } from "./selection";
import { TimeBar } from "./time-bar";
import { views } from "./views";

export async function show(): Promise<void> {
  const [about, fabric] = await Promise.all([askAbout(), askFabric()]);
  document.title = `${about.name} – Pathloom`;
  replace(byId("title"), h("strong", {}, about.name), h("span", { class: "quiet" }, ` ${about.fabric}`));
  await new Page(about, fabric).begin();
}

/** Links to the report of the result, and to the first of its pictures of ranks if it has any. */
function reportLinks(about: About): HTMLElement[] {
  if (!about.report) return [];
  const link = (to: string, text: string, title: string) => h("a", { href: `report.html${to}`, target: "_blank", title }, text);
  const ranks = about.pictures.find(([name]) => name.startsWith("rank-"));
  return [
    ...(ranks ? [link(`#${ranks[0]}`, "Ranks", "What each rank of the job does over time, and which pairs are slow")] : []),
    link("", "Report", "All tables and pictures on one page"),
  ];
}

class Page {
  private readonly bar = new TimeBar(false);
  private readonly explorer: Explorer;
  private readonly race: RaceView;
  private readonly matrix: MatrixView;
  private readonly details: ResultDetails;
  private run: Run;
  private wanted: Run | null = null;
  private view = "fabric";
  private told = 0;
  private wantedAt: number | null = null;
  private readonly unfolded: Unfolded;
  private readonly down: { at: number; links: Set<number> }[];

  constructor(private readonly about: About, private readonly fabric: Fabric) {
    this.down = about.down.map(([at, links]) => ({ at, links: new Set(links) }));
    this.run = new Run(about.schemes[0]!.name, about.runs[0]!);
    this.details = new ResultDetails(about, () => this.run, () => this.bar.at);
    this.unfolded = new Unfolded(fabric);
    this.explorer = new Explorer(fabric, this.details, this.unfolded, "result");
    this.details.explorer = this.explorer;
    const ontimes = (times: number[]) => {
      if (this.view === "race") this.setTimes(times);
      return this.bar.at;
    };
    this.race = new RaceView(about, fabric, this.unfolded, (at) => this.states(at), ontimes, this.run.run, ([a, b]) => note({ a: a!, b: b! }));
    this.matrix = new MatrixView(fabric, this.unfolded, (link) => (location.hash = `fabric?link=${link}`));
    this.explorer.onshown = (shown) => note(selectionOf(shown, fabric));
    this.unfolded.onchange = () => {
      note({ open: this.unfolded.value, bundles: this.unfolded.mean ? "mean" : null });
      this.explorer.refold();
      this.race.refold();
      this.matrix.rebuild();
    };
    this.bar.ontime = (at) => this.showTime(at);
  }

  async begin(): Promise<void> {
    const select = (label: string, values: (string | number)[], change: (value: string) => void) => {
      const made = h("select", { "aria-label": label, onchange: () => change(made.value) },
        values.map((value) => h("option", { value }, label === "Run" ? `run ${value}` : value)));
      return made;
    };
    const schemes = select("Scheme", this.about.schemes.map(({ name }) => name), (name) => void this.choose(name, Number(runs.value)));
    const runs = select("Run", this.about.runs, (number) => {
      void this.choose(schemes.value, Number(number));
      if (this.view === "race") void this.race.setRun(Number(number));
    });
    replace(byId("choices"), schemes, this.about.runs.length > 1 && runs, ...reportLinks(this.about));
    this.take(address().shown, schemes, runs);
    await this.choose(schemes.value, Number(runs.value));
    const list: [string, string, HTMLElement][] = [["fabric", "Fabric", this.explorer.element], ["race", "Race", this.race.element], ["matrix", "Matrix", this.matrix.element]];
    views(list, (view) => {
      this.view = view;
      schemes.hidden = view === "race";
      void this.follow(schemes, runs);
    });
    if (this.about.series_s === null) {
      byId("time").hidden = false;
      replace(byId("time"), h("p", { class: "hint" }, "Means of the whole run. With --series 100ms, a run has a time slider."));
    }
  }

  /** Takes scheme, run, time and racing schemes from the address, as far as it has them. */
  private take(shown: URLSearchParams, schemes: HTMLSelectElement, runs: HTMLSelectElement): void {
    for (const [select, wanted] of [[schemes, shown.get("scheme")], [runs, shown.get("run")]] as const) {
      if ([...select.options].some(({ value }) => value === wanted)) select.value = wanted!;
    }
    this.matrix.take(shown);
    this.race.choose([shown.get("a"), shown.get("b")]);
    this.unfolded.take(shown.get("open"), shown.has("bundles") ? shown.get("bundles") === "mean" : this.unfolded.mean);
    const at = parseFloat(shown.get("at") ?? "");
    if (Number.isFinite(at)) this.wantedAt = at;
  }

  /** Shows what the address says, and keeps what it does not say. */
  private async follow(schemes: HTMLSelectElement, runs: HTMLSelectElement): Promise<void> {
    const { shown } = address();
    this.take(shown, schemes, runs);
    const [scheme, number] = [schemes.value, Number(runs.value)];
    if (scheme !== this.run.scheme || number !== this.run.run) await this.choose(scheme, number);
    if (this.view === "race") return this.race.setRun(number);
    this.setTimes(this.run.times);
    this.showTime(this.bar.at);
    const selected = selectionIn(shown, this.fabric);
    if (selected) await this.explorer.show(selected, false);
  }

  /** Sets the times of the bar, and goes to the time of the address the first time. */
  private setTimes(times: number[]): void {
    this.bar.setTimes(times);
    if (this.wantedAt !== null && times.length > 0) {
      const at = this.wantedAt;
      this.wantedAt = null;
      this.bar.goTo(at);
    }
  }

  private async choose(scheme: string, number: number): Promise<void> {
    note({ scheme, run: number });
    const run = new Run(scheme, number);
    this.wanted = run;
    await run.load(this.about.series_s !== null);
    // Another run may have been chosen meanwhile.
    if (this.wanted !== run) return;
    this.run = run;
    run.onframes = () => this.run === run && this.view !== "race" && this.showTime(this.bar.at);
    if (this.view !== "race") this.setTimes(run.times);
    this.showTime(this.bar.at);
    this.explorer.refresh();
  }

  private showTime(at: number): void {
    if (this.run.times.length > 0) note({ at });
    if (this.view === "race") return this.race.setTime(at);
    const [frame, states] = [this.run.frame(at), this.states(at)];
    this.explorer.setFrame(frame, states);
    this.matrix.setFrame(frame, states);
    // The panel sends requests to the server, so it is updated only when the time has not changed for 150 ms.
    clearTimeout(this.told);
    this.told = window.setTimeout(() => this.explorer.refresh(), 150);
  }

  private states(at: number): (link: number) => LinkState {
    const now = this.down.findLast((moment) => moment.at <= at) ?? this.down[0];
    return (link) => (now?.links.has(link) ? "down" : "up");
  }
}
