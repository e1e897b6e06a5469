// Requests to `pathloom show`, and the types of its answers.

import { ask, type Fabric, type Frame } from "./model";

export interface SchemeFigures {
  name: string;
  runs: { run: number; seed: number; end_s: number | null }[];
  throughput_mean: number | null;
  fct_mean_s: number | null;
  fct_p99_s: number | null;
  fct_p99_censored: boolean | null;
  flows: { offered: number; finished: number; unfinished: number; long_lived: number };
  reroutes: number | null;
  retransmits: number | null;
}

export interface About {
  name: string;
  fabric: string;
  /** The traffic as a specification (`spec`) and as a description (`traffic`). */
  spec: string;
  traffic: string;
  notes: string[];
  faults: string[];
  version: string;
  complete: boolean;
  series_s: number | null;
  has_ways: boolean;
  runs: number[];
  schemes: SchemeFigures[];
  /** Pairs of a time and the links that are down from then on. */
  down: [number, number[]][];
  /** Whether the folder has a report, and names and titles of the pictures in it. */
  report: boolean;
  pictures: [string, string][];
}

export interface Flow {
  flow: number;
  src: string;
  dst: string;
  src_port: number;
  dst_port: number;
  size_bytes: number | null;
  start_s: number | null;
  fct_s: number | null;
  age_s: number | null;
  finished: boolean;
  delivered_bytes: number;
  throughput: number | null;
  slowdown: number | null;
  retransmits: number;
  timeouts: number | null;
  reordered: number | null;
}

export interface FlowPage {
  total: number;
  first: number;
  items: Flow[];
}

export interface FlowDetail {
  flow: Flow;
  ways: { at_s: number; src_port: number; path: string | null; why: string | null }[] | null;
  subflows: { subflow: number; src_port: number; path: string | null; share: number | null; delivered_bytes: number; retransmits: number }[] | null;
  series: { at_s: number; goodput_bps: number }[] | null;
}

export interface Race {
  finite: number;
  finished: number;
  fct_s: number[];
  end_s: number[];
  throughput: number[];
}

const CHUNK = 32;

export const about = () => ask<About>("v1/result");
export const fabric = () => ask<Fabric>("v1/fabric");
export const race = (of: Run) => ask<Race>(`v1/race?${of.query}`);
export const flowDetail = (of: Run, flow: number) => ask<FlowDetail>(`v1/flow?${of.query}&flow=${flow}`);
export const flows = (of: Run, asked: Record<string, string | number>) =>
  ask<FlowPage>(`v1/flows?${of.query}&${new URLSearchParams(Object.entries(asked).map(([k, v]) => [k, String(v)]))}`);

export interface WholeRun {
  utilisation: number[];
  dropped_packets: number[];
  mean_queue: (number | null)[];
}

/** One run of one scheme. Its time steps are fetched in chunks when they are shown. */
export class Run {
  times: number[] = [];
  goodput: number[] = [];
  whole: WholeRun | null = null;
  onframes: () => void = () => {};
  private readonly chunks = new Map<number, Uint16Array[] | "asked">();

  constructor(readonly scheme: string, readonly run: number) {}

  get query(): string {
    return new URLSearchParams({ scheme: this.scheme, run: String(this.run) }).toString();
  }

  async load(hasSeries: boolean): Promise<void> {
    this.whole = await ask<WholeRun>(`v1/links?${this.query}`);
    if (!hasSeries) return;
    const { at_s, goodput_bps } = await ask<{ at_s: number[]; goodput_bps: number[] }>(`v1/times?${this.query}`);
    [this.times, this.goodput] = [at_s, goodput_bps];
  }

  /** Returns the time step that contains a time, or the last step after the end. */
  stepAt(at: number): number {
    let [low, high] = [0, this.times.length - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.times[middle]! >= at - 1e-9) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  /** Returns the utilisation at a time, or the mean of the run if there is no series. Null while it is fetched. */
  frame(at: number): Frame | null {
    if (this.times.length === 0) return this.whole?.utilisation ?? null;
    // After the end of a run, nothing is sent.
    if (at > this.times[this.times.length - 1]! + 1e-9) return [];
    const step = this.stepAt(at);
    const chunk = Math.floor(step / CHUNK);
    this.fetch(chunk);
    if (step % CHUNK > CHUNK / 3 && (chunk + 1) * CHUNK < this.times.length) this.fetch(chunk + 1);
    const known = this.chunks.get(chunk);
    return known && known !== "asked" ? (known[step % CHUNK] ?? null) : null;
  }

  private fetch(chunk: number): void {
    if (this.chunks.has(chunk)) return;
    this.chunks.set(chunk, "asked");
    ask<{ utilisation: number[][] }>(`v1/frames?${this.query}&first=${chunk * CHUNK}&count=${CHUNK}`).then(
      ({ utilisation }) => {
        this.chunks.set(chunk, utilisation.map((values) => Uint16Array.from(values)));
        this.onframes();
      },
      () => this.chunks.delete(chunk),
    );
  }
}
