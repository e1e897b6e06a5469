// The page of a result: the fabric over time, and the race of two schemes.

import { byId, h, replace } from "./dom";
import { Explorer } from "./explorer";
import type { Fabric, LinkState } from "./model";
import { RaceView } from "./race-view";
import { ResultDetails } from "./result-details";
import { about as askAbout, fabric as askFabric, Run, type About } from "./results";
import { TimeBar } from "./time-bar";
import { views } from "./views";

export async function show(): Promise<void> {
  const [about, fabric] = await Promise.all([askAbout(), askFabric()]);
  document.title = `${about.name} – Pathloom`;
  replace(byId("title"), h("strong", {}, about.name), h("span", { class: "quiet" }, ` ${about.fabric}`));
  await new Page(about, fabric).begin();
}

class Page {
  private readonly bar = new TimeBar(false);
  private readonly explorer: Explorer;
  private readonly race: RaceView;
  private readonly details: ResultDetails;
  private run: Run;
  private view = "fabric";
  private told = 0;
  private readonly down: { at: number; links: Set<number> }[];

  constructor(private readonly about: About, fabric: Fabric) {
    this.down = about.down.map(([at, links]) => ({ at, links: new Set(links) }));
    this.run = new Run(about.schemes[0]!.name, about.runs[0]!);
    this.details = new ResultDetails(about, () => this.run, () => this.bar.at);
    this.explorer = new Explorer(fabric, this.details, false);
    this.details.explorer = this.explorer;
    this.race = new RaceView(about, fabric, (at) => this.states(at), (times) => this.view === "race" && this.bar.setTimes(times), this.run.run);
    this.bar.ontime = (at) => this.showTime(at);
  }

  async begin(): Promise<void> {
    const select = (label: string, values: (string | number)[], change: (value: string) => void) => {
      const made = h("select", { "aria-label": label, onchange: () => change(made.value) },
        values.map((value) => h("option", { value }, label === "Run" ? `run ${value}` : value)));
      return made;
    };
    const schemes = select("Scheme", this.about.schemes.map(({ name }) => name), (name) => void this.choose(name, this.run.run));
    const runs = select("Run", this.about.runs, (number) => {
      void this.choose(this.run.scheme, Number(number));
      if (this.view === "race") void this.race.setRun(Number(number));
    });
    replace(byId("choices"), schemes, this.about.runs.length > 1 && runs);
    await this.choose(this.run.scheme, this.run.run);
    const list: [string, string, HTMLElement][] = [["fabric", "Fabric", this.explorer.element], ["race", "Race", this.race.element]];
    views(list, (view) => {
      this.view = view;
      schemes.hidden = view === "race";
      if (view === "race") void this.race.setRun(this.run.run);
      else {
        this.bar.setTimes(this.run.times);
        this.showTime(this.bar.at);
      }
    });
    if (this.about.series_s === null) {
      byId("time").hidden = false;
      replace(byId("time"), h("p", { class: "hint" }, "Means of the whole run. With --series 100ms, a run has a time slider."));
    }
  }

  private async choose(scheme: string, number: number): Promise<void> {
    const run = new Run(scheme, number);
    await run.load(this.about.series_s !== null);
    this.run = run;
    run.onframes = () => this.run === run && this.view === "fabric" && this.showTime(this.bar.at);
    if (this.view === "fabric") this.bar.setTimes(run.times);
    this.showTime(this.bar.at);
    this.explorer.refresh();
  }

  private showTime(at: number): void {
    if (this.view === "race") return this.race.setTime(at);
    this.explorer.setFrame(this.run.frame(at), this.states(at));
    // The panel sends requests to the server, so it is updated only when the time has not changed for 150 ms.
    clearTimeout(this.told);
    this.told = window.setTimeout(() => this.explorer.refresh(), 150);
  }

  private states(at: number): (link: number) => LinkState {
    const now = this.down.findLast((moment) => moment.at <= at) ?? this.down[0];
    return (link) => (now?.links.has(link) ? "down" : "up");
  }
}
