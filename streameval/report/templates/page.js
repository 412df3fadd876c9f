(() => {
  "use strict";
  const order = (row, column) => {
    const cell = row.cells[column];
    const number = cell.dataset.order;
    return number === undefined ? cell.innerText.trim().toLowerCase() : Number(number);
  };
  const compare = (a, b) =>
    typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1;
  for (const table of document.querySelectorAll("table")) {
    const body = table.tBodies[0];
    if (body.rows.length < 3) continue;
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const falling = head.getAttribute("aria-sort") === "descending" ? 1 : -1;
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", falling < 0 ? "descending" : "ascending");
        const below = (row) => (row.nextElementSibling?.className === "why" ? [row.nextElementSibling] : []);
        const rows = [...body.rows].filter((row) => row.className !== "why").map((row) => [row, ...below(row)]);
        rows.sort(([a], [b]) => falling * compare(order(a, column), order(b, column)));
        body.append(...rows.flat());
      });
    });
  }
})();
