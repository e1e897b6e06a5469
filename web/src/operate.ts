// The page of a controller: the present state of the fabric, and functions for operators.

import { byId, h, replace, tell } from "./dom";
import { Explorer } from "./explorer";
import { Unfolded } from "./fold";
import { open } from "./login";
import { LiveDetails } from "./live-details";
import { MatrixView } from "./matrix-view";
import { OperateView } from "./operate-view";
import { TimeBar } from "./time-bar";
import { views } from "./views";

export async function operate(): Promise<void> {
  const live = await open();
  document.title = "Pathloom controller";
  const bar = new TimeBar(true);
  const view = new OperateView(live);
  const details = new LiveDetails(live, (path, out, what) => view.drain(path, out, what));
  const unfolded = new Unfolded(live.fabric);
  const explorer = new Explorer(live.fabric, details, unfolded, "live");
  details.explorer = explorer;
  const matrix = new MatrixView(live.fabric, unfolded, (link) => {
    location.hash = "fabric";
    void explorer.show({ kind: "link", index: link });
  });
  unfolded.onchange = () => {
    explorer.refold();
    matrix.rebuild();
  };
  const showTime = () => {
    const moment = live.moments[bar.step];
    if (!moment) return;
    const states = (link: number) => moment.states[link] ?? "up";
    explorer.setFrame(moment.loads, states);
    matrix.setFrame(moment.loads, states);
  };
  bar.ontime = showTime;
  let alarms = "";
  live.onchange = () => {
    bar.setTimes(live.moments.map(({ at }) => at), bar.follows);
    showTime();
    if (bar.follows) explorer.refresh();
    view.render();
    const now = live.alarms();
    const text = now.map((one) => one.text).join(" ");
    if (text !== alarms) tell(now.length ? `${now.length} alarms. ${now[0]!.text}` : "No alarms.");
    alarms = text;
    const state = live.state;
    replace(byId("title"), h("strong", {}, live.connected ? "live" : "no answer"), h("span", { class: "quiet" }, ` ${state?.fabric ?? ""}`),
      now.length > 0 && h("a", { href: "#operate", class: "badge" }, `${now.length} ${now.length === 1 ? "alarm" : "alarms"}`));
  };
  views([["fabric", "Fabric", explorer.element], ["operate", "Operate", view.element], ["matrix", "Matrix", matrix.element]], () => {
    showTime();
    view.render();
  });
  await live.follow();
}
