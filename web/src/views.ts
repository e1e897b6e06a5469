// The views of the page. The fragment of the address selects one.

import { address } from "./address";
import { byId, h, replace } from "./dom";

/** Shows links to the views, and the view that the address selects, also after each change of the address. */
export function views(list: [string, string, HTMLElement][], onview: (name: string) => void): void {
  const links = list.map(([name, title]) => h("a", { href: `#${name}` }, title));
  replace(byId("views"), links);
  const change = () => {
    const wanted = address().view;
    const index = Math.max(0, list.findIndex(([name]) => name === wanted));
    const [name, , element] = list[index]!;
    links.forEach((link, place) => place === index ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current"));
    document.body.dataset["view"] = name;
    replace(byId("view"), element);
    onview(name);
  };
  addEventListener("hashchange", change);
  addEventListener("keydown", (event) => {
    const target = event.target as HTMLElement;
    const index = Number(event.key) - 1;
    if (event.altKey || event.ctrlKey || event.metaKey || target.matches("input, select, textarea, dialog *")) return;
    if (list[index]) location.hash = list[index][0];
    if (event.key === "/") {
      event.preventDefault();
      document.querySelector<HTMLElement>(".find input")?.focus();
    }
  });
  change();
}
