// The page of a controller: the present state of the fabric, and functions for operators.

import { byId, h, replace, tell } from "./dom";
import { Explorer } from "./explorer";
import { open } from "./login";
import { LiveDetails } from "./live-details";
import { OperateView } from "./operate-view";
import { TimeBar } from "./time-bar";
import { views } from "./views";

export async function operate(): Promise<void> {
  const live = await open();
  document.title = "Pathloom controller";
  const bar = new TimeBar(true);
  const view = new OperateView(live);
  const details = new LiveDetails(live, (path, out, what) => view.drain(path, out, what));
  const explorer = new Explorer(live.fabric, details, true);
  details.explorer = explorer;
  const showTime = () => {
    const moment = live.moments[bar.step];
    if (moment) explorer.setFrame(moment.loads, (link) => moment.states[link] ?? "up");
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
  views([["fabric", "Fabric", explorer.element], ["operate", "Operate", view.element]], () => {
    showTime();
    view.render();
  });
  await live.follow();
}
