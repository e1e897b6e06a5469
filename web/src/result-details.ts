// Details of links and flows from a result, for the panel.

import { chart } from "./charts";
import { styled, wayColour } from "./colours";
import { bytes, count, facts, h, rate, seconds, short } from "./dom";
import type { Details, Explorer, Told } from "./explorer";
import type { Way } from "./model";
import { flowDetail, flows, type About, type Flow, type FlowDetail, type Run } from "./results";

const PAGE = 50;

/** A mean number of packets. It is unknown for the queues of hosts in the lab. */
const packets = (mean: number | null | undefined) => (mean == null ? "unknown" : `${mean} packets`);

export class ResultDetails implements Details {
  explorer: Explorer | null = null;
  private order: string;
  private word = "";
  private turn = 0;

  constructor(private readonly about: About, private readonly run: () => Run, private readonly at: () => number) {
    const longLived = about.schemes.every(({ flows }) => flows.offered === flows.long_lived);
    this.order = longLived ? "throughput" : "age_s";
  }

  async overview(): Promise<Told> {
    const run = this.run();
    const scheme = this.about.schemes.find((one) => one.name === run.scheme)!;
    const several = this.about.runs.length > 1;
    const ofRun = several ? `, run ${run.run}` : "";
    const list = h("div");
    const rows = facts([
      ["Mean throughput", scheme.throughput_mean === null ? null : scheme.throughput_mean.toFixed(3)],
      ["Mean FCT", seconds(scheme.fct_mean_s)],
      ["99th percentile of FCT", `${scheme.fct_p99_censored ? "≥ " : ""}${seconds(scheme.fct_p99_s)}`],
      ["Flows", `${count(scheme.flows.finished)} of ${count(scheme.flows.offered - scheme.flows.long_lived)} finished`],
      ["Retransmissions", count(scheme.retransmits)],
      ["Reroutes", count(scheme.reroutes)],
    ].filter(([name, value]) => value !== null && value !== "–" && !(name === "Flows" && scheme.flows.offered === scheme.flows.long_lived)) as [string, string][]);
    return {
      title: run.scheme,
      content: [
        h("details", { class: "traffic" }, h("summary", {}, this.about.spec), this.about.traffic),
        ...(several ? [h("h3", {}, `All ${this.about.runs.length} runs together`)] : []),
        rows,
        ...(this.about.faults.length ? [h("p", { class: "hint" }, `Faults: ${this.about.faults.join(", ")}`)] : []),
        h("h3", {}, `Busiest links ${run.times.length ? "now" : "of the run"}${ofRun}`),
        this.explorer?.busiest(6) ?? h("p"),
        ...(this.explorer?.down(6) ?? []),
        h("h3", {}, `Flows${ofRun}`),
        this.flowFilter(list),
        list,
      ],
    };
  }

  async link(link: number): Promise<Node[]> {
    const { whole, times } = this.run();
    const list = h("div");
    const asked: Record<string, string | number> = times.length ? { link, at_s: this.at() } : { link };
    await this.fill(list, { ...asked, order: "age_s" }, times.length ? "No flow was on it in this step." : "No flow was on it.");
    return [
      facts([
        ["Whole run", whole ? `${((whole.utilisation[link] ?? 0) / 10).toFixed(1)} %` : "–"],
        ["Mean queue", whole ? packets(whole.mean_queue[link]) : "–"],
        ["Dropped", whole ? `${count(whole.dropped_packets[link])} packets` : "–"],
      ]),
      h("h3", {}, times.length ? `Flows on it at ${seconds(this.at())}` : "Flows on it"),
      list,
    ];
  }

  async pair(from: string, to: string): Promise<Node[]> {
    const list = h("div");
    await this.fill(list, { src: from, dst: to, order: "age_s" }, "None.");
    return [list];
  }

  async flow(name: string): Promise<Told> {
    const detail = await flowDetail(this.run(), Number(name));
    const { flow } = detail;
    const ways = this.waysNow(detail);
    const parts = ways.map(({ path, port }, index) => {
      const line = h("li", {}, h("i", { class: "swatch", "aria-hidden": "true" }), pathText(path), ways.length > 1 && h("small", {}, ` from port ${port}`));
      (line.firstElementChild as HTMLElement).style.background = wayColour(index);
      return line;
    });
    const content: Node[] = [
      facts([
        ["Size", flow.size_bytes === null ? "long-lived" : bytes(flow.size_bytes)],
        ["Began", seconds(flow.start_s)],
        ...(flow.size_bytes === null ? [] : [[flow.finished ? "FCT" : "Age, unfinished", seconds(flow.age_s)] as [string, string]]),
        ["Delivered", bytes(flow.delivered_bytes)],
        ...(flow.slowdown === null ? [] : [["Slowdown", flow.slowdown.toFixed(2)] as [string, string]]),
        ...(flow.throughput === null ? [] : [["Throughput", flow.throughput.toFixed(3)] as [string, string]]),
        ["Retransmissions", `${count(flow.retransmits)}, ${timeouts(flow.timeouts)}`],
        ["Reordered", flow.reordered === null ? "unknown" : `${count(flow.reordered)} segments`],
      ]),
      h("h3", {}, ways.length > 1 ? "Paths" : "Path"),
      parts.length ? h("ol", { class: "ways" }, parts) : h("p", { class: "hint" }, noWays(detail)),
    ];
    const drawn: Way[] = ways.map(({ path }, colour) => ({ links: this.explorer?.names.along(path?.split(" ") ?? []) ?? [], colour }));
    if (drawn.length === 1) content.push(this.explorer?.along(drawn[0]!) ?? h("p"));
    if (drawn.length) content.push(...(this.explorer?.alternatives(flow.src, flow.dst, drawn) ?? []));
    content.push(this.explorer?.pairButton(flow.src, flow.dst) ?? h("p"));
    content.push(...this.subflows(detail), ...this.history(detail), ...this.goodput(detail));
    return { title: `Flow ${flow.flow}: ${flow.src} → ${flow.dst}`, content, ways: drawn };
  }

  /** Returns the last known path of each subflow at this time. Before its first known path, the first path is used. */
  private waysNow(detail: FlowDetail): { port: number; path: string | null }[] {
    if (!detail.ways?.length) {
      return (detail.subflows ?? []).map(({ src_port, path }) => ({ port: src_port, path }));
    }
    const at = this.run().times.length ? this.at() : Infinity;
    const ports = new Map<number, string | null>();
    for (const { at_s, src_port, path } of detail.ways) {
      if (at_s <= at + 1e-9 || !ports.has(src_port)) ports.set(src_port, path);
    }
    return [...ports].map(([port, path]) => ({ port, path }));
  }

  private subflows(detail: FlowDetail): Node[] {
    if (!detail.subflows || detail.subflows.length < 2) return [];
    const rows = detail.subflows.map((one) =>
      h("tr", {},
        h("td", {}, one.src_port), h("td", {}, pathText(one.path)),
        h("td", { class: "number" }, one.share === null ? "–" : `${(one.share * 100).toFixed(0)} %`),
        h("td", { class: "number" }, one.retransmits)));
    const heads = ["Port", "Path", "Share", "Retr."].map((name, place) => h("th", { scope: "col", class: place >= 2 && "number" }, name));
    return [h("h3", {}, "Subflows"), h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Subflows" }, h("table", {}, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, rows)))];
  }

  private history(detail: FlowDetail): Node[] {
    if (!detail.ways?.length) return [];
    const moves = detail.ways.map((one) =>
      h("li", {}, h("strong", {}, seconds(one.at_s)), ` ${one.why ?? "on the default routes"}`, h("small", {}, pathText(one.path))));
    const title = detail.ways.length === 1 ? "Why it is there" : `Why: ${detail.ways.length} paths or reasons`;
    return [h("h3", {}, title), h("ol", { class: "history" }, moves)];
  }

  private goodput(detail: FlowDetail): Node[] {
    const { times } = this.run();
    if (!detail.series?.length || times.length === 0) return [];
    const known = new Map(detail.series.map(({ at_s, goodput_bps }) => [at_s, goodput_bps]));
    const points = times.map((time) => [time, known.get(time) ?? 0] as [number, number]);
    const width = Math.max(220, Math.min(520, (document.querySelector(".panel")?.clientWidth ?? 320) - 40));
    return [
      h("h3", {}, "Goodput"),
      chart(width, [{ name: "goodput", colour: styled("--accent"), points }], {
        label: "Goodput of the flow over time", xName: "time", x: short(seconds), y: short(rate), cursor: this.at(), height: 150,
      }),
    ];
  }

  private flowFilter(list: HTMLElement): HTMLElement {
    const refill = () => void this.fill(list, { order: this.order, word: this.word }, "No flow has this name.");
    const orders: [string, string][] = [["age_s", "longest first"], ["slowdown", "slowdown"], ["throughput", "lowest throughput"], ["retransmits", "retransmissions"], ["start_s", "start"], ["flow", "number"]];
    const select = h("select", { "aria-label": "Order of flows", onchange: () => ((this.order = select.value), refill()) },
      orders.map(([value, text]) => h("option", { value, selected: value === this.order }, text)));
    const word = h("input", { type: "search", placeholder: "h0", value: this.word, "aria-label": "Flows of a host",
      oninput: () => ((this.word = word.value), refill()) });
    refill();
    return h("div", { class: "row" }, word, select);
  }

  /** Fills a list of flows. Further pages are loaded on request. */
  private async fill(list: HTMLElement, asked: Record<string, string | number>, none: string): Promise<void> {
    const run = this.run();
    const turn = String(++this.turn);
    list.dataset["turn"] = turn;
    const items = h("ul", { class: "flows" });
    const more = h("button", { type: "button", class: "more" });
    const next = async (first: number) => {
      const page = await flows(run, { ...asked, first, count: PAGE });
      items.append(...page.items.map((flow) => this.flowButton(flow)));
      const shown = first + page.items.length;
      more.hidden = shown >= page.total;
      more.textContent = `${shown} of ${count(page.total)}: show more`;
      more.onclick = () => void next(shown);
      return page.total;
    };
    try {
      const total = await next(0);
      // Another list may have been requested meanwhile.
      if (list.dataset["turn"] !== turn) return;
      list.replaceChildren(...(total ? [items, more] : [h("p", { class: "hint" }, none)]));
    } catch (problem) {
      list.replaceChildren(h("p", { class: "hint" }, problem instanceof Error ? problem.message : String(problem)));
    }
  }

  private flowButton(flow: Flow): HTMLElement {
    const what = flow.size_bytes === null ? `throughput ${(flow.throughput ?? 0).toFixed(2)}` : `${bytes(flow.size_bytes)}, ${flow.finished ? "" : "> "}${seconds(flow.age_s)}`;
    return h("li", {}, h("button", { type: "button", class: "link", onclick: () => this.explorer?.showFlow(String(flow.flow)) },
      h("span", {}, `${flow.flow}: ${flow.src} → ${flow.dst}`), h("span", { class: "number" }, what)));
  }
}

const pathText = (path: string | null): string => path?.split(" ").join(" – ") ?? "unknown path";

const timeouts = (number: number | null): string =>
  number === null ? "time-outs unknown" : `${count(number)} time-out${number === 1 ? "" : "s"}`;

function noWays(detail: FlowDetail): string {
  if (detail.ways === null) return "Paths were not recorded. Run again with --series 100ms.";
  return detail.flow.start_s === null ? "The flow did not start." : "Its path is unknown.";
}
