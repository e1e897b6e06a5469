// Details of links and flows from a live controller, for the panel.

import { bytes, count, facts, h, rate } from "./dom";
import type { Details, Explorer, Told } from "./explorer";
import type { Live, LiveFlow, Why } from "./live";

const MOST_FLOWS = 200;

export class LiveDetails implements Details {
  explorer: Explorer | null = null;

  constructor(private readonly live: Live, private readonly drain: (path: string, out: boolean, what: string) => Promise<void>) {}

  async overview(): Promise<Told> {
    const { state } = this.live;
    if (!state) return { title: "Controller", content: [h("p", { class: "hint" }, "Waiting for the first event …")] };
    const alarms = this.live.alarms();
    return {
      title: state.scheme,
      content: [
        facts([
          ["Switches", `${state.sessions} of ${state.switches} connected`],
          ["Cables", `${state.cables.up} up, ${state.cables.down} down, ${state.cables.drained} out of service`],
          ["Flows", `${count(state.flows.known)} known, ${count(state.flows.own_path)} on own paths`],
          ["Alarms", alarms.length ? h("a", { href: "#operate" }, alarms.length) : "none"],
        ]),
        h("h3", {}, "Busiest links"),
        this.explorer?.busiest(8) ?? h("p"),
        ...(this.explorer?.down(8) ?? []),
        h("h3", {}, "Flows"),
        await this.flowList(() => true, "The controller knows no flow."),
      ],
    };
  }

  async link(link: number): Promise<Node[]> {
    const { fabric } = this.live;
    const id = fabric.links.id?.[link] ?? "";
    const [from, to] = [fabric.links.source[link]!, fabric.links.target[link]!].map((node) => fabric.nodes[node]!);
    const last = this.live.moments[this.live.moments.length - 1];
    const out = ["drained", "draining"].includes(last?.states[link] ?? "up");
    const between = from!.tier !== "host" && to!.tier !== "host";
    const crosses = (flow: LiveFlow) => {
      const path = [flow.src_host, ...(flow.path ?? []), flow.dst_host];
      return flow.path !== null && path.some((name, place) => name === from!.name && path[place + 1] === to!.name);
    };
    return [
      facts([["Port", id], ["Flows with rules", count(this.live.flowsOn[link])], ["Dropped", `${count(this.live.dropped[link])} packets`]]),
      ...(between ? [h("p", {}, h("button", { type: "button", "data-key": "service", onclick: () => void this.drain(`v1/links/${encodeURIComponent(id)}`, !out, `the cable ${from!.name} – ${to!.name}`) },
        out ? "Take it back into service" : "Take it out of service"))] : []),
      h("h3", {}, "Flows on it"),
      await this.flowList(crosses, "No flow has rules for it. Flows on the default routes may cross it all the same."),
    ];
  }

  async pair(from: string, to: string): Promise<Node[]> {
    return [await this.flowList(({ src_host, dst_host }) => src_host === from && dst_host === to, "The controller knows none.")];
  }

  async flow(id: string): Promise<Told> {
    const { flow, why, history, candidates } = await this.live.get<Why>(`v1/flows/${encodeURIComponent(id)}/why`);
    const names = (path: string[]) => path.join(" – ");
    const clock = (at: number) => new Date(at * 1000).toLocaleTimeString("en", { hour12: false });
    const { src, dst, src_port, dst_port } = flow.five_tuple;
    const links = flow.path ? this.explorer?.names.along([flow.src_host, ...flow.path, flow.dst_host]) : [];
    return {
      title: `${flow.src_host} → ${flow.dst_host}`,
      ways: links?.length ? [{ links, colour: 0 }] : [],
      content: [
        facts([
          ["Five-tuple", `${src}:${src_port} → ${dst}:${dst_port}`],
          ["Phase", flow.phase],
          ["Path", flow.path ? names(flow.path) : "default routes"],
          ["Rate", rate(flow.rate_bps)],
          ["Sent", `${bytes(flow.bytes)}${flow.size_bytes === null ? "" : ` of ${bytes(flow.size_bytes)}`}`],
        ]),
        this.explorer?.pairButton(flow.src_host, flow.dst_host) ?? h("p"),
        h("h3", {}, "Why it is there"), h("p", {}, why),
        ...(history.length ? [h("ol", { class: "history" }, history.map((one) =>
          h("li", {}, h("strong", {}, clock(one.at_s)), ` ${one.scheme} ${one.decision}`, h("small", {}, `because of this: ${one.cause}`))))] : []),
        ...(candidates.length ? [h("h3", {}, "Paths that it could take"), h("ol", { class: "history" }, candidates.slice(0, 16).map((one) =>
          h("li", {}, names(one.path), one.current && h("strong", {}, " (its path)"), h("small", {}, `fullest link ${one.fullest ?? "–"}: ${Math.round(one.load_share * 100)} %`))))] : []),
      ],
    };
  }

  private async flowList(wanted: (flow: LiveFlow) => boolean, none: string): Promise<HTMLElement> {
    const { items, all } = await this.live.flows();
    const found = items.filter(wanted);
    if (found.length === 0) return h("p", { class: "hint" }, none);
    const button = (flow: LiveFlow) =>
      h("li", {}, h("button", { type: "button", class: "link", onclick: () => this.explorer?.showFlow(flow.id) },
        h("span", {}, `${flow.src_host}:${flow.five_tuple.src_port} → ${flow.dst_host}`), h("span", { class: "number" }, flow.rate_bps === null ? flow.phase : rate(flow.rate_bps))));
    const shown = [...found].sort((a, b) => (b.rate_bps ?? -1) - (a.rate_bps ?? -1)).slice(0, MOST_FLOWS);
    const more = found.length > shown.length || !all;
    return h("div", {}, h("ul", { class: "flows" }, shown.map(button)), more && h("p", { class: "hint" }, `${shown.length} of ${all ? "" : "more than "}${count(found.length)} flows`));
  }
}
