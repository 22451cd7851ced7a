// Questions before what cannot be undone.

import { h, say } from "./dom.js";

// ask shows a question, and does what it asks about if the answer is yes. What goes
// wrong is shown in it. reason: what for is asked as well, and told to those it concerns.
export function ask({ title, text, yes, reason, danger = true, act }) {
  const came = document.activeElement;
  const wrong = h("p", { class: "wrong", role: "alert" });
  const field = reason && h("input", { id: "why", type: "text", required: true, maxlength: 256, autocomplete: "off", "aria-describedby": "why-for" });
  const confirm = h("button", { type: "submit", class: danger ? "danger" : "main" }, yes);
  const form = h("form", { method: "dialog" },
    h("h2", { id: "ask-title" }, title), h("p", { id: "ask-text" }, text),
    reason && h("div", { class: "field" }, h("label", { for: "why" }, "Reason"), field, h("p", { id: "why-for", class: "hint" }, reason)),
    wrong,
    h("div", { class: "buttons" }, h("button", { type: "button", class: "plain", onclick: () => box.close() }, "Cancel"), confirm));
  const box = h("dialog", { class: "ask", "aria-labelledby": "ask-title", "aria-describedby": "ask-text" }, form);
  form.addEventListener("submit", async (e) => {
    e.preventDefault();
    confirm.disabled = true;
    wrong.textContent = "";
    try {
      say(await act(field ? field.value.trim() : undefined) || "Done");
      box.close();
    } catch (err) {
      wrong.textContent = err.message;
      confirm.disabled = false;
    }
  });
  box.addEventListener("close", () => {
    box.remove();
    if (came?.isConnected) came.focus();
    else document.getElementById("main").focus();
  });
  document.body.append(box);
  box.showModal();
  (field || form.querySelector(".plain")).focus();
}
