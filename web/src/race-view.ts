// Two schemes side by side on one time axis.

import { chart, distribution, type Line } from "./charts";
import { wayColour } from "./colours";
import { count, h, rate, replace, seconds, short } from "./dom";
import { FabricView, foldButtons } from "./fabric-view";
import type { Unfolded } from "./fold";
import { legend } from "./legend";
import type { Fabric, LinkState } from "./model";
import { race, Run, type About, type Race } from "./results";

interface Lane {
  run: Run;
  race: Race;
  view: FabricView;
  score: HTMLElement;
}

export class RaceView {
  readonly element: HTMLElement;
  private lanes: Lane[] = [];
  private readonly tracks = h("div", { class: "lanes" });
  private readonly charts = h("div", { class: "charts" });
  private at = 0;
  private turn = 0;

  constructor(
    private readonly about: About,
    private readonly fabric: Fabric,
    private readonly unfolded: Unfolded,
    private readonly states: (at: number) => (link: number) => LinkState,
    /** Takes the times of both schemes. Returns the time that is chosen among them. */
    private readonly ontimes: (times: number[]) => number,
    private number: number,
    /** Called when other schemes are chosen. */
    private readonly onchosen: (schemes: string[]) => void,
  ) {
    const names = about.schemes.map((scheme) => scheme.name);
    this.choices = [0, 1].map((lane) =>
      h("select", { "aria-label": lane === 0 ? "First scheme" : "Second scheme", onchange: () => void this.load() },
        names.map((name, index) => h("option", { value: name, selected: index === Math.min(lane ? names.length - 1 : 0, names.length - 1) }, name))));
    const choices = this.choices;
    const folds = foldButtons(unfolded);
    this.folds = folds;
    this.element = h("section", { class: "race", "aria-label": "Race" },
      h("div", { class: "row choose" }, choices[0]!, h("span", {}, "against"), choices[1]!, legend("result", unfolded.foldable), folds.element), this.tracks, this.charts);
    new ResizeObserver(() => this.drawCharts()).observe(this.charts);
  }

  private readonly choices: HTMLSelectElement[];
  private readonly folds: { render: () => void };

  /** Folds the pictures as far as the pods are folded. */
  refold(): void {
    this.folds.render();
    for (const { view } of this.lanes) view.refold();
  }

  /** Chooses schemes by name; unknown names change nothing. */
  choose(schemes: (string | null)[]): void {
    this.choices.forEach((select, lane) => {
      const wanted = schemes[lane];
      if (this.about.schemes.some(({ name }) => name === wanted)) select.value = wanted!;
    });
  }

  async setRun(number: number): Promise<void> {
    this.number = number;
    await this.load();
  }

  async load(): Promise<void> {
    const turn = ++this.turn;
    const chosen = this.choices.map((select) => select.value);
    this.onchosen(chosen);
    const lanes = await Promise.all(chosen.map(async (scheme, index): Promise<Lane> => {
      const run = new Run(scheme, this.number);
      const [found] = await Promise.all([race(run), run.load(this.about.series_s !== null)]);
      return { run, race: found, view: new FabricView(this.fabric, `Fabric under ${scheme}, ${index ? "second" : "first"}`, this.unfolded), score: h("p", { class: "score" }) };
    }));
    if (turn !== this.turn) return;
    this.lanes = lanes;
    replace(this.tracks, lanes.map(({ run, view, score }, index) => {
      const mark = h("i", { class: `mark ${index ? "dashed" : ""}`, "aria-hidden": "true" });
      mark.style.borderColor = wayColour(index);
      run.onframes = () => this.setTime(this.at);
      return h("article", { class: "lane", "aria-label": run.scheme }, h("div", { class: "row" }, h("h2", {}, mark, run.scheme), score, view.zoomButtons), view.element);
    }));
    this.setTime(this.ontimes([...new Set(lanes.flatMap(({ run }) => run.times))].sort((a, b) => a - b)));
  }

  setTime(at: number): void {
    this.at = at;
    for (const lane of this.lanes) {
      lane.view.setStates(this.states(at));
      const frame = lane.run.frame(at);
      if (frame) lane.view.setFrame(frame);
      lane.score.textContent = this.score(lane);
    }
    this.drawCharts();
  }

  private score({ race: of, run }: Lane): string {
    const goodput = run.times.length ? run.goodput[run.stepAt(this.at)] : undefined;
    const over = run.times.length > 0 && this.at >= run.times[run.times.length - 1]! - 1e-9;
    const parts = [
      of.finite > 0 && `${count(this.finishedBy(of, this.at))} of ${count(of.finite)} flows finished`,
      goodput !== undefined && (over ? `ended at ${seconds(run.times[run.times.length - 1])}` : `receiving ${rate(goodput)}`),
    ];
    return parts.filter(Boolean).join(", ");
  }

  /** Returns the number of flows that had finished by a time. It is an estimate if the server sent only some flows. */
  private finishedBy(of: Race, at: number): number {
    if (!this.hasSeries) return of.finished;
    const shown = of.end_s.filter((end) => end <= at + 1e-9).length;
    return of.end_s.length === of.finished ? shown : Math.round((shown * of.finished) / Math.max(1, of.end_s.length));
  }

  private get hasSeries(): boolean {
    return this.lanes.some(({ run }) => run.times.length > 0);
  }

  private drawCharts(): void {
    if (this.lanes.length === 0) return;
    const whole = this.charts.clientWidth;
    const finite = this.lanes.some(({ race: of }) => of.finished > 0);
    const steady = this.lanes.some(({ race: of }) => of.throughput.length > 0);
    const drawn = [finite && this.hasSeries, finite, steady, this.hasSeries].filter(Boolean).length;
    const width = Math.floor(whole < 640 || drawn < 2 ? whole : (whole - 24) / Math.min(drawn, whole > 1000 ? 4 : 2) - 12);
    if (width < 100) return;
    const lines = (points: (lane: Lane) => [number, number][]): Line[] =>
      this.lanes.map((lane, index) => ({ name: lane.run.scheme, colour: wayColour(index), dashed: index === 1, points: points(lane) }));
    const percent = (value: number) => `${Math.round(value * 100)} %`;
    const most = Math.max(...this.lanes.flatMap(({ race: of }) => of.end_s.slice(-1).concat(of.end_s)));
    const figures: HTMLElement[] = [];
    const figure = (title: string, picture: SVGElement) => figures.push(h("figure", {}, h("figcaption", {}, title), picture));
    if (finite) {
      const byNow = ({ race: of }: Lane) => {
        const ended = of.fct_s.filter((_, index) => !this.hasSeries || of.end_s[index]! <= this.at + 1e-9);
        return distribution(ended, Math.max(1, (of.fct_s.length * of.finite) / Math.max(1, of.finished)));
      };
      const longest = Math.max(...this.lanes.map(({ race: of }) => of.fct_s[of.fct_s.length - 1] ?? 0));
      figure(this.hasSeries ? `FCT of flows finished by ${seconds(this.at)}` : "FCT", chart(width, lines(byNow), {
        label: "Cumulative distribution of flow completion times", xName: "FCT", x: short(seconds), y: percent, xMost: longest, yMost: 1, logarithmic: true,
      }));
    }
    if (finite && this.hasSeries) {
      const over = ({ race: of }: Lane) => distribution([...of.end_s].sort((a, b) => a - b), Math.max(1, (of.end_s.length * of.finite) / Math.max(1, of.finished)));
      figure("Flows finished", chart(width, lines(over), { label: "Share of flows finished over time", xName: "time", x: short(seconds), y: percent, xMost: most, yMost: 1, cursor: this.at }));
    }
    if (steady) {
      const shares = ({ race: of }: Lane) => distribution(of.throughput, of.throughput.length);
      figure("Throughput of long-lived flows", chart(width, lines(shares), { label: "Cumulative distribution of throughputs", xName: "throughput (share of the optimum)", x: (x) => x.toFixed(1), y: percent, xMost: 1, yMost: 1 }));
    }
    if (this.hasSeries) {
      const goodput = ({ run }: Lane) => run.times.map((time, step) => [time, run.goodput[step] ?? 0] as [number, number]);
      figure("Goodput of all flows", chart(width, lines(goodput), { label: "Goodput of all flows over time", xName: "time", x: short(seconds), y: short(rate), cursor: this.at }));
    }
    replace(this.charts, figures);
  }
}
