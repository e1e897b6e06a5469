// Sessions, alarms, drains and schemes, for operators.

import { append, count, facts, h, rate, replace, tell } from "./dom";
import type { DryRun, Live, State, SwitchRow } from "./live";

const clock = (at: number) => new Date(at * 1000).toLocaleString("en", { hour12: false });

export class OperateView {
  readonly element: HTMLElement;
  private readonly summary = h("div");
  private readonly alarms = h("ul", { class: "alarms", tabindex: 0, "aria-label": "Alarms" });
  private readonly rows = h("tbody");
  private readonly message = h("p", { class: "answer", role: "status" });
  private readonly role = h("p", { class: "hint" });
  private readonly prediction = h("div");
  private readonly scheme = h("input", { list: "schemes", "aria-label": "Scheme", placeholder: "hedera:period=1s", autocomplete: "off" });
  private readonly known = h("datalist", { id: "schemes" });
  private readonly shown = new Map<string, string>();
  private onlyTroubled = h("input", { type: "checkbox", onchange: () => this.render() });
  private mayChange = false;

  constructor(private readonly live: Live) {
    const token = h("input", { type: "password", "aria-label": "Token", autocomplete: "off", placeholder: "token of role operate" });
    const login = h("form", { class: "row", onsubmit: (event: Event) => {
      event.preventDefault();
      live.useToken(token.value.trim());
      token.value = "";
      void this.askRole();
    } }, token, h("button", {}, "Use"), h("button", { type: "button", onclick: () => (live.useToken(""), void this.askRole()) }, "Forget"));
    const heads = ["Switch", "Session", "Ports up", "Rules", "Foreign", "RTT", "Service"].map((name, place) => h("th", { scope: "col", class: place >= 2 && place <= 5 && "number" }, name));
    this.element = h("section", { class: "operate", "aria-label": "Operate" },
      h("div", { class: "cards" },
        h("article", {}, h("h2", {}, "Controller"), this.summary),
        h("article", {}, h("h2", {}, "Alarms"), this.alarms),
        h("article", {}, h("h2", {}, "Scheme"), this.known,
          h("div", { class: "row" }, this.scheme,
            h("button", { type: "button", onclick: () => void this.dryRun() }, "Dry run"),
            h("button", { type: "button", class: "changes", onclick: () => void this.setScheme() }, "Put in charge"),
            h("button", { type: "button", class: "changes", onclick: () => void this.fallBack() }, "Fall back to ecmp")),
          this.prediction),
        h("article", {}, h("h2", {}, "Your token"), this.role, login,
          h("p", { class: "hint" }, "It is kept in this tab alone. ", h("code", {}, "pathloom controller token NAME --role operate"), " makes one."))),
      this.message,
      h("div", { class: "row" }, h("h2", {}, "Switches"), h("label", {}, this.onlyTroubled, " only those without a session, out of service, or with foreign rules")),
      h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Switches" }, h("table", {}, h("thead", {}, h("tr", {}, heads)), this.rows)));
    void this.askRole();
  }

  render(): void {
    const { state } = this.live;
    if (!state) return;
    this.fill("summary", this.summary, this.summaryOf(state));
    const alarms = this.live.alarms();
    this.fill("alarms", this.alarms, alarms.length
      ? alarms.slice(0, 50).map(({ severity, text }) => h("li", { class: severity }, h("strong", {}, `${severity}: `), text))
      : [h("li", { class: "fine" }, "No alarms.")]);
    const troubled = ({ peer, drained, foreign_rules }: SwitchRow) => peer === null || drained || foreign_rules > 0;
    const switches = this.onlyTroubled.checked ? this.live.switches.filter(troubled) : this.live.switches;
    this.fill("switches", this.rows, switches.map((one) => this.switchRow(one)));
  }

  /** Replaces content only if it has changed, and keeps the keyboard focus. */
  private fill(name: string, element: HTMLElement, content: Node[]): void {
    const text = content.map((one) => (one as HTMLElement).outerHTML).join("");
    if (this.shown.get(name) === text) return;
    const focused = element.contains(document.activeElement) ? document.activeElement?.getAttribute("data-key") : null;
    replace(element, content);
    this.shown.set(name, text);
    if (focused) element.querySelector<HTMLElement>(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  }

  private summaryOf(state: State): Node[] {
    return [facts([
      ["In charge", h("strong", {}, state.scheme)],
      ["Since", clock(state.scheme_since_s)],
      ["Sessions", `${state.sessions} of ${state.switches} switches`],
      ["Cables", `${state.cables.up} up, ${state.cables.down} down, ${state.cables.drained} out of service`],
      ["Flows", `${count(state.flows.known)} known, ${count(state.flows.own_path)} on own paths, ${count(state.flows.held)} waiting`],
      ["Host agents", `for ${state.agents.hosts} of ${state.hosts} hosts`],
      ["Busy", `${(state.busy_share * 100).toFixed(1)} %${state.staging ? ", changing default routes" : ""}`],
      ["Version", state.version],
    ])];
  }

  private switchRow(one: SwitchRow): HTMLElement {
    const out = one.drained;
    const act = h("button", { type: "button", class: "changes", "data-key": one.name, disabled: !this.mayChange,
      "aria-label": `${out ? "Undrain" : "Drain"} ${one.name}`,
      onclick: () => void this.drain(`v1/switches/${encodeURIComponent(one.name)}`, !out, one.name) }, out ? "Undrain" : "Drain");
    return h("tr", {},
      h("th", { scope: "row" }, one.name, h("small", {}, ` ${one.tier}`)),
      h("td", {}, one.peer ?? h("strong", { class: "critical" }, "none")),
      h("td", { class: "number" }, `${one.ports_up}/${one.ports}`),
      h("td", { class: "number" }, count(one.rules)),
      h("td", { class: "number" }, count(one.foreign_rules)),
      h("td", { class: "number" }, one.rtt_us === null ? "–" : `${one.rtt_us.toFixed(0)} µs`),
      h("td", {}, out ? "out of service " : "", act));
  }

  private async askRole(): Promise<void> {
    try {
      const { name, role } = await this.live.get<{ name: string; role: string }>("v1/token");
      this.mayChange = role === "operate";
      this.role.textContent = this.mayChange ? `${name}, role operate: it may change things.` : `${name}, role read: nothing can be changed. For a dry run, give the token here, not as the browser's password.`;
      const { available } = await this.live.get<{ available: string[] }>("v1/scheme");
      replace(this.known, available.map((value) => h("option", { value })));
    } catch (problem) {
      this.mayChange = false;
      this.role.textContent = problem instanceof Error ? problem.message : String(problem);
    }
    this.element.querySelectorAll<HTMLButtonElement>("button.changes").forEach((button) => (button.disabled = !this.mayChange));
    this.shown.delete("switches");
    this.render();
  }

  /** Takes a switch or cable out of service or back into service, after a confirmation. */
  async drain(path: string, out: boolean, what: string): Promise<void> {
    const text = out
      ? `Take ${what} out of service? Flows are moved off it first, without loss.`
      : `Take ${what} back into service?`;
    if (!(await confirmed(text, out ? "Take out of service" : "Take back"))) return;
    await this.try(() => this.live.change("POST", `${path}/${out ? "drain" : "undrain"}`), out ? `${what} leaves service.` : `${what} is back in service.`);
  }

  private async setScheme(): Promise<void> {
    const scheme = this.scheme.value.trim();
    if (!scheme) return this.say("Name a scheme first.");
    const text = `Put ${scheme} in charge in place of ${this.live.state?.scheme}? Flows stay where they are until it moves them. The next start of the controller uses the scheme of its configuration.`;
    if (!(await confirmed(text, "Put in charge"))) return;
    await this.try(() => this.live.change("PUT", "v1/scheme", { scheme }), `${scheme} is in charge.`);
  }

  private async fallBack(): Promise<void> {
    if (!(await confirmed("Fall back to ecmp? Every flow goes back to the default routes.", "Fall back"))) return;
    await this.try(() => this.live.change("POST", "v1/scheme/fall-back"), "ecmp is in charge.");
  }

  private async dryRun(): Promise<void> {
    const scheme = this.scheme.value.trim();
    if (!scheme) return this.say("Name a scheme first.");
    await this.try(async () => {
      const run = await this.live.change<DryRun>("POST", "v1/scheme/dry-run", { scheme });
      const row = (name: string, now: string, then: string) =>
        h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "number" }, now), h("td", { class: "number" }, then));
      const percent = (part: number) => `${Math.round(part * 100)} %`;
      replace(this.prediction,
        h("p", {}, h("strong", {}, run.scheme), ` would move ${count(run.moved)} of ${count(run.flows)} long flows${run.rejected ? `, and ${run.rejected} paths could not be set up` : ""}.`, !run.settled && " The dry run ended before the scheme had settled."),
        h("table", { class: "prediction" },
          h("thead", {}, h("tr", {}, h("td"), h("th", { scope: "col", class: "number" }, "now"), h("th", { scope: "col", class: "number" }, "then"))),
          h("tbody", {},
            row("Mean max-min rate", rate(run.now.max_min_mean_bps), rate(run.then.max_min_mean_bps)),
            row("Lowest rate", rate(run.now.max_min_least_bps), rate(run.then.max_min_least_bps)),
            row("Fullest link", percent(run.now.max_load_share), percent(run.then.max_load_share)))),
        h("p", { class: "hint" }, "Nothing was sent to switches."));
    }, "The dry run is done.");
  }

  private async try(act: () => Promise<unknown>, done: string): Promise<void> {
    try {
      await act();
      this.say(done);
    } catch (problem) {
      this.say(`Refused: ${problem instanceof Error ? problem.message : String(problem)}`);
    }
  }

  private say(text: string): void {
    this.message.textContent = text;
    tell(text);
  }
}

/** Asks for confirmation in a dialog. Returns whether the answer is yes. */
function confirmed(text: string, yes: string): Promise<boolean> {
  return new Promise((answer) => {
    const dialog = h("dialog", { "aria-label": "Confirm" });
    const close = (value: string) => dialog.close(value);
    append(dialog, [h("p", {}, text), h("div", { class: "row end" },
      h("button", { type: "button", onclick: () => close("no") }, "Cancel"),
      h("button", { type: "button", class: "yes", onclick: () => close("yes") }, yes))]);
    dialog.addEventListener("close", () => {
      dialog.remove();
      answer(dialog.returnValue === "yes");
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
