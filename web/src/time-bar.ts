// The slider over time, with a button that plays.

import { byId, h, replace, seconds } from "./dom";

/** Duration of a series at normal speed, in seconds. A series with fewer steps than this plays one step per second. */
const WHOLE_S = 20;
const SPEEDS = [0.25, 0.5, 1, 2, 4];

export class TimeBar {
  ontime: (at: number) => void = () => {};
  private times: number[] = [];
  private index = 0;
  private playing = false;
  private speed = 1;
  private position = 0;
  private readonly slider = h("input", { type: "range", min: 0, step: 1, "aria-label": "Time" });
  private readonly button = h("button", { type: "button", class: "play", onclick: () => this.toggle() });
  private readonly label = h("output", { class: "at" });
  private readonly live = h("button", { type: "button", class: "live", hidden: true, onclick: () => this.goLive() }, "Live");

  constructor(private readonly isLive: boolean) {
    const speed = h(
      "select",
      { "aria-label": "Speed", onchange: (event: Event) => (this.speed = Number((event.target as HTMLSelectElement).value)) },
      SPEEDS.map((factor) => h("option", { value: factor, selected: factor === 1 }, `${factor}×`)),
    );
    this.slider.addEventListener("input", () => this.set(Number(this.slider.value)));
    replace(byId("time"), this.button, this.slider, this.label, isLive ? this.live : speed);
    addEventListener("keydown", (event) => this.key(event));
    this.say();
  }

  get at(): number {
    return this.times[this.index] ?? 0;
  }

  get step(): number {
    return this.index;
  }

  /** Sets the available times. The bar keeps its time or the next later one. With `follow`, it moves to the last. */
  setTimes(times: number[], follow = false): void {
    const at = this.at;
    this.times = times;
    byId("time").hidden = times.length < 2;
    this.slider.max = String(Math.max(0, times.length - 1));
    const nearest = times.findIndex((time) => time >= at - 1e-9);
    this.index = follow || (nearest < 0 && times.length > 0) ? times.length - 1 : Math.max(0, nearest);
    this.position = this.index;
    this.say();
  }

  set(index: number): void {
    this.index = Math.max(0, Math.min(this.times.length - 1, index));
    this.position = this.index;
    if (this.isLive) this.live.hidden = this.index === this.times.length - 1;
    this.say();
    this.ontime(this.at);
  }

  /** Goes to the step that contains a time, or to the last step. */
  goTo(at: number): void {
    const step = this.times.findIndex((time) => time >= at - 1e-9);
    if (this.times.length > 0) this.set(step < 0 ? this.times.length - 1 : step);
  }

  get follows(): boolean {
    return this.isLive && this.live.hidden !== false;
  }

  private goLive(): void {
    this.set(this.times.length - 1);
  }

  private toggle(): void {
    this.playing = !this.playing;
    if (this.playing && this.index >= this.times.length - 1) this.set(0);
    this.say();
    if (this.playing) this.run(performance.now());
  }

  private run(before: number): void {
    requestAnimationFrame((now) => {
      if (!this.playing) return;
      const perS = Math.max(1, this.times.length / WHOLE_S) * this.speed;
      this.position += Math.min(0.1, (now - before) / 1000) * perS;
      if (this.position >= this.times.length - 1) {
        this.set(this.times.length - 1);
        this.playing = false;
        this.say();
        return;
      }
      const index = Math.floor(this.position);
      if (index !== this.index) {
        this.index = index;
        this.say();
        this.ontime(this.at);
      }
      this.run(now);
    });
  }

  private key(event: KeyboardEvent): void {
    const target = event.target as HTMLElement;
    if (byId("time").hidden || event.altKey || event.ctrlKey || event.metaKey) return;
    if (target.matches("input:not([type=range]), select, textarea, dialog *")) return;
    if (event.key === " " && !target.matches("button, a, summary")) this.toggle();
    else if (event.key === "," || (event.key === "ArrowLeft" && target === document.body)) this.set(this.index - 1);
    else if (event.key === "." || (event.key === "ArrowRight" && target === document.body)) this.set(this.index + 1);
    else return;
    event.preventDefault();
  }

  private say(): void {
    this.slider.value = String(this.index);
    const clock = () => new Date(this.at * 1000).toLocaleTimeString("en", { hour12: false });
    const text = this.isLive ? clock() : seconds(this.at);
    this.label.textContent = text;
    this.slider.setAttribute("aria-valuetext", text);
    this.button.textContent = this.playing ? "❚❚" : "▶";
    this.button.setAttribute("aria-label", this.playing ? "Pause" : "Play");
    this.button.title = this.playing ? "Pause (space)" : "Play (space)";
  }
}
