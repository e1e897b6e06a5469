// Asks the user for a token if the controller refuses access.

import { byId, h, replace } from "./dom";
import { Live } from "./live";
import { Refused } from "./model";

/** Connects to the controller. Asks for a token until the controller accepts one. */
export async function open(): Promise<Live> {
  for (;;) {
    try {
      return await Live.open();
    } catch (problem) {
      if (!(problem instanceof Refused) || problem.status !== 401) throw problem;
      Live.keepToken(await asked(problem.message));
    }
  }
}

function asked(why: string): Promise<string> {
  return new Promise((answer) => {
    const token = h("input", { type: "password", "aria-label": "Token", autocomplete: "off", required: true });
    const submit = (event: Event) => {
      event.preventDefault();
      answer(token.value.trim());
    };
    replace(byId("view"), h("form", { class: "login", onsubmit: submit },
      h("h2", {}, "This controller asks for a token"),
      h("p", { class: "hint" }, why), h("div", { class: "row" }, token, h("button", {}, "Use")),
      h("p", { class: "hint" }, "A token of role read may look, one of role operate may also change things. It is kept in this tab alone.")));
    token.focus();
  });
}
