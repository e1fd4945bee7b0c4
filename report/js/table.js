// Tables under charts: folded until wanted, sorted by a click on a title.

const cellText = (column, row) => {
  const value = column.value(row);
  return column.format ? column.format(value) : (value ?? "–");
};

function tableBody(columns, rows) {
  return element(
    "tbody",
    {},
    rows.map((row) =>
      element(
        "tr",
        {},
        columns.map((column) => element("td", { class: column.kind ?? "" }, String(cellText(column, row)))),
      ),
    ),
  );
}

function compare(left, right) {
  if (typeof left === "number" && typeof right === "number") return left - right;
  return String(left ?? "").localeCompare(String(right ?? ""), "en", { numeric: true });
}

/// Columns are {title, value(row), format(value)?, kind: "text"?}.
function table(columns, rows) {
  let body = tableBody(columns, rows);
  const made = element(
    "table",
    {},
    element(
      "thead",
      {},
      element(
        "tr",
        {},
        columns.map((column) =>
          element(
            "th",
            { class: column.kind ?? "", scope: "col", onclick: (event) => sortBy(column, event.target) },
            column.title,
          ),
        ),
      ),
    ),
    body,
  );
  function sortBy(column, title) {
    const sign = title.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    for (const other of made.querySelectorAll("th")) other.removeAttribute("aria-sort");
    title.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
    const sorted = [...rows].sort((left, right) => sign * compare(column.value(left), column.value(right)));
    const next = tableBody(columns, sorted);
    body.replaceWith(next);
    body = next;
  }
  return made;
}

function foldedTable(columns, rows) {
  return element(
    "details",
    {},
    element("summary", {}, `Table, ${rows.length} row${rows.length === 1 ? "" : "s"}`),
    element("div", { class: "scroll" }, table(columns, rows)),
  );
}
