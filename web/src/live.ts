// Access to the controller's API: the fabric, a stream of changes, and requests of operators.

import { UNKNOWN } from "./dom";
import { ask, Refused, type Fabric, type LinkState } from "./model";

export interface State {
  version: string;
  scheme: string;
  scheme_since_s: number;
  uptime_s: number;
  fabric: string;
  hosts: number;
  switches: number;
  sessions: number;
  cables: { up: number; down: number; drained: number };
  cabling: { adopted: string[]; refused: string[] };
  flows: { known: number; long: number; default_routes: number; own_path: number; changing_path: number; held: number };
  agents: { hosts: number; offenders: { agent: string; times: number; last_s: number }[] };
  busy_share: number;
  staging: boolean;
}

export interface SwitchRow {
  name: string;
  datapath_id: string;
  tier: string;
  peer: string | null;
  drained: boolean;
  rules: number;
  foreign_rules: number;
  rtt_us: number | null;
  ports: number;
  ports_up: number;
}

export interface LiveFlow {
  id: string;
  five_tuple: { src: string; dst: string; proto: number; src_port: number; dst_port: number };
  src_host: string;
  dst_host: string;
  phase: string;
  path: string[] | null;
  pending: string[] | null;
  long: boolean;
  size_bytes: number | null;
  bytes: number;
  rate_bps: number | null;
  allocated_bps: number | null;
  since_s: number;
}

export interface Why {
  flow: LiveFlow;
  why: string;
  history: { at_s: number; scheme: string; cause: string; decision: string }[];
  candidates: { path: string[]; current: boolean; fullest: string | null; load_share: number }[];
}

interface Prediction {
  max_min_mean_bps: number;
  max_min_least_bps: number;
  max_load_share: number;
  max_load_link: string | null;
}

export interface DryRun {
  scheme: string;
  instead_of: string;
  flows: number;
  moved: number;
  rejected: number;
  settled: boolean;
  now: Prediction;
  then: Prediction;
}

interface Changes {
  at_s: number;
  state: State;
  switches: SwitchRow[];
  links: { index: number[]; state: LinkState[]; flows: number[]; load_bps: (number | null)[]; dropped_packets: number[] };
}

/** Number of events that are kept for the time slider. */
const KEPT = 600;
/** How long an agent that was limited or refused is shown as an alarm, in seconds. */
const OFFENDER_SHOWN_S = 600;
const TOKEN = "pathloom token";
const MOST_FLOW_PAGES = 20;

interface Moment {
  at: number;
  loads: Uint16Array;
  states: LinkState[];
}

export class Live {
  state: State | null = null;
  switches: SwitchRow[] = [];
  flowsOn: number[] = [];
  dropped: number[] = [];
  moments: Moment[] = [];
  /** Whether the stream of events is connected. */
  connected = false;
  onchange: () => void = () => {};
  private token = sessionStorage.getItem(TOKEN) ?? "";

  constructor(readonly fabric: Fabric) {}

  static async open(): Promise<Live> {
    return new Live(await ask<Fabric>("v1/fabric", options(sessionStorage.getItem(TOKEN) ?? "")));
  }

  get hasToken(): boolean {
    return this.token !== "";
  }

  /** Sets another token, for this tab only. An empty token removes it. */
  useToken(token: string): void {
    this.token = token;
    Live.keepToken(token);
  }

  static keepToken(token: string): void {
    if (token) sessionStorage.setItem(TOKEN, token);
    else sessionStorage.removeItem(TOKEN);
  }

  get<T>(path: string): Promise<T> {
    return ask<T>(path, options(this.token));
  }

  change<T>(method: string, path: string, body?: unknown): Promise<T> {
    return ask<T>(path, { ...options(this.token), method, body: body === undefined ? "" : JSON.stringify(body) });
  }

  /** Fetches flows, up to `MOST_FLOW_PAGES` pages of 1000. `all` tells whether these are all flows. */
  async flows(): Promise<{ items: LiveFlow[]; all: boolean }> {
    const items: LiveFlow[] = [];
    let after = "";
    for (let page = 0; page < MOST_FLOW_PAGES; page++) {
      const got = await this.get<{ items: LiveFlow[]; next: string | null }>(`v1/flows?limit=1000${after}`);
      items.push(...got.items);
      if (got.next === null) return { items, all: true };
      after = `&after=${got.next}`;
    }
    return { items, all: false };
  }

  /** Follows the stream of events while the page is open. */
  async follow(): Promise<void> {
    for (;;) {
      try {
        await this.stream();
      } catch (problem) {
        this.connected = false;
        this.onchange();
        await new Promise((done) => setTimeout(done, problem instanceof Refused && problem.status < 500 ? 5000 : 1000));
      }
    }
  }

  private async stream(): Promise<void> {
    const answer = await fetch("v1/events", options(this.token));
    if (!answer.ok || !answer.body) throw new Refused(answer.status, "no events");
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      text += value;
      const parts = text.split("\n\n");
      text = parts.pop() ?? "";
      for (const part of parts) {
        const data = part.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5)).join("\n");
        if (data) this.take(JSON.parse(data) as Changes);
      }
    }
  }

  private take({ at_s, state, switches, links }: Changes): void {
    this.connected = true;
    this.state = state;
    const known = new Map(this.switches.map((one) => [one.name, one]));
    for (const one of switches) known.set(one.name, one);
    this.switches = [...known.values()];
    const size = this.fabric.links.source.length;
    const last = this.moments[this.moments.length - 1];
    const loads = last ? last.loads.slice() : new Uint16Array(size).fill(UNKNOWN);
    const states = last ? (links.state.length ? [...last.states] : last.states) : new Array<LinkState>(size).fill("up");
    links.index.forEach((link, place) => {
      const load = links.load_bps[place];
      const perMille = (1000 * (load ?? 0)) / (this.fabric.links.rate_bps[link] || 1);
      loads[link] = load === null || load === undefined ? UNKNOWN : Math.min(1000, Math.round(perMille));
      states[link] = links.state[place]!;
      this.flowsOn[link] = links.flows[place]!;
      this.dropped[link] = links.dropped_packets[place]!;
    });
    this.moments.push({ at: at_s, loads, states });
    if (this.moments.length > KEPT) this.moments.shift();
    this.onchange();
  }

  /** Returns the conditions that need attention. Critical ones come first. */
  alarms(): { severity: "critical" | "warning"; text: string }[] {
    const { state } = this;
    const found: { severity: "critical" | "warning"; text: string }[] = [];
    const critical = (text: string) => found.push({ severity: "critical", text });
    const warning = (text: string) => found.push({ severity: "warning", text });
    if (!this.connected) critical("The controller sends no events; the page shows the last state that it received.");
    if (!state) return found;
    for (const one of this.switches) if (one.peer === null) critical(`${one.name} has no session.`);
    const states = this.moments[this.moments.length - 1]?.states ?? [];
    const { source, target } = this.fabric.links;
    states.forEach((one, link) => {
      const ends = [source[link]!, target[link]!].map((node) => this.fabric.nodes[node]!);
      if (link % 2 === 0 && (one === "down" || states[link + 1] === "down") && ends.every(({ tier }) => tier !== "host")) {
        warning(`The cable ${ends[0]!.name} – ${ends[1]!.name} is down.`);
      }
    });
    const now_s = Date.now() / 1000;
    for (const { agent, times, last_s } of state.agents.offenders) {
      if (now_s - last_s < OFFENDER_SHOWN_S) warning(`The host agent ${agent} was limited or refused ${times} times.`);
    }
    state.cabling.refused.forEach((text) => warning(`Cabling: ${text}`));
    for (const one of this.switches) if (one.foreign_rules > 0) warning(`${one.name} has ${one.foreign_rules} foreign rules.`);
    if (state.busy_share > 0.8) warning(`The controller is busy ${Math.round(state.busy_share * 100)} % of the time.`);
    return found;
  }
}

/** Options of a request. Without a token, the browser sends the credentials that the user has entered in its dialog. */
function options(token: string): RequestInit {
  return token ? { headers: { authorization: `Bearer ${token}` }, credentials: "omit" } : {};
}
